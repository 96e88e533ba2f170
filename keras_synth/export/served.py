"""What an exported model can be asked: the signatures of each task.

A signature is a function from named tensors to named tensors, all with the batch as their first axis. The
classes below say which ones a task has; `served` finds the class of a model.
"""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from keras_synth import models
from keras_synth.models.backbone import SynthesizerBackbone


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function that an exported model has under a name.

    Args:
        name: string. The name, in TensorFlow Serving the `signature_name`.
        inputs: dict from the names of the inputs to their `tf.TensorSpec`.
        call: A function of these inputs, by name, which returns a dict of tensors.
    """

    name: str
    inputs: dict[str, tf.TensorSpec]
    call: Callable[..., dict[str, tf.Tensor]]

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """The function as a graph. What is float comes out as float32."""

        @tf.function(autograph=False)
        def function(**inputs):
            outputs = {name: tf.convert_to_tensor(value) for name, value in self.call(**inputs).items()}
            return {
                name: tf.cast(value, "float32") if value.dtype.is_floating else value
                for name, value in outputs.items()
            }

        return function.get_concrete_function(**self.inputs)


def input_structure(model: keras.Model):
    """The inputs of a functional or sequential model, as it is called with them."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


class Served:
    """A model that is asked with tensors.

    `predict` is what the model itself computes: its inputs, by their names, to its outputs, by theirs.
    """

    def __init__(self, model):
        if not (isinstance(model, keras.Model) and model.built and getattr(model, "inputs", None)):
            raise ValueError(
                "`export` takes a built model with inputs: a task or backbone of `keras_synth.models`, or "
                f"another functional or sequential model. Received: model={model!r}"
            )
        self.model = model
        self.backbone = getattr(model, "backbone", model)
        self.preprocessor = getattr(model, "preprocessor", None)
        if self.preprocessor is not None and not self.preprocessor.built:
            self.preprocessor.build(None)
        self.forward = self.graph(self._forward)

    def signatures(self) -> list[Signature]:
        """The signatures; the first one is also `serving_default`."""
        text = [] if self.preprocessor is None else self.text_signatures()
        return [*text, Signature("predict", self.token_specs(), self.predict)]

    @property
    def output_names(self):
        """The names of the outputs of `predict`, where the model itself has none."""
        if isinstance(self.model, SynthesizerBackbone):
            return ["sequence_output"]
        if isinstance(self.model, keras.Sequential):
            return [self.model.layers[-1].name]
        return self.model.output_names

    def text_signatures(self):
        """Those with text as inputs, of which a task has some if it has a preprocessor."""
        return []

    def token_specs(self):
        return {
            tensor.name: tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, tensor.name)
            for tensor in self.model.inputs
        }

    def graph(self, function):
        """A function of the model's inputs by name, as one graph for all shapes, which signatures share."""
        graph = tf.function(function, input_signature=[self.token_specs()], autograph=False)
        return lambda inputs: graph(
            {tensor.name: tf.cast(inputs[tensor.name], tensor.dtype) for tensor in self.model.inputs}
        )

    def predict(self, **inputs):
        outputs = self.forward(self.checked(inputs))
        if isinstance(outputs, dict):
            return outputs
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        return dict(zip(self.output_names, outputs, strict=True))

    def _forward(self, inputs):
        inputs = [inputs[tensor.name] for tensor in self.model.inputs]
        return self.model(keras.tree.pack_sequence_as(input_structure(self.model), inputs), training=False)

    def checked(self, inputs):
        """The inputs, or an error if they are longer than the backbone takes."""
        if not isinstance(self.backbone, SynthesizerBackbone):
            return inputs
        max_length = self.backbone.max_length
        checks = [
            tf.debugging.assert_less_equal(
                tf.shape(tensor)[1],
                max_length,
                f"`{name}` must be sequences of at most max_length={max_length} tokens.",
            )
            for name, tensor in inputs.items()
        ]
        with tf.control_dependencies(checks):
            return {name: tf.identity(tensor) for name, tensor in inputs.items()}

    def text(self, name, function, *inputs):
        """The signature of a function of texts."""
        specs = {name: tf.TensorSpec([None], tf.string, name) for name in inputs}
        return Signature(name, specs, function)

    def tokens(self, text):
        return self.preprocessor.tokenizer(text)

    def inputs(self, token_ids):
        return {
            "token_ids": token_ids,
            "padding_mask": token_ids != self.preprocessor.tokenizer.pad_token_id,
        }

    def detokenize(self, token_ids, mask):
        """The text of the tokens that a mask shows, without special ones."""
        # `generate_postprocess` of a language model's preprocessor needs NumPy arrays.
        for special in self.preprocessor.tokenizer.special_token_ids:
            mask = mask & (token_ids != special)
        return self.preprocessor.tokenizer.detokenize(tf.ragged.boolean_mask(token_ids, mask))


class ServedTextClassifier(Served):
    """`classify` a text, or with `classify_pair` two texts: the best label, and the scores of all.

    Scores are probabilities: the softmax of logits, or what the model's activation makes of them. A model
    with a single class returns its output as the `score`, without a label.
    """

    output_names = ("logits",)

    def __init__(self, model, labels=None):
        super().__init__(model)
        if labels is None:
            labels = list(map(str, range(model.num_classes)))
        labels = list(labels)
        if len(labels) != model.num_classes or not all(isinstance(label, str) for label in labels):
            raise ValueError(
                f"`labels` must be {model.num_classes} strings, one for each class. "
                f"Received: labels={labels!r}"
            )
        self.labels = labels

    def text_signatures(self):
        return [
            self.text("classify", self.classify, "text"),
            self.text("classify_pair", self.classify_pair, "text", "second_text"),
        ]

    def classify_pair(self, text, second_text):
        return self.classify(text, second_text)

    def classify(self, text, *others):
        tokens = [self.tokens(each) for each in (text, *others)]
        token_ids, _ = self.preprocessor.packer(tuple(tokens))
        outputs = tf.cast(self.forward(self.inputs(token_ids)), "float32")
        # Start, and an end after each text.
        room = self.preprocessor.sequence_length - 1 - len(tokens)
        truncated = sum(each.row_lengths() for each in tokens) > room
        if self.model.num_classes == 1:
            return {"score": outputs[:, 0], "truncated": truncated}
        if self.model.activation is keras.activations.linear:
            outputs = tf.nn.softmax(outputs)
        return {
            "label": tf.gather(tf.constant(self.labels), tf.argmax(outputs, axis=-1)),
            "score": tf.reduce_max(outputs, axis=-1),
            "scores": outputs,
            "truncated": truncated,
        }


class ServedMaskedLM(Served):
    """`fill_mask`: puts the most probable token in place of each mask token in a text."""

    output_names = ("logits",)

    def text_signatures(self):
        return [self.text("fill_mask", self.fill_mask, "text")]

    def _forward(self, inputs):
        # With a row at least, because Keras can't gather from an empty batch.
        batch_size = tf.shape(inputs["token_ids"])[0]
        rows = tf.maximum(batch_size, 1)
        inputs = {name: tf.pad(ids, [(0, rows - batch_size), (0, 0)]) for name, ids in inputs.items()}
        return super()._forward(inputs)[:batch_size]

    def fill_mask(self, text):
        tokens = self.tokens(text)
        token_ids, _ = self.preprocessor.packer((tokens,))
        is_mask = token_ids == self.preprocessor.tokenizer.mask_token_id
        everywhere = tf.broadcast_to(tf.range(tf.shape(token_ids)[1]), tf.shape(token_ids))
        positions = tf.ragged.boolean_mask(everywhere, is_mask)
        inputs = {**self.inputs(token_ids), "mask_positions": positions.to_tensor()}
        logits = self.forward(inputs)
        log_probabilities = tf.nn.log_softmax(tf.cast(logits, "float32"))
        # Of as many masks as each text has.
        best = tf.RaggedTensor.from_tensor(
            tf.argmax(log_probabilities, -1, token_ids.dtype), positions.row_lengths()
        )
        score = tf.RaggedTensor.from_tensor(tf.reduce_max(log_probabilities, -1), positions.row_lengths())
        token_ids = tf.tensor_scatter_nd_update(token_ids, tf.where(is_mask), best.flat_values)
        return {
            "text": self.detokenize(token_ids, tf.ones_like(is_mask)),
            "score": tf.reduce_sum(score, axis=1),
            "truncated": tokens.row_lengths() > self.preprocessor.sequence_length - 2,
        }

    def tokens(self, text):
        # No text yields the id of a mask, so texts are tokenized from one mask to the next.
        mask = self.preprocessor.tokenizer.mask_token
        parts = tf.strings.split(text, mask)
        tokens = super().tokens(parts.flat_values)
        masks = tf.fill([tokens.nrows(), 1], self.preprocessor.tokenizer.mask_token_id)
        tokens = tf.concat([tokens, tf.cast(masks, tokens.dtype)], axis=1)
        return parts.with_flat_values(tokens).merge_dims(1, 2)[:, :-1]  # no mask follows the last part


class ServedGenerator(Served):
    """`generate` and `generate_tokens`: what the model generates, and the log-probability of that.

    The score is the sum over what was generated, the end included: the model's own probabilities,
    whichever sampler chose the tokens.
    """

    output_names = ("logits",)
    side = property(lambda self: self.model.side)

    def signatures(self):
        signatures = super().signatures()
        if self.preprocessor is not None:
            specs = self.token_specs()
            signatures.append(Signature("generate_tokens", specs, self.generate_tokens))
        return signatures

    def __init__(self, model):
        super().__init__(model)
        self.generated = self.graph(self._generated)

    def generate_tokens(self, **inputs):
        return self.generated(self.checked(inputs))

    def _generated(self, inputs):
        stop_token_ids = (self.preprocessor.tokenizer.end_token_id,)
        outputs = self.model.generate_step(inputs, stop_token_ids)
        token_ids, mask = outputs[f"{self.side}token_ids"], outputs[f"{self.side}padding_mask"]
        generated = mask & ~tf.cast(inputs[f"{self.side}padding_mask"], "bool")
        # Each position predicts the next; the first token, which moves to the end, is no generated one.
        score = self.log_probability(
            {**inputs, **outputs}, tf.roll(token_ids, -1, axis=1), tf.roll(generated, -1, axis=1)
        )
        return {**outputs, "score": score}

    def generate(self, text):
        inputs, truncated = self.prompt(text)
        outputs = self.generated(inputs)
        token_ids, mask = outputs[f"{self.side}token_ids"], outputs[f"{self.side}padding_mask"]
        return {
            "text": self.detokenize(token_ids, mask),
            "score": outputs["score"],
            "truncated": truncated,
        }

    def prompt(self, text):
        """What to generate from, and whether it was cut."""
        raise NotImplementedError

    def scored(self, inputs, packer, tokens, **kwargs):
        """The score of tokens, which a packer shifts by one place, given other inputs."""
        length = packer.sequence_length + 1
        token_ids, mask = packer(tokens, sequence_length=length, **kwargs)
        inputs = {
            **inputs,
            f"{self.side}token_ids": token_ids[:, :-1],
            f"{self.side}padding_mask": mask[:, :-1],
        }
        specials = sum(kwargs.get(f"add_{special}_value", True) for special in ("start", "end"))
        return {
            "score": self.log_probability(inputs, token_ids[:, 1:], mask[:, 1:]),
            "num_tokens": tf.reduce_sum(tf.cast(mask[:, 1:], "int32"), axis=1),
            "truncated": tokens.row_lengths() > length - specials,
        }

    def log_probability(self, inputs, targets, mask):
        """The sum of the log-probabilities of the targets that a mask shows, `(batch,)`."""
        logits = tf.cast(self.forward(inputs), "float32")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        return tf.reduce_sum(tf.where(mask, -losses, 0.0), axis=1)


class ServedCausalLM(ServedGenerator):
    """`generate` goes on from a text, and `score` is the log-probability of a text."""

    def text_signatures(self):
        return [self.text("generate", self.generate, "text"), self.text("score", self.score, "text")]

    def prompt(self, text):
        tokens, packer = self.tokens(text), self.preprocessor.packer
        token_ids, mask = packer(tokens, add_end_value=False)
        truncated = tokens.row_lengths() > packer.sequence_length - 1
        return {"token_ids": token_ids, "padding_mask": mask}, truncated

    def score(self, text):
        return self.scored(
            {},
            self.preprocessor.packer,
            self.tokens(text),
            add_start_value=self.preprocessor.add_start_token,
            add_end_value=self.preprocessor.add_end_token,
        )


class ServedSeq2SeqLM(ServedGenerator):
    """`generate` answers a text, and `score` is the log-probability of a target, given a source."""

    def text_signatures(self):
        return [
            self.text("generate", self.generate, "text"),
            self.text("score", self.score, "source", "target"),
        ]

    def prompt(self, text):
        inputs, truncated = self.source(text)
        nothing = tf.RaggedTensor.from_row_lengths(
            tf.zeros([0], inputs["encoder_token_ids"].dtype), tf.zeros_like(text, "int64")
        )
        token_ids, mask = self.preprocessor.decoder_packer(nothing, add_end_value=False)
        return {**inputs, "decoder_token_ids": token_ids, "decoder_padding_mask": mask}, truncated

    def source(self, text):
        """The inputs of the encoder, and whether the text was cut."""
        tokens, packer = self.tokens(text), self.preprocessor.encoder_packer
        token_ids, mask = packer(tokens)
        truncated = tokens.row_lengths() > packer.sequence_length - 2
        return {"encoder_token_ids": token_ids, "encoder_padding_mask": mask}, truncated

    def score(self, source, target):
        inputs, truncated = self.source(source)
        outputs = self.scored(inputs, self.preprocessor.decoder_packer, self.tokens(target))
        return {**outputs, "truncated": outputs["truncated"] | truncated}


#: What a model of a task can be asked. Other models are asked with tensors alone.
_TASKS = {
    models.SynthesizerTextClassifier: ServedTextClassifier,
    models.SynthesizerMaskedLM: ServedMaskedLM,
    models.SynthesizerCausalLM: ServedCausalLM,
    models.SynthesizerSeq2SeqLM: ServedSeq2SeqLM,
}


def served(model: keras.Model, labels: Sequence[str] | None = None) -> Served:
    """What can be asked of a model.

    Args:
        model: A task or backbone of `keras_synth.models`, or another built model with tensors as inputs.
        labels: The names of a classifier's classes.

    Raises:
        ValueError: If the model has no inputs, or `labels` do not fit to it.
    """
    kind = next((kind for task, kind in _TASKS.items() if isinstance(model, task)), Served)
    if labels is None:
        return kind(model)
    if kind is not ServedTextClassifier:
        raise ValueError(
            f"Only a SynthesizerTextClassifier has `labels`. Received: model={model!r}, labels={labels!r}"
        )
    return kind(model, labels)
