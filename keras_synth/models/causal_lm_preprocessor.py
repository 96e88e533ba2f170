"""Strings to tokens and back, for language models."""

import keras
import keras_hub

from keras_synth.data.tokenizer import SynthesizerTokenizer
from keras_synth.models.decoder_backbone import SynthesizerDecoderBackbone
from keras_synth.models.sequence_length import FitsBackbone


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerCausalLMPreprocessor(FitsBackbone, keras_hub.models.CausalLMPreprocessor):
    """Tokenizes and packs strings for `keras_synth.models.SynthesizerCausalLM`.

    Takes strings, see `keras_hub.models.CausalLMPreprocessor`. Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end and pad tokens, such as
            `keras_synth.data.SynthesizerTokenizer`.
        sequence_length: int. The number of tokens of a text, with start and end; at most the `max_length`
            of the backbone. Defaults to `1024`.
        **kwargs: `add_start_token` and `add_end_token`, both `True` by default, and keyword arguments of
            `keras_hub.models.Preprocessor`.
    """

    backbone_cls = SynthesizerDecoderBackbone
    tokenizer_cls = SynthesizerTokenizer
