"""Tiny models and random tokens for them."""

import numpy as np

from keras_synth import alignments, models

SIZES = dict(
    vocabulary_size=29, num_layers=1, num_heads=2, hidden_dim=14, intermediate_dim=19, max_length=12
)
#: What a decoder can attend with.
ATTENTIONS = (
    *alignments.NAMES,
    "random+dense+dot_product",
    "lightweight_convolution",
    "dynamic_convolution",
)
ENCODER, DECODER, BOTH = (
    models.SynthesizerEncoderBackbone,
    models.SynthesizerDecoderBackbone,
    models.SynthesizerEncoderDecoderBackbone,
)
#: Options that differ from the defaults, all at once and in pairs that exclude each other.
OPTIONS = [
    dict(normalize_first=False, activation="gelu"),
    dict(
        normalization="rms_norm",
        use_gated_activation=True,
        activation="gelu",
        use_bias=False,
        positions=None,
    ),
    dict(positions="relative_bias"),
    dict(positions="learned", tie_word_embeddings=False, layer_norm_epsilon=1e-3),
]


def tokens(lengths, width=None, side="", seed=5):
    """Random tokens of the given lengths, padded on the right."""
    mask = np.arange(width or max(lengths)) < np.array(lengths)[:, None]
    token_ids = np.random.default_rng(seed).integers(4, SIZES["vocabulary_size"], mask.shape)
    return {f"{side}token_ids": token_ids * mask, f"{side}padding_mask": mask}


def inputs(cls, lengths, width=None):
    """Random inputs of a backbone; those of an encoder-decoder have sources of other lengths."""
    if cls is not BOTH:
        return tokens(lengths, width)
    source = tokens([3 + 2 * i for i in range(len(lengths))], 11, "encoder_", seed=6)
    return {**source, **tokens(lengths, width, "decoder_")}


def output(backbone, x):
    """What the last stack of a backbone returns."""
    result = backbone(x)
    return np.array(result["decoder_sequence_output"] if isinstance(result, dict) else result)


def language_model(cls, **kwargs):
    """The task that generates with a backbone of this class."""
    backbone = cls(**{**SIZES, **kwargs})
    task = models.SynthesizerSeq2SeqLM if cls is BOTH else models.SynthesizerCausalLM
    model = task(backbone)
    # Eagerly, because most models generate once.
    model.compile(sampler="greedy", run_eagerly=True)
    return model
