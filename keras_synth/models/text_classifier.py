"""The classification task: `fit` on strings and labels."""

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras import ops

from keras_synth.core.checks import check_positive_int
from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.preprocessors import SynthesizerTextClassifierPreprocessor
from keras_synth.models.task import SynthesizerTask

#: What activations of the output make: logits, or else probabilities. Of others nothing is known.
_RETURNS_LOGITS = {
    keras.activations.linear: True,
    keras.activations.log_softmax: True,
    keras.activations.softmax: False,
    keras.activations.sigmoid: False,
}


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerTextClassifier(SynthesizerTask, keras_hub.models.TextClassifier):
    """A classifier of one or two sentences, with synthesized self-attention.

    The encoder's output is averaged over the tokens that are no padding; a hidden layer with `tanh` and
    an output layer follow. A text without any token averages to zeros.

    `fit` and `evaluate` take class ids from `0` on, or the names of `labels`; `class_weight` of `fit` too.
    With `activation="sigmoid"` each class is a yes or no of its own, so that a text may have several labels
    or none: what is to be learned then has shape `(batch, num_classes)`, zeros and ones. So does the one
    class of `num_classes=1`. The default loss and metrics fit that.

    Args:
        backbone: A `keras_synth.models.SynthesizerEncoderBackbone`.
        num_classes: int. The number of classes. Defaults to that of `labels`.
        preprocessor: A `keras_synth.models.SynthesizerTextClassifierPreprocessor`, or `None` if inputs
            are preprocessed already.
        activation: Activation of the output. Defaults to `None`, for logits, which the loss must take then.
        hidden_dim: int. The width of the hidden layer. Defaults to the backbone's.
        dropout: float. Dropout before each of the two layers. Defaults to `0.0`.
        labels: Sequence of strings. The names of the classes, which files, presets and exports of the model
            keep. Defaults to `None`: they have none.
        **kwargs: Keyword arguments of `keras_hub.models.TextClassifier`.

    Raises:
        ValueError: If `labels` and `num_classes` do not fit to each other, or what `fit` gets to them.

    Example:

    >>> from keras_synth.data import train_tokenizer
    >>> texts, answers = ["one two three", "four five six"], ["low", "high"]
    >>> tokenizer = train_tokenizer(texts, vocabulary_size=300)
    >>> backbone = SynthesizerEncoderBackbone(
    ...     tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=32, attention="random",
    ... )
    >>> preprocessor = SynthesizerTextClassifierPreprocessor(tokenizer)
    >>> model = SynthesizerTextClassifier(backbone, labels=["low", "high"], preprocessor=preprocessor)
    >>> history = model.fit(texts, answers, verbose=0)
    >>> model.predict(texts, verbose=0).shape
    (2, 2)
    """

    backbone_cls = SynthesizerEncoderBackbone
    preprocessor_cls = SynthesizerTextClassifierPreprocessor

    def __init__(
        self,
        backbone,
        num_classes=None,
        preprocessor=None,
        activation=None,
        hidden_dim=None,
        dropout=0.0,
        labels=None,
        **kwargs,
    ):
        if labels is not None:
            num_classes = len(labels) if num_classes is None else num_classes
            labels = check_labels(labels, num_classes)
        check_positive_int(type(self), "num_classes", num_classes)

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        hidden_dim = hidden_dim or backbone.hidden_dim

        # === Config ===
        # Before the base class compiles with the loss that fits the activation.
        self.num_classes = num_classes
        self.activation = keras.activations.get(activation)
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.labels = labels

        dtype = backbone.dtype_policy
        self.pooling = MaskedAverage(dtype=dtype, name="pooling")
        self.pooled_dropout = keras.layers.Dropout(dropout, dtype=dtype, name="pooled_dropout")
        self.pooled_dense = keras.layers.Dense(
            hidden_dim, activation="tanh", dtype=dtype, name="pooled_dense"
        )
        self.output_dropout = keras.layers.Dropout(dropout, dtype=dtype, name="output_dropout")
        self.output_dense = keras.layers.Dense(
            num_classes, activation=activation, dtype=dtype, name="logits"
        )

        # === Functional Model ===
        inputs = backbone.input
        x = self.pooling(backbone(inputs), inputs["padding_mask"])
        x = self.pooled_dense(self.pooled_dropout(x))
        outputs = self.output_dense(self.output_dropout(x))
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    @property
    def returns_logits(self):
        return _RETURNS_LOGITS.get(self.activation)

    def compile(self, optimizer="auto", loss="auto", *, metrics="auto", **kwargs):
        is_sigmoid = self.activation is keras.activations.sigmoid
        if is_sigmoid or self.num_classes == 1:
            if loss == "auto":
                loss = keras.losses.BinaryCrossentropy(from_logits=not is_sigmoid)
            if metrics == "auto":
                metrics = [keras.metrics.BinaryAccuracy(threshold=0.5 if is_sigmoid else 0.0)]
        elif loss == "auto" and self.returns_logits is False:
            loss = keras.losses.SparseCategoricalCrossentropy()
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def fit(self, *args, class_weight=None, **kwargs):
        if class_weight is not None:
            ids = {name: index for index, name in enumerate(self.labels or ())}
            class_weight = {ids.get(key, key): weight for key, weight in class_weight.items()}
            for key in class_weight:
                if isinstance(key, str) or not 0 <= key < self.num_classes:
                    raise ValueError(
                        f"The keys of `class_weight` must be {self._describe_classes()}. "
                        f"Received: class_weight={{{key!r}: ...}}"
                    )
            kwargs["class_weight"] = class_weight
        return super().fit(*args, **kwargs)

    def check_targets(self, y, name="y"):
        """Makes class ids of names, and checks them."""
        y = tf.convert_to_tensor(y)
        if y.dtype == tf.string:
            if self.labels is None:
                raise ValueError(
                    f"`{name}` are names of classes, so the {type(self).__name__} must know them: give it "
                    f"`labels=[...]` when it is made. Received: {name}={y}"
                )
            known = y[..., None] == tf.constant(self.labels)
            ids = tf.argmax(known, axis=-1, output_type="int32")
            return self._check_classes(ids, tf.reduce_any(known, axis=-1), y, name)
        if isinstance(self.loss, keras.losses.SparseCategoricalCrossentropy):
            valid = (y >= 0) & (y < self.num_classes)
            if self.loss.ignore_class is not None:
                valid |= y == tf.cast(self.loss.ignore_class, y.dtype)
            return self._check_classes(y, valid, y, name)
        if isinstance(self.loss, keras.losses.BinaryCrossentropy):
            shape = (None, self.num_classes)
            if self.num_classes > 1 and not y.shape.is_compatible_with(shape):
                raise ValueError(
                    f"`{name}` must have shape (batch, {self.num_classes}), with a 0 or 1 for each class. "
                    f"Received: {name} of shape={tuple(y.shape)}"
                )
        return y

    def _check_classes(self, ids, valid, y, name):
        """Returns `ids`, or raises if some of what was given is not `valid`."""
        message = f"`{name}` must be {self._describe_classes()}."
        if tf.executing_eagerly():
            wrong = np.flatnonzero(~valid.numpy())
            if wrong.size:
                value = y.numpy().ravel()[wrong[0]]
                value = value.decode() if isinstance(value, bytes) else value.item()
                raise ValueError(f"{message} Received: {name}[{wrong[0]}]={value!r}")
            return ids
        wrong = tf.boolean_mask(y, ~valid)
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.size(wrong) == 0, [message, "Received:", wrong])]
        ):
            return tf.identity(ids)

    def _describe_classes(self):
        ids = f"class ids from 0 to {self.num_classes - 1}"
        return ids if self.labels is None else f"{ids}, or names of the labels {self.labels}"

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        if "labels" in kwargs and "num_classes" not in kwargs:
            kwargs["num_classes"] = len(kwargs["labels"])  # by which KerasHub knows that the head is new
        elif "num_classes" in kwargs:
            kwargs.setdefault("labels", None)
        return super().from_preset(preset, load_weights, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "activation": keras.activations.serialize(self.activation),
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "labels": self.labels,
        }


def check_labels(labels, num_classes):
    """Returns the names of classes as a list.

    Args:
        labels: Sequence of strings.
        num_classes: int. The number of classes.

    Raises:
        ValueError: If they are not as many different strings.
    """
    names = [] if isinstance(labels, (str, bytes)) else list(labels)
    is_right = len(names) == num_classes and all(isinstance(name, str) for name in names)
    if not is_right or len(set(names)) < num_classes:
        raise ValueError(
            f"`labels` must be {num_classes} different strings, one for each class. "
            f"Received: labels={labels!r}"
        )
    return names


@keras.saving.register_keras_serializable("keras_synth")
class MaskedAverage(keras.layers.Layer):
    """The average over the tokens that a mask shows; zeros where it shows none.

    Call arguments:
        inputs: Tensor of shape `(batch, T, D)`.
        padding_mask: Tensor of shape `(batch, T)`, nonzero for tokens and zero for padding.
    """

    def call(self, inputs, padding_mask):
        padding_mask = ops.cast(padding_mask, "bool")[:, :, None]
        # In float32, because float16 cannot count to the length of a long text.
        total = ops.sum(ops.cast(ops.where(padding_mask, inputs, 0), "float32"), axis=1)
        count = ops.sum(ops.cast(padding_mask, "float32"), axis=1)
        return ops.cast(total / ops.maximum(count, 1.0), self.compute_dtype)

    def compute_output_shape(self, inputs_shape, padding_mask_shape):
        return (inputs_shape[0], inputs_shape[2])

    def get_config(self):
        return super().get_config()  # The one that Keras makes by itself has no place for a dtype policy.
