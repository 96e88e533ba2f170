"""The gates of average attention, which weigh what a token is and what attention brings."""

import keras
from keras import ops

from keras_synth.core.projections import Projecting


@keras.saving.register_keras_serializable("keras_synth")
class AttentionGate(Projecting):
    """`i * x + f * y` for the input `x` of attention and its output `y`, both of width `D`.

    The gates are `i, f = sigmoid(W [x; y] + b)`, with `W` from `2 D` to `2 D`, as in
    [Zhang et al., 2018](https://arxiv.org/abs/1805.00631). `4 D^2` parameters, and `2 D` biases.

    Args:
        **kwargs: Keyword arguments of `Projecting` and of `keras.layers.Layer`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, inputs_shape):
        width = inputs_shape[-1]
        self.gate_dense = self.projection("btd,de->bte", (2 * width,), "gate")
        self.gate_dense.build((*inputs_shape[:-1], 2 * width))

    def call(self, inputs, outputs):
        both = ops.concatenate([inputs, outputs], axis=-1)
        gated = ops.sigmoid(self.gate_dense(both)) * both
        return sum(ops.split(gated, 2, axis=-1))
