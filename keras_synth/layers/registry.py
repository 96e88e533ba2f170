"""The one place that turns what a block's `attention` says into a layer."""

import keras

from keras_synth.layers.baselines import DynamicConvolution, LightweightConvolution, LinearAttention
from keras_synth.layers.baselines.baseline import Baseline
from keras_synth.layers.synthetic_attention import SyntheticAttention

# name: how to make it from num_heads, key_dim, max_length and the other arguments of the block.
_BASELINES = {
    "lightweight_convolution": lambda heads, dim, length, block: LightweightConvolution(
        heads, dim, **block
    ),
    "dynamic_convolution": lambda heads, dim, length, block: DynamicConvolution(heads, dim, **block),
    "linear": lambda heads, dim, length, block: LinearAttention(heads, dim, length, **block),
}


def self_attention(num_heads, key_dim, attention, max_length=None, **kwargs):
    """Returns the self-attention layer that `attention` stands for.

    Args:
        num_heads: int. The number of attention heads.
        key_dim: int. The width of a head.
        attention: The name of a baseline: `"lightweight_convolution"`, `"dynamic_convolution"` or
            `"linear"`; the serialized config of one, which is taken as it is; or else the alignment of a
            `keras_synth.layers.SyntheticAttention`.
        max_length: int. The longest sequence.
        **kwargs: Keyword arguments of the layer.

    Raises:
        ValueError: If the name is unknown, `max_length` is missing, or the config is of a layer with
            another number of heads.
    """
    if isinstance(attention, str) and attention in _BASELINES:
        return _BASELINES[attention](num_heads, key_dim, max_length, kwargs)
    layer = keras.saving.deserialize_keras_object(attention) if isinstance(attention, dict) else attention
    if isinstance(layer, Baseline):
        if layer.num_heads != num_heads:
            raise ValueError(
                f"{type(layer).__name__} '{layer.name}' has num_heads={layer.num_heads}, but the block "
                f"has num_heads={num_heads}."
            )
        return layer
    return SyntheticAttention(num_heads, key_dim, alignment=layer, max_length=max_length, **kwargs)
