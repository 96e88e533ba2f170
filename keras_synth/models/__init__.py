"""Whole models: functional KerasHub backbones, and KerasHub tasks on them."""

from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone
from keras_synth.models.seq2seq_lm import SynthesizerSeq2SeqLM
from keras_synth.models.seq2seq_lm_preprocessor import SynthesizerSeq2SeqLMPreprocessor

__all__ = [
    "SynthesizerEncoderDecoderBackbone",
    "SynthesizerSeq2SeqLM",
    "SynthesizerSeq2SeqLMPreprocessor",
]
