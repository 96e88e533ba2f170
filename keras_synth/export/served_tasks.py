"""What the tasks of `keras_synth.models` can be asked, if they have a preprocessor: signatures of texts."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_synth import models
from keras_synth.export.packing import pack
from keras_synth.export.signatures import ServedModel, Signature
from keras_synth.models.text_classifier import check_labels


class ServedTask(ServedModel):
    """A task: with a preprocessor it is asked with texts too."""

    layer_names = ("logits",)

    def __init__(self, model):
        super().__init__(model)
        self.preprocessor = model.preprocessor
        if self.preprocessor is not None and not self.preprocessor.built:
            self.preprocessor.build(None)

    def list_signatures(self):
        return [
            *([] if self.preprocessor is None else self.list_text_signatures()),
            *super().list_signatures(),
        ]

    def list_text_signatures(self):
        """Lists those with texts as inputs."""
        raise NotImplementedError

    def tokenize(self, text):
        return self.preprocessor.tokenizer(text)

    def detokenize(self, token_ids, mask):
        """Makes text of the tokens that a mask shows, without special ones."""
        # `generate_postprocess` of a language model's preprocessor needs NumPy arrays.
        for special in self.preprocessor.tokenizer.special_token_ids:
            mask = mask & (token_ids != special)
        return self.preprocessor.tokenizer.detokenize(tf.ragged.boolean_mask(token_ids, mask))


class ServedTextClassifier(ServedTask):
    """`classify` a text, or with `classify_pair` two texts: the best label, and the scores of all.

    Scores are probabilities: the softmax of logits, or what the model's activation makes of them. A model
    with a single class returns its output as the `score`, without a label.
    """

    def __init__(self, model, labels=None):
        super().__init__(model)
        if labels is None:
            labels = model.labels or list(map(str, range(model.num_classes)))
        self.labels = check_labels(labels, model.num_classes)

    def list_text_signatures(self):
        return [
            Signature.of_texts("classify", self.classify, "text"),
            Signature.of_texts("classify_pair", self.classify_pair, "text", "second_text"),
        ]

    def classify(self, text):
        return self.classify_segments(self.tokenize(text))

    def classify_pair(self, text, second_text):
        return self.classify_segments(self.tokenize(text), self.tokenize(second_text))

    def classify_segments(self, *segments):
        token_ids, mask, truncated = pack(self.preprocessor.packer, *segments)
        outputs = tf.cast(self.compute({"token_ids": token_ids, "padding_mask": mask}), "float32")
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


class ServedMaskedLM(ServedTask):
    """`fill_mask`: puts the most probable token in place of each mask token in a text."""

    def list_text_signatures(self):
        return [Signature.of_texts("fill_mask", self.fill_mask, "text")]

    def _compute(self, inputs):
        # With a row at least, because Keras can't gather from an empty batch.
        batch_size = tf.shape(inputs["token_ids"])[0]
        rows = tf.maximum(batch_size, 1)
        inputs = {name: tf.pad(ids, [(0, rows - batch_size), (0, 0)]) for name, ids in inputs.items()}
        return super()._compute(inputs)[:batch_size]

    def fill_mask(self, text):
        token_ids, mask, truncated = pack(self.preprocessor.packer, self.tokenize(text))
        is_mask = token_ids == self.preprocessor.tokenizer.mask_token_id
        everywhere = tf.broadcast_to(tf.range(tf.shape(token_ids)[1]), tf.shape(token_ids))
        positions = tf.ragged.boolean_mask(everywhere, is_mask)
        logits = self.compute(
            {"token_ids": token_ids, "padding_mask": mask, "mask_positions": positions.to_tensor()}
        )
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
            "truncated": truncated,
        }

    def tokenize(self, text):
        # No text yields the id of a mask, so texts are tokenized from one mask to the next.
        mask = self.preprocessor.tokenizer.mask_token
        parts = tf.strings.split(text, mask)
        tokens = super().tokenize(parts.flat_values)
        masks = tf.fill([tokens.nrows(), 1], self.preprocessor.tokenizer.mask_token_id)
        tokens = tf.concat([tokens, tf.cast(masks, tokens.dtype)], axis=1)
        return parts.with_flat_values(tokens).merge_dims(1, 2)[:, :-1]  # no mask follows the last part


class ServedGenerator(ServedTask):
    """`generate` and `generate_tokens`: what the model generates, and the log-probability of that.

    The score is the sum over what was generated, the end included: the model's own probabilities,
    whichever sampler chose the tokens.
    """

    def __init__(self, model):
        super().__init__(model)
        self.token_ids, self.mask = f"{model.side}token_ids", f"{model.side}padding_mask"
        self.continue_prompt = self.make_graph(self._continue_prompt)

    def list_signatures(self):
        signatures = super().list_signatures()
        if self.preprocessor is not None:
            if getattr(self.model.sampler, "return_all_beams", False):
                raise ValueError(
                    "The `sampler` of an export must return one answer to each prompt, its best beam. "
                    f"Received: sampler={type(self.model.sampler).__name__}(return_all_beams=True)"
                )
            signatures.append(Signature("generate_tokens", self.input_specs, self.generate_tokens))
        return signatures

    def generate_tokens(self, **inputs):
        inputs = self.check_lengths(inputs)
        begun = tf.debugging.assert_positive(
            tf.shape(inputs[self.token_ids])[1],
            f"`{self.token_ids}` must be sequences of at least one token, with which generation begins.",
        )
        with tf.control_dependencies([begun]):
            outputs = self.continue_prompt(inputs)
        # As `predict` takes them.
        return {**outputs, self.mask: tf.cast(outputs[self.mask], inputs[self.mask].dtype)}

    def generate(self, text):
        inputs, truncated = self.make_prompt(text)
        outputs = self.continue_prompt(inputs)
        return {
            "text": self.detokenize(outputs[self.token_ids], outputs[self.mask]),
            "score": outputs["score"],
            "truncated": truncated,
        }

    def make_prompt(self, text):
        """Makes what to generate from, and says which texts were cut."""
        raise NotImplementedError

    def score_tokens(self, inputs, packer, tokens, **options):
        """Scores tokens, which a packer shifts by one place, given other inputs."""
        token_ids, mask, truncated = pack(
            packer, tokens, sequence_length=packer.sequence_length + 1, **options
        )
        inputs = {**inputs, self.token_ids: token_ids[:, :-1], self.mask: mask[:, :-1]}
        return {
            "score": self.sum_log_probabilities(inputs, token_ids[:, 1:], mask[:, 1:]),
            "num_tokens": tf.reduce_sum(tf.cast(mask[:, 1:], "int32"), axis=1),
            "truncated": truncated,
        }

    def sum_log_probabilities(self, inputs, targets, mask):
        """Sums the log-probabilities of the targets that a mask shows, `(batch,)`."""
        logits = tf.cast(self.compute(inputs), "float32")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        return tf.reduce_sum(tf.where(mask, -losses, 0.0), axis=1)

    def _continue_prompt(self, inputs):
        outputs = self.model.generate_step(inputs, (self.preprocessor.tokenizer.end_token_id,))
        generated = outputs[self.mask] & ~tf.cast(inputs[self.mask], "bool")
        # Each position predicts the next; the first token, which moves to the end, is no generated one.
        targets = tf.roll(outputs[self.token_ids], -1, axis=1)
        score = self.sum_log_probabilities({**inputs, **outputs}, targets, tf.roll(generated, -1, axis=1))
        return {**outputs, "score": score}


class ServedCausalLM(ServedGenerator):
    """`generate` goes on from a text, and `score` is the log-probability of a text."""

    def list_text_signatures(self):
        return [
            Signature.of_texts("generate", self.generate, "text"),
            Signature.of_texts("score", self.score, "text"),
        ]

    def make_prompt(self, text):
        token_ids, mask, truncated = pack(
            self.preprocessor.packer, self.tokenize(text), add_end_value=False
        )
        return {"token_ids": token_ids, "padding_mask": mask}, truncated

    def score(self, text):
        return self.score_tokens(
            {},
            self.preprocessor.packer,
            self.tokenize(text),
            add_start_value=self.preprocessor.add_start_token,
            add_end_value=self.preprocessor.add_end_token,
        )


class ServedSeq2SeqLM(ServedGenerator):
    """`generate` answers a text, and `score` is the log-probability of a target, given a source."""

    def list_text_signatures(self):
        return [
            Signature.of_texts("generate", self.generate, "text"),
            Signature.of_texts("score", self.score, "source", "target"),
        ]

    def make_prompt(self, text):
        inputs, truncated = self.pack_source(text)
        nothing = tf.RaggedTensor.from_row_lengths(
            tf.zeros([0], inputs["encoder_token_ids"].dtype), tf.zeros_like(text, "int64")
        )
        token_ids, mask, _ = pack(self.preprocessor.decoder_packer, nothing, add_end_value=False)
        return {**inputs, "decoder_token_ids": token_ids, "decoder_padding_mask": mask}, truncated

    def pack_source(self, text):
        """Makes the inputs of the encoder, and says which texts were cut."""
        token_ids, mask, truncated = pack(self.preprocessor.encoder_packer, self.tokenize(text))
        return {"encoder_token_ids": token_ids, "encoder_padding_mask": mask}, truncated

    def score(self, source, target):
        inputs, truncated = self.pack_source(source)
        outputs = self.score_tokens(inputs, self.preprocessor.decoder_packer, self.tokenize(target))
        return {**outputs, "truncated": outputs["truncated"] | truncated}


#: What a model of a task can be asked. Other models are asked with tensors alone.
_SERVED = {
    models.SynthesizerTextClassifier: ServedTextClassifier,
    models.SynthesizerMaskedLM: ServedMaskedLM,
    models.SynthesizerCausalLM: ServedCausalLM,
    models.SynthesizerSeq2SeqLM: ServedSeq2SeqLM,
}


def serve(model: keras.Model, labels: Sequence[str] | None = None) -> ServedModel:
    """Makes of a model what can be asked.

    Args:
        model: A task or backbone of `keras_synth.models`, or another built model with tensors as inputs.
        labels: The names of a classifier's classes.

    Raises:
        ValueError: If the model has no inputs, or `labels` do not fit to it.
    """
    cls = next((served for task, served in _SERVED.items() if isinstance(model, task)), ServedModel)
    if labels is None:
        return cls(model)
    if cls is not ServedTextClassifier:
        raise ValueError(
            f"Only a SynthesizerTextClassifier has `labels`. Received: model={model!r}, labels={labels!r}"
        )
    return cls(model, labels)
