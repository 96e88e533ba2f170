"""Alignments that each token predicts by itself, without looking at the other tokens."""

import math

import keras
from keras import ops

from keras_synth.alignments.alignment import Alignment
from keras_synth.core.checks import check_positive_int
from keras_synth.core.projections import Projecting
from keras_synth.core.slices import cut


class TokenAlignment(Projecting, Alignment):
    """Base class of the alignments that are functions of one token.

    That kernels start as `"glorot_uniform"` says was chosen by measurement, by
    `benchmarks/initializers.py`. Held-out loss of a language model of characters and of translation with
    `DenseAlignment`: 2.863 and 3.761; with `"he_normal"` 3.100 and 3.739; with `"lecun_normal"` 3.007 for
    the first.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: Keyword arguments of `Projecting` and `keras.layers.Layer`.
    """

    takes_scale = True

    def __init__(self, num_heads, key_dim, activation="relu", **kwargs):
        super().__init__(num_heads=num_heads, **kwargs)
        self.key_dim = check_positive_int(self, "key_dim", key_dim)
        self.activation = keras.activations.get(activation)

    def build(self, query_shape, keys_shape=None):
        self.hidden_dense = self.projection("btd,dhk->bthk", (self.num_heads, self.key_dim), "hidden")
        self.hidden_dense.build(query_shape)

    @property
    def hidden_dim(self):
        """The width of what `hidden` returns."""
        return self.key_dim

    def hidden(self, query):
        """The hidden layer, `relu(W1 x + b1)`, as `(batch, H, T, key_dim)`."""
        return ops.transpose(self.activation(self.hidden_dense(query)), (0, 2, 1, 3))

    def get_config(self):
        return {
            **super().get_config(),
            "key_dim": self.key_dim,
            "activation": keras.activations.serialize(self.activation),
        }


class RowAlignment(TokenAlignment):
    """Base class of those that predict a logit for each position of the sequence.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: Keyword arguments of `TokenAlignment`.
    """

    def __init__(self, num_heads, key_dim, max_length, activation="relu", **kwargs):
        super().__init__(num_heads, key_dim, activation, **kwargs)
        self.max_length = check_positive_int(self, "max_length", max_length)

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}


@keras.saving.register_keras_serializable("keras_synth")
class DenseAlignment(RowAlignment):
    """The dense synthesizer: each token predicts its row of logits with a two-layer network.

    `B_t = W2 relu(W1 x_t + b1) + b2` for each head, with `W1` from `D` to `key_dim` and `W2` from
    `key_dim` to `N`. Section 3.1.1 of [Tay et al., 2021](https://arxiv.org/abs/2005.00743).
    `D^2 + D N` parameters for `D = H * key_dim`, and `D + H N` biases. Only the columns that the
    sequence has are computed.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = DenseAlignment(num_heads=2, key_dim=4, max_length=16)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "W2 relu(W1 x)"

    def build(self, query_shape, keys_shape=None):
        super().build(query_shape, keys_shape)
        shape = (self.num_heads, self.hidden_dim, self.max_length)
        self.logits_kernel, self.logits_bias = self.add_head_weights("logits", shape)

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=1.0
    ):
        _, columns = self._lengths(query, key_length)
        return head_dense(self.hidden(query), self.logits_kernel, self.logits_bias, columns, scale)


@keras.saving.register_keras_serializable("keras_synth")
class FactorizedDenseAlignment(RowAlignment):
    """The factorized dense synthesizer: each token predicts two short factors of its row of logits.

    `B_t = tile(A(x_t)) * repeat(C(x_t))` for each head, where `A` has `a` entries, `C` has `b`, and
    `a b = N`: column `n` is `A[n mod a] * C[n // a]`, a pair of its own for every column. `A` and `C`
    are linear in a hidden layer `relu(W1 x_t + b1)` that they share. Section 3.1.3 of
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743). `D^2 + D (a + b)` parameters for
    `D = H * key_dim`, and `D + H (a + b)` biases.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        max_length: int. The longest sequence, `N`.
        factors: A pair of ints `(a, b)` with `a * b == max_length`. Defaults to the pair that is
            closest to a square, with `a <= b`.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If the product of `factors` is not `max_length`.

    Example:

    >>> import numpy as np
    >>> alignment = FactorizedDenseAlignment(num_heads=2, key_dim=4, max_length=16, factors=(2, 8))
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "tile(A(x)) * repeat(C(x))"
    resizes_by_name = False  # a name has the factors that are closest to each other

    def __init__(self, num_heads, key_dim, max_length, factors=None, activation="relu", **kwargs):
        super().__init__(num_heads, key_dim, max_length, activation, **kwargs)
        self.factors = _squarest(max_length) if factors is None else tuple(factors)
        sizes = [factor for factor in self.factors if isinstance(factor, int) and factor > 0]
        if len(sizes) != 2 or sizes != list(self.factors) or math.prod(sizes) != max_length:
            raise ValueError(
                f"`factors` of {type(self).__name__} '{self.name}' must be two positive integers "
                f"whose product is max_length={max_length}. Received: factors={factors}"
            )

    def build(self, query_shape, keys_shape=None):
        super().build(query_shape, keys_shape)
        a, b = self.factors
        self.tiled_kernel, self.tiled_bias = self.add_head_weights(
            "tiled", (self.num_heads, self.key_dim, a)
        )
        self.repeated_kernel, self.repeated_bias = self.add_head_weights(
            "repeated", (self.num_heads, self.key_dim, b)
        )

    def resize(self, max_length):
        # Only with the same first factor does a column stay the same pair of entries.
        a, _ = self.factors
        if max_length % a:
            raise ValueError(
                f"`max_length` must be a multiple of {a}, the first factor of {type(self).__name__} "
                f"'{self.name}'. Received: max_length={max_length}"
            )
        factors = (a, max_length // a)
        return self.from_config({**self.get_config(), "max_length": max_length, "factors": factors})

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=1.0
    ):
        _, columns = self._lengths(query, key_length)
        a, _ = self.factors
        blocks = (columns + a - 1) // a
        hidden = self.hidden(query)
        tiled = head_dense(hidden, self.tiled_kernel, self.tiled_bias, a, scale)
        repeated = head_dense(hidden, self.repeated_kernel, self.repeated_bias, blocks)
        # A matrix product of one term: its gradients are products too, where those of `*` are sums of
        # tensors as large as the logits.
        logits = ops.matmul(ops.expand_dims(repeated, -1), ops.expand_dims(tiled, -2))
        shape = ops.shape(logits)  # (batch, H, T, blocks, a)
        logits = ops.reshape(logits, (*shape[:3], blocks * a))
        return cut(logits, 0, columns, axis=-1)

    def get_config(self):
        return {**super().get_config(), "factors": list(self.factors)}


def head_dense(inputs, kernel, bias, columns, scale=1.0):
    """`(batch, H, T, k)` times `(H, k, columns)` plus bias: the first columns of a kernel per head.

    A plain matrix product, because einsum would bring the head axis to the front and then transpose
    the result, which is the largest tensor here. `scale`, of shape `(H, 1, 1)`, multiplies the weights.
    """
    if bias is not None:
        # As one more row of the kernel: to add it to the logits, and to add up its gradient over them,
        # would take longer than the product.
        kernel = ops.concatenate([kernel, bias], axis=1)
        inputs = ops.concatenate([inputs, ops.ones_like(inputs[..., :1])], axis=-1)
    kernel = cut(ops.cast(kernel, inputs.dtype), 0, columns, axis=-1)
    return ops.matmul(inputs, kernel * ops.cast(scale, inputs.dtype))


def _squarest(length):
    """The factors `(a, b)` of `length` that are closest to each other, `a <= b`."""
    a = next(a for a in range(math.isqrt(length), 0, -1) if length % a == 0)
    return a, length // a
