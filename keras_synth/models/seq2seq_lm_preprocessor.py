"""Strings to tokens and back, for sequence-to-sequence models."""

import keras
import keras_hub

from keras_synth.data.tokenizer import SynthesizerTokenizer
from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone
from keras_synth.models.sequence_length import FitsBackbone


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerSeq2SeqLMPreprocessor(FitsBackbone, keras_hub.models.Seq2SeqLMPreprocessor):
    """Tokenizes and packs pairs of strings for `keras_synth.models.SynthesizerSeq2SeqLM`.

    Takes a dict with `"encoder_text"` and `"decoder_text"`, see
    `keras_hub.models.Seq2SeqLMPreprocessor`. Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end and pad tokens, such as
            `keras_synth.data.SynthesizerTokenizer`.
        encoder_sequence_length: int. The number of tokens of the source, with start and end; at most the
            `max_length` of the backbone. Defaults to `1024`.
        decoder_sequence_length: int. The number of tokens of the target, with start and end; at most the
            `max_length` of the backbone. Defaults to `1024`.
        **kwargs: Keyword arguments of `keras_hub.models.Preprocessor`.
    """

    backbone_cls = SynthesizerEncoderDecoderBackbone
    tokenizer_cls = SynthesizerTokenizer
    length_arguments = ("encoder_sequence_length", "decoder_sequence_length")

    def get_config(self):
        return {
            **super().get_config(),
            "encoder_sequence_length": self.encoder_sequence_length,
            "decoder_sequence_length": self.decoder_sequence_length,
        }
