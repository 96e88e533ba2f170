"""How the alignment logits are made: one layer for each row of the paper's Table 1."""

from keras_synth.alignments.alignment import Alignment
from keras_synth.alignments.dense import DenseAlignment, FactorizedDenseAlignment
from keras_synth.alignments.dot_product import DotProductAlignment
from keras_synth.alignments.mixture import MixtureAlignment
from keras_synth.alignments.random import FactorizedRandomAlignment, RandomAlignment
from keras_synth.alignments.registry import NAMES, get, serialize

__all__ = [
    "NAMES",
    "Alignment",
    "DenseAlignment",
    "DotProductAlignment",
    "FactorizedDenseAlignment",
    "FactorizedRandomAlignment",
    "MixtureAlignment",
    "RandomAlignment",
    "get",
    "serialize",
]
