"""How the alignment logits are made: one layer for each row of the paper's Table 1, and for later work."""

from keras_synth.alignments.alignment import Alignment
from keras_synth.alignments.appendix import (
    BottleneckAlignment,
    ConvolutionalBottleneckAlignment,
    ConvolutionAlignment,
    GatedLinearAlignment,
)
from keras_synth.alignments.dense import DenseAlignment, FactorizedDenseAlignment
from keras_synth.alignments.descriptions import describe
from keras_synth.alignments.distance import (
    AverageAlignment,
    DecayAlignment,
    RelativeAlignment,
    RelativeKernelAlignment,
)
from keras_synth.alignments.dot_product import DotProductAlignment
from keras_synth.alignments.fixed_pattern import PATTERNS, FixedPatternAlignment
from keras_synth.alignments.mixture import HeadwiseAlignment, MixtureAlignment
from keras_synth.alignments.random import FactorizedRandomAlignment, RandomAlignment, RoutedRandomAlignment
from keras_synth.alignments.registry import NAMES, get, serialize
from keras_synth.alignments.relative_bias import RelativeBiasAlignment, SumAlignment
from keras_synth.alignments.window import GaussianAlignment, LocalDenseAlignment

__all__ = [
    "NAMES",
    "PATTERNS",
    "Alignment",
    "AverageAlignment",
    "BottleneckAlignment",
    "ConvolutionAlignment",
    "ConvolutionalBottleneckAlignment",
    "DecayAlignment",
    "DenseAlignment",
    "DotProductAlignment",
    "FactorizedDenseAlignment",
    "FactorizedRandomAlignment",
    "FixedPatternAlignment",
    "GatedLinearAlignment",
    "GaussianAlignment",
    "HeadwiseAlignment",
    "LocalDenseAlignment",
    "MixtureAlignment",
    "RandomAlignment",
    "RelativeAlignment",
    "RelativeBiasAlignment",
    "RelativeKernelAlignment",
    "RoutedRandomAlignment",
    "SumAlignment",
    "describe",
    "get",
    "serialize",
]
