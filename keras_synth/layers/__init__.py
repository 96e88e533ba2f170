"""What is done with alignments: attention layers, and the blocks of a Transformer built on them."""

from keras_synth.layers.attention import ATTENTIONS, check_attention
from keras_synth.layers.block import SynthesizerDecoder, SynthesizerEncoder
from keras_synth.layers.named import (
    DenseSynthesizer,
    DotProductAttention,
    FactorizedDenseSynthesizer,
    FactorizedRandomSynthesizer,
    FixedPatternAttention,
    MixtureSynthesizer,
    RandomSynthesizer,
)
from keras_synth.layers.synthetic_attention import SyntheticAttention

__all__ = [
    "ATTENTIONS",
    "DenseSynthesizer",
    "DotProductAttention",
    "FactorizedDenseSynthesizer",
    "FactorizedRandomSynthesizer",
    "FixedPatternAttention",
    "MixtureSynthesizer",
    "RandomSynthesizer",
    "SyntheticAttention",
    "SynthesizerDecoder",
    "SynthesizerEncoder",
    "check_attention",
]
