"""Strings to tokens of which some are masked."""

import keras
import keras_hub

from keras_synth.data.masking_tokenizer import MaskingTokenizer
from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.sequence_length import FitsBackbone
from keras_synth.models.text_classifier_preprocessor import NoSegments


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerMaskedLMPreprocessor(NoSegments, FitsBackbone, keras_hub.models.MaskedLMPreprocessor):
    """Tokenizes, packs and masks strings for `keras_synth.models.SynthesizerMaskedLM`.

    Takes strings, or a tuple of two batches of strings, see `keras_hub.models.MaskedLMPreprocessor`.
    Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end, pad and mask tokens, such as
            `keras_synth.data.masking_tokenizer.MaskingTokenizer`.
        sequence_length: int. The number of tokens of a text, or of two, with start and ends; at most the
            `max_length` of the backbone. Defaults to `512`.
        **kwargs: `truncate`, `mask_selection_rate`, `mask_selection_length`, `mask_token_rate` and
            `random_token_rate` of `keras_hub.models.MaskedLMPreprocessor`, and keyword arguments of
            `keras_hub.models.Preprocessor`.

    Raises:
        ValueError: If the tokenizer has no mask token.
    """

    backbone_cls = SynthesizerEncoderBackbone
    tokenizer_cls = MaskingTokenizer

    def __init__(self, tokenizer, sequence_length=512, **kwargs):
        if not hasattr(tokenizer, "mask_token"):
            raise ValueError(
                f"The `tokenizer` of {type(self).__name__} must have a mask token, as "
                "`keras_synth.data.masking_tokenizer.MaskingTokenizer` has. "
                f"Received: tokenizer={tokenizer}"
            )
        super().__init__(tokenizer, sequence_length, **kwargs)
