"""Whole models: functional KerasHub backbones, and KerasHub tasks on them."""

from keras_synth.models.beam_sampler import BeamSampler
from keras_synth.models.causal_lm import SynthesizerCausalLM
from keras_synth.models.decoder_backbone import SynthesizerDecoderBackbone
from keras_synth.models.derived import control, resize
from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone
from keras_synth.models.masked_lm import SynthesizerMaskedLM
from keras_synth.models.preprocessors import (
    SynthesizerCausalLMPreprocessor,
    SynthesizerMaskedLMPreprocessor,
    SynthesizerSeq2SeqLMPreprocessor,
    SynthesizerSpanCorruptionPreprocessor,
    SynthesizerTextClassifierPreprocessor,
)
from keras_synth.models.seq2seq_lm import SynthesizerSeq2SeqLM
from keras_synth.models.sizes import SIZES
from keras_synth.models.text_classifier import SynthesizerTextClassifier

__all__ = [
    "SIZES",
    "BeamSampler",
    "SynthesizerCausalLM",
    "SynthesizerCausalLMPreprocessor",
    "SynthesizerDecoderBackbone",
    "SynthesizerEncoderBackbone",
    "SynthesizerEncoderDecoderBackbone",
    "SynthesizerMaskedLM",
    "SynthesizerMaskedLMPreprocessor",
    "SynthesizerSeq2SeqLM",
    "SynthesizerSeq2SeqLMPreprocessor",
    "SynthesizerSpanCorruptionPreprocessor",
    "SynthesizerTextClassifier",
    "SynthesizerTextClassifierPreprocessor",
    "control",
    "resize",
]
