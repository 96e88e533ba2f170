"""Strings to tokens, for classifiers."""

import keras
import keras_hub

from keras_synth.data.tokenizer import SynthesizerTokenizer
from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.sequence_length import FitsBackbone


class NoSegments:
    """Mixin: a KerasHub preprocessor for backbones that have no input `"segment_ids"`.

    Two sentences are told apart by the end token between them.
    """

    def call(self, x, y=None, sample_weight=None):
        outputs = super().call(x, y=y, sample_weight=sample_weight)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(outputs)
        x = {name: value for name, value in x.items() if name != "segment_ids"}
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerTextClassifierPreprocessor(
    NoSegments, FitsBackbone, keras_hub.models.TextClassifierPreprocessor
):
    """Tokenizes and packs strings for `keras_synth.models.SynthesizerTextClassifier`.

    Takes strings, or a tuple of two batches of strings, which are packed as
    `<s> first </s> second </s>`, see `keras_hub.models.TextClassifierPreprocessor`. Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end and pad tokens, such as
            `keras_synth.data.SynthesizerTokenizer`.
        sequence_length: int. The number of tokens of a text, or of two, with start and ends; at most the
            `max_length` of the backbone. Defaults to `512`.
        **kwargs: `truncate`, `"round_robin"` by default or `"waterfall"`, and keyword arguments of
            `keras_hub.models.Preprocessor`.
    """

    backbone_cls = SynthesizerEncoderBackbone
    tokenizer_cls = SynthesizerTokenizer
