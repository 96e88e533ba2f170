"""Strings to texts with holes and what was in them, for the pre-training of encoder-decoders."""

import keras
import tensorflow as tf

from keras_synth.data.masking_tokenizer import MaskingTokenizer
from keras_synth.data.span_corruption import corrupt_spans
from keras_synth.models.seq2seq_lm_preprocessor import SynthesizerSeq2SeqLMPreprocessor


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerSpanCorruptionPreprocessor(SynthesizerSeq2SeqLMPreprocessor):
    """Tokenizes strings, takes random spans out of them, and packs what is left and what is to be found.

    With it, `keras_synth.models.SynthesizerSeq2SeqLM` is pre-trained by `fit` on plain strings as T5 is,
    see [Raffel et al., 2019](https://arxiv.org/abs/1910.10683): the source is the text with a sentinel
    token for each span, the target is the spans, each after its sentinel. For fine-tuning, the model gets
    a `keras_synth.models.SynthesizerSeq2SeqLMPreprocessor` with the same tokenizer. Longer text is cut
    before spans are taken out.

    Args:
        tokenizer: A `keras_synth.data.masking_tokenizer.MaskingTokenizer`, or another tokenizer with
            start, end and pad tokens that has `num_sentinels` and `sentinel_ids`.
        encoder_sequence_length: int. The number of tokens of the text, with start and end; at most the
            `max_length` of the backbone. Defaults to `512`.
        decoder_sequence_length: int. The number of tokens of the spans, with sentinels, start and end; at
            most the `max_length` of the backbone. Defaults to `128`.
        noise_density: float. The share of the tokens that are taken out. Defaults to `0.15`.
        mean_span_length: float. The mean length of a span. Defaults to `3.0`.
        seed: int. The seed of the spans. Defaults to `None`.
        **kwargs: Keyword arguments of `keras_hub.models.Preprocessor`.

    Raises:
        ValueError: If the tokenizer has no sentinels.
    """

    tokenizer_cls = MaskingTokenizer

    def __init__(
        self,
        tokenizer,
        encoder_sequence_length=512,
        decoder_sequence_length=128,
        noise_density=0.15,
        mean_span_length=3.0,
        seed=None,
        **kwargs,
    ):
        if not hasattr(tokenizer, "num_sentinels"):
            raise ValueError(
                f"The `tokenizer` of {type(self).__name__} must have sentinels, as "
                "`keras_synth.data.masking_tokenizer.MaskingTokenizer` has. "
                f"Received: tokenizer={tokenizer}"
            )
        super().__init__(tokenizer, encoder_sequence_length, decoder_sequence_length, **kwargs)
        self.noise_density = noise_density
        self.mean_span_length = mean_span_length
        self.seed = seed

    def call(self, x, y=None, sample_weight=None):
        x = tf.convert_to_tensor(x)
        tokens = self.tokenizer(tf.reshape(x, [-1]))
        if not isinstance(tokens, tf.RaggedTensor):  # outside of `tf.data` it returns lists
            tokens = tf.ragged.constant(tokens, "int32", ragged_rank=1)
        spec = tf.RaggedTensorSpec([None], tokens.dtype, ragged_rank=0)
        sources, targets = tf.map_fn(self._corrupt, tokens, fn_output_signature=(spec, spec))
        source, source_mask = self.encoder_packer(sources)
        target, target_mask = self.decoder_packer(targets, sequence_length=self.decoder_sequence_length + 1)
        outputs = (
            {
                "encoder_token_ids": source,
                "encoder_padding_mask": source_mask,
                "decoder_token_ids": target[:, :-1],
                "decoder_padding_mask": target_mask[:, :-1],
            },
            target[:, 1:],
            target_mask[:, 1:],
        )
        if x.shape.rank == 0:
            outputs = keras.tree.map_structure(lambda batch: batch[0], outputs)
        return outputs

    def _corrupt(self, token_ids):
        return corrupt_spans(
            token_ids[: self.encoder_sequence_length - 2],  # without start and end
            self.tokenizer.sentinel_ids,
            self.noise_density,
            self.mean_span_length,
            self.seed,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "noise_density": self.noise_density,
            "mean_span_length": self.mean_span_length,
            "seed": self.seed,
        }
