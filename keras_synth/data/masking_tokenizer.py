"""A tokenizer with special tokens for what was taken out of a text."""

import keras
from sentencepiece import sentencepiece_model_pb2

from keras_synth.data.tokenizer import SynthesizerTokenizer

MASK = "<mask>"
SENTINEL = "<extra_id_{}>"


@keras.saving.register_keras_serializable("keras_synth")
class MaskingTokenizer(SynthesizerTokenizer):
    """A `SynthesizerTokenizer` with more special tokens: `<mask>` and sentinels.

    `<mask>` is for masked language models, and the sentinels `<extra_id_0>`, `<extra_id_1>` and so on are
    for span corruption. Those that the vocabulary lacks are added at its end, so that every other token
    keeps its id. A special token that stands in a text is split like any other text: no text yields its
    id. Detokenizing drops them.

    Args:
        proto: As in `SynthesizerTokenizer`, whose `proto` it may be.
        num_sentinels: int. The number of sentinels. Defaults to `100`.
        **kwargs: The arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Example:

    >>> from keras_synth.data import train_tokenizer
    >>> tokenizer = train_tokenizer(["the quick brown fox"] * 9, vocabulary_size=300)
    >>> masking = MaskingTokenizer(tokenizer.proto, num_sentinels=2)
    >>> masking.vocabulary_size() - tokenizer.vocabulary_size()
    3
    """

    mask_token = MASK

    def __init__(self, proto=None, num_sentinels=100, **kwargs):
        self.num_sentinels = num_sentinels
        super().__init__(proto=proto, **kwargs)

    @property
    def sentinel_ids(self):
        """The ids of the sentinels, from the first one on."""
        return [self.token_to_id(SENTINEL.format(i)) for i in range(self.num_sentinels)]

    def set_proto(self, proto):
        super().set_proto(proto)
        if proto is None:
            return
        known = set(self.get_vocabulary())
        added = [MASK, *map(SENTINEL.format, range(self.num_sentinels))]
        super().set_proto(_add_pieces(self.proto, [piece for piece in added if piece not in known]))
        # Special only now, because no vocabulary may lack a special token.
        if "mask_token" not in self._special_token_attrs:
            self._add_special_token(MASK, "mask_token")

    def get_config(self):
        return {**super().get_config(), "num_sentinels": self.num_sentinels}


def _add_pieces(proto, pieces):
    """A SentencePiece model with further pieces that no text yields."""
    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    for piece in pieces:
        model.pieces.add(piece=piece, score=0.0, type=model.SentencePiece.CONTROL)
    return model.SerializeToString()
