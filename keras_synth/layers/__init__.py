"""What is done with alignments: attention layers, and the blocks of a Transformer built on them."""

from keras_synth.layers.attention import ATTENTIONS, check_attention
from keras_synth.layers.block import SynthesizerBlock
from keras_synth.layers.decoder import SynthesizerDecoder
from keras_synth.layers.encoder import SynthesizerEncoder
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
    "SynthesizerBlock",
    "SynthesizerDecoder",
    "SynthesizerEncoder",
    "check_attention",
]
