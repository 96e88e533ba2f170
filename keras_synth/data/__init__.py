"""Text to batches: pairs of texts, a tokenizer for them, and batches with little padding."""

from keras_synth.data.batches import token_batches
from keras_synth.data.dates import date_pairs
from keras_synth.data.masking_tokenizer import MaskingTokenizer
from keras_synth.data.pairs import Pairs, load_pairs
from keras_synth.data.span_corruption import corrupt_spans
from keras_synth.data.tokenizer import SynthesizerTokenizer, train_tokenizer

__all__ = [
    "MaskingTokenizer",
    "Pairs",
    "SynthesizerTokenizer",
    "corrupt_spans",
    "date_pairs",
    "load_pairs",
    "token_batches",
    "train_tokenizer",
]
