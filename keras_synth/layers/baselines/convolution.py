"""Convolutions in the place of self-attention."""

import keras
from keras import ops

from keras_synth.core.checks import check_positive_int
from keras_synth.core.initializers import ProjectionInitializer, fork
from keras_synth.core.slices import reach, windows
from keras_synth.layers.baselines.baseline import Baseline


@keras.saving.register_keras_serializable("keras_synth")
class LightweightConvolution(Baseline):
    """A depthwise convolution whose kernel is a softmax, one for each head.

    `Y_t = sum_j softmax(w)_j V_(t+j)` for each head, where `V = (W1 X + b1) * sigmoid(W2 X + b2)` and `j`
    runs over a window of `kernel_size` tokens: with the token in the middle, or at the end if
    `use_causal_mask`. There are zeros where the window reaches over an end of the sequence or into its
    padding, as in the paper: the other weights stay what they are. `dropout` drops entries of the
    normalized kernel, for the whole batch. LightConv of
    [Wu et al., 2019](https://arxiv.org/abs/1901.10430), with its gated linear unit before and its
    projection after the convolution. `3 D^2 + H kernel_size` parameters for `D = H * key_dim`, and `3 D`
    biases. Decodes with a cache of `V`.

    Args:
        num_heads: int. The number of heads, `H`, which have a kernel each.
        key_dim: int. The width of a head.
        kernel_size: int. The number of tokens in the window. Defaults to `7`. The paper's grow from 3 in
            the first block to 31 in the last ones.
        **kwargs: `dropout`, the dropout of the kernel; `seed`; `use_bias` and the initializers,
            regularizers and constraints of `keras.layers.MultiHeadAttention`; and keyword arguments of
            `keras.layers.Layer`.

    Call arguments:
        As in `keras_synth.layers.SyntheticAttention`. It is `value` that is convolved. `attention_mask`
        can only hide padding. Scores are the weights of the window, `(batch, H, T, S)`.

    Raises:
        ValueError: If an argument is not as described; in a call, if `value` has another length than
            `query`, or a mask has the wrong shape.

    Example:

    >>> import numpy as np
    >>> LightweightConvolution(num_heads=2, key_dim=4, kernel_size=3)(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    def __init__(self, num_heads, key_dim, kernel_size=7, **kwargs):
        super().__init__(num_heads, key_dim, **kwargs)
        self.kernel_size = check_positive_int(self, "kernel_size", kernel_size)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        heads = (self.num_heads, self.value_dim)
        self.value_dense = self.projection("btd,dhv->bthv", heads, "value")
        self.value_dense.build(value_shape)
        self.gate_dense = self.projection("btd,dhv->bthv", heads, "gate")
        self.gate_dense.build(value_shape)
        shape = (*self.kernel_inputs, self.num_heads, self.kernel_size)
        matrix = ProjectionInitializer(
            fork(self.kernel_initializer, "kernel"), input_rank=max(len(self.kernel_inputs), 1)
        )
        self.kernel = self.add_kernel("kernel", shape, matrix)
        super().build(query_shape)

    @property
    def kernel_inputs(self):
        """The leading axes of the kernel's weight: those of what the kernel is predicted from."""
        return ()

    def kernel_logits(self, tokens):
        """The kernels before softmax, of a shape that broadcasts to `(batch, T, H, kernel_size)`."""
        return self.kernel

    def project(self, query, value, key):
        return {"value": self.value_dense(value) * ops.sigmoid(self.gate_dense(value))}

    def mix_values(self, query, projected, start_index, causal, training):
        values = projected["value"]
        batch, length = ops.shape(query)[:2]
        taps = windows(values, start_index, length, self.kernel_size, causal)
        logits = self.kernel_logits(taps[reach(self.kernel_size, causal)])
        weights = ops.softmax(ops.cast(logits, keras.backend.result_type(logits.dtype, "float32")))
        weights = ops.cast(weights, values.dtype)
        kernels = self.dropout_layer(weights, training=training)
        output = sum(kernels[..., i, None] * tap for i, tap in enumerate(taps))

        def scores():
            each = ops.broadcast_to(weights, (batch, length, self.num_heads, self.kernel_size))
            rows = start_index + ops.arange(length, dtype="int32")[:, None]
            columns = ops.arange(ops.shape(values)[1], dtype="int32")
            places = columns - rows + reach(self.kernel_size, causal)
            band = places[..., None] == ops.arange(self.kernel_size, dtype="int32")  # (T, S, kernel_size)
            return ops.einsum("bthk,tsk->bhts", each, ops.cast(band, each.dtype))

        return output, scores

    def get_config(self):
        return {**super().get_config(), "kernel_size": self.kernel_size}


@keras.saving.register_keras_serializable("keras_synth")
class DynamicConvolution(LightweightConvolution):
    """A lightweight convolution whose kernel each token predicts for itself.

    `Y_t = sum_j softmax(W V_t)_j V_(t+j)` for each head, where `W` maps the `D` entries of a token to the
    `kernel_size` entries of each head's kernel, without a bias. All else is as in
    `LightweightConvolution`; `dropout` drops entries of each token's kernels. DynamicConv of
    [Wu et al., 2019](https://arxiv.org/abs/1901.10430). `3 D^2 + D H kernel_size` parameters for
    `D = H * key_dim`, and `3 D` biases.

    Args:
        num_heads: int. The number of heads, `H`, which have a kernel each.
        key_dim: int. The width of a head.
        kernel_size: int. The number of tokens in the window. Defaults to `7`.
        **kwargs: As in `LightweightConvolution`.

    Example:

    >>> import numpy as np
    >>> DynamicConvolution(num_heads=2, key_dim=4, kernel_size=3)(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    @property
    def kernel_inputs(self):
        return (self.num_heads, self.value_dim)

    def kernel_logits(self, tokens):
        return ops.einsum("bthv,hvgk->btgk", tokens, self.kernel)
