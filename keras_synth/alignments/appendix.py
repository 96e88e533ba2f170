"""The further synthesizing functions of the paper's first version: variants of the dense synthesizer."""

import keras
from keras import ops

from keras_synth.alignments.dense import DenseAlignment, head_dense
from keras_synth.core.checks import check_positive_int
from keras_synth.core.slices import windows


@keras.saving.register_keras_serializable("keras_synth")
class BottleneckAlignment(DenseAlignment):
    """A dense synthesizer with a narrow layer in its middle.

    `B_t = W3 relu(W2 relu(W1 x_t + b1) + b2) + b3` for each head, with `W1` from `D` to `key_dim`, `W2`
    from `key_dim` to `bottleneck_dim` and `W3` from there to `N`. One of the variants of the dense
    synthesizer in the appendix of the first version of
    [Tay et al., 2020](https://arxiv.org/abs/2005.00743v1); the width of the bottleneck and the activation
    after it are our choice. `D^2 + D m + H m N` parameters for
    `D = H * key_dim` and `m = bottleneck_dim`, and `D + H m + H N` biases.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the first hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        bottleneck_dim: int. The width of the narrow layer for each head. Defaults to a quarter of
            `key_dim`, and at least 1.
        activation: Activation of both hidden layers. Defaults to `"relu"`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = BottleneckAlignment(num_heads=2, key_dim=8, max_length=16, bottleneck_dim=3)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "W3 relu(W2 relu(W1 x))"

    def __init__(self, num_heads, key_dim, max_length, bottleneck_dim=None, activation="relu", **kwargs):
        super().__init__(num_heads, key_dim, max_length, activation=activation, **kwargs)
        bottleneck_dim = max(key_dim // 4, 1) if bottleneck_dim is None else bottleneck_dim
        self.bottleneck_dim = check_positive_int(self, "bottleneck_dim", bottleneck_dim)

    @property
    def hidden_dim(self):
        return self.bottleneck_dim

    def build(self, query_shape, keys_shape=None):
        super().build(query_shape, keys_shape)
        shape = (self.num_heads, self.key_dim, self.bottleneck_dim)
        self.bottleneck_kernel, self.bottleneck_bias = self.add_head_weights("bottleneck", shape)

    def hidden(self, query):
        hidden = super().hidden(query)
        narrow = head_dense(hidden, self.bottleneck_kernel, self.bottleneck_bias, self.bottleneck_dim)
        return self.activation(narrow)

    def get_config(self):
        return {**super().get_config(), "bottleneck_dim": self.bottleneck_dim}


@keras.saving.register_keras_serializable("keras_synth")
class GatedLinearAlignment(DenseAlignment):
    """A dense synthesizer whose hidden layer is a gated linear unit.

    `B_t = W2 ((W1 x_t + b1) * sigmoid(V x_t + c)) + b2` for each head, with `W1` and `V` from `D` to
    `key_dim` and `W2` from `key_dim` to `N`. One of the variants of the dense synthesizer in the appendix
    of the first version of [Tay et al., 2020](https://arxiv.org/abs/2005.00743v1), with the unit of
    [Dauphin et al., 2017](https://arxiv.org/abs/1612.08083). That the unit takes the place of the hidden
    layer is our reading. `2 D^2 + D N` parameters for `D = H * key_dim`, and `2 D + H N` biases.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        activation: Activation of the gate. Defaults to `"sigmoid"`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = GatedLinearAlignment(num_heads=2, key_dim=4, max_length=16)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "W2 (W1 x * sigmoid(V x))"

    def __init__(self, num_heads, key_dim, max_length, activation="sigmoid", **kwargs):
        super().__init__(num_heads, key_dim, max_length, activation=activation, **kwargs)

    def build(self, query_shape, keys_shape=None):
        super().build(query_shape, keys_shape)
        self.gate_dense = self.projection("btd,dhk->bthk", (self.num_heads, self.key_dim), "gate")
        self.gate_dense.build(query_shape)

    def hidden(self, query):
        gated = self.hidden_dense(query) * self.activation(self.gate_dense(query))
        return ops.transpose(gated, (0, 2, 1, 3))


@keras.saving.register_keras_serializable("keras_synth")
class ConvolutionAlignment(DenseAlignment):
    """A dense synthesizer whose hidden layer is a convolution over the tokens.

    `B_t = W2 relu(sum_j W1_j x_(t+j) + b1) + b2` for each head, where `j` runs over a window of
    `kernel_size` tokens: with the token in the middle, or at the end where attention is causal. One of
    the variants of the dense synthesizer in the appendix of the first version of
    [Tay et al., 2020](https://arxiv.org/abs/2005.00743v1); the size of the window is our
    choice. `kernel_size * D^2 + D N` parameters for `D = H * key_dim`, and `D + H N` biases.

    There are zeros where the window reaches over an end of the sequence or into its padding. Causality
    is what `use_causal_mask` says; an attention mask doesn't change the window. A cache holds the tokens.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        kernel_size: int. The number of tokens in the window. Defaults to `3`.
        **kwargs: `activation` of the hidden layer, by default `"relu"`; `use_bias` and the initializers,
            regularizers and constraints of `keras.layers.Dense`; and keyword arguments of
            `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = ConvolutionAlignment(num_heads=2, key_dim=4, max_length=16)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "W2 relu(conv(x))"
    reads = "neighbours"

    def __init__(self, num_heads, key_dim, max_length, kernel_size=3, **kwargs):
        super().__init__(num_heads, key_dim, max_length, **kwargs)
        self.kernel_size = check_positive_int(self, "kernel_size", kernel_size)

    def build(self, query_shape, keys_shape=None):
        self.token_dim = query_shape[-1]
        super().build((*query_shape[:-1], self.kernel_size * self.token_dim))

    def project_key(self, key, query=None):
        return ops.cast(key if query is None else query, self.compute_dtype)

    def init_cache(self, batch_size, length):
        if not self.built:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' must be built before `init_cache`, because its cache "
                "has the width of the tokens."
            )
        return ops.zeros((batch_size, length, self.token_dim), dtype=self.compute_dtype)

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=1.0
    ):
        tokens = self.project_key(query) if keys is None else keys
        if key_mask is not None:
            tokens = ops.where(key_mask[..., None], tokens, 0)
        length = ops.shape(query)[1]
        window = windows(tokens, start_index, length, self.kernel_size, causal)
        return super().call(ops.concatenate(window, axis=-1), key_length=key_length, scale=scale)

    def get_config(self):
        return {**super().get_config(), "kernel_size": self.kernel_size}


@keras.saving.register_keras_serializable("keras_synth")
class ConvolutionalBottleneckAlignment(ConvolutionAlignment, BottleneckAlignment):
    """A dense synthesizer with a convolution over the tokens and a narrow layer after it.

    `B_t = W3 relu(W2 relu(sum_j W1_j x_(t+j) + b1) + b2) + b3` for each head: `ConvolutionAlignment` and
    `BottleneckAlignment` in one. `kernel_size * D^2 + D m + H m N` parameters for `D = H * key_dim` and
    `m = bottleneck_dim`, and `D + H m + H N` biases.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the first hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        kernel_size: int. The number of tokens in the window. Defaults to `3`.
        bottleneck_dim: int. The width of the narrow layer for each head. Defaults to a quarter of
            `key_dim`, and at least 1.
        **kwargs: As in `ConvolutionAlignment`.

    Example:

    >>> import numpy as np
    >>> alignment = ConvolutionalBottleneckAlignment(num_heads=2, key_dim=4, max_length=16)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "W3 relu(W2 relu(conv(x)))"

    def __init__(self, num_heads, key_dim, max_length, kernel_size=3, bottleneck_dim=None, **kwargs):
        super().__init__(
            num_heads, key_dim, max_length, kernel_size=kernel_size, bottleneck_dim=bottleneck_dim, **kwargs
        )
