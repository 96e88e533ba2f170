"""The classification task: `fit` on strings and labels."""

import keras
import keras_hub
from keras import ops

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

    Args:
        backbone: A `keras_synth.models.SynthesizerEncoderBackbone`.
        num_classes: int. The number of classes.
        preprocessor: A `keras_synth.models.SynthesizerTextClassifierPreprocessor`, or `None` if inputs
            are preprocessed already.
        activation: Activation of the output. Defaults to `None`, for logits, which the loss must take then.
        hidden_dim: int. The width of the hidden layer. Defaults to the backbone's.
        dropout: float. Dropout before each of the two layers. Defaults to `0.0`.
        **kwargs: Keyword arguments of `keras_hub.models.TextClassifier`.

    Example:

    >>> import numpy as np
    >>> backbone = SynthesizerEncoderBackbone(
    ...     vocabulary_size=100, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=16, attention="random",
    ... )
    >>> model = SynthesizerTextClassifier(backbone, num_classes=3)
    >>> tokens = {"token_ids": np.ones((2, 7), "int32"), "padding_mask": np.ones((2, 7), "bool")}
    >>> model.predict(tokens, verbose=0).shape
    (2, 3)
    """

    backbone_cls = SynthesizerEncoderBackbone
    preprocessor_cls = SynthesizerTextClassifierPreprocessor

    def __init__(
        self,
        backbone,
        num_classes,
        preprocessor=None,
        activation=None,
        hidden_dim=None,
        dropout=0.0,
        **kwargs,
    ):
        hidden_dim = hidden_dim or backbone.hidden_dim

        # === Config ===
        # Before the base class compiles with the loss that fits the activation.
        self.num_classes = num_classes
        self.activation = keras.activations.get(activation)
        self.hidden_dim = hidden_dim
        self.dropout = dropout

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
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

    def compile(self, optimizer="auto", loss="auto", **kwargs):
        if loss == "auto" and self.returns_logits is False:
            loss = keras.losses.SparseCategoricalCrossentropy()
        super().compile(optimizer, loss, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "activation": keras.activations.serialize(self.activation),
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
        }


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
