"""Whole models: functional KerasHub backbones, and KerasHub tasks on them."""

from keras_synth.models.beam_sampler import BeamSampler
from keras_synth.models.causal_lm import SynthesizerCausalLM
from keras_synth.models.causal_lm_preprocessor import SynthesizerCausalLMPreprocessor
from keras_synth.models.controls import control
from keras_synth.models.decoder_backbone import SynthesizerDecoderBackbone
from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone
from keras_synth.models.masked_lm import SynthesizerMaskedLM
from keras_synth.models.masked_lm_preprocessor import SynthesizerMaskedLMPreprocessor
from keras_synth.models.resizing import resize
from keras_synth.models.seq2seq_lm import SynthesizerSeq2SeqLM
from keras_synth.models.seq2seq_lm_preprocessor import SynthesizerSeq2SeqLMPreprocessor
from keras_synth.models.sizes import SIZES
from keras_synth.models.span_corruption_preprocessor import SynthesizerSpanCorruptionPreprocessor
from keras_synth.models.text_classifier import SynthesizerTextClassifier
from keras_synth.models.text_classifier_preprocessor import SynthesizerTextClassifierPreprocessor

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
