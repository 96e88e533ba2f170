"""What the paper compares the synthesizers with, apart from them: other stand-ins for self-attention."""

from keras_synth.layers.baselines.convolution import DynamicConvolution, LightweightConvolution
from keras_synth.layers.baselines.linear import LinearAttention

__all__ = ["DynamicConvolution", "LightweightConvolution", "LinearAttention"]
