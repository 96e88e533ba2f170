"""The alignment of the Transformer, which compares every query with every key."""

import keras
from keras import ops

from keras_synth.alignments.alignment import Alignment
from keras_synth.core.checks import check_positive_int
from keras_synth.core.projections import Projecting


@keras.saving.register_keras_serializable("keras_synth")
class DotProductAlignment(Projecting, Alignment):
    """Scaled dot products of queries and keys, the "vanilla" attention of the paper.

    `B = Q K^T / sqrt(key_dim)`, [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762). `2 D^2`
    parameters for `D = H * key_dim`, and `2 D` biases. The only alignment that needs keys, and so the
    only one that keeps them in a cache.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of queries and keys for each head.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = DotProductAlignment(num_heads=2, key_dim=4)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "Q K^T / sqrt(key_dim)"
    reads = "all tokens"
    supports_cross_attention = True

    takes_scale = True

    def __init__(self, num_heads, key_dim, **kwargs):
        super().__init__(num_heads=num_heads, **kwargs)
        self.key_dim = check_positive_int(self, "key_dim", key_dim)

    def build(self, query_shape, keys_shape=None):
        shape = (self.num_heads, self.key_dim)
        self.query_dense = self.projection("btd,dhk->bthk", shape, "query")
        self.key_dense = self.projection("btd,dhk->bthk", shape, "key")
        self.query_dense.build(query_shape)
        self.key_dense.build(query_shape if keys_shape is None else keys_shape)

    def project_key(self, key, query=None):
        return self.key_dense(key)

    def init_cache(self, batch_size, length):
        shape = (batch_size, length, self.num_heads, self.key_dim)
        return ops.zeros(shape, dtype=self.compute_dtype)

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=1.0
    ):
        keys = self.project_key(query) if keys is None else keys
        scale = ops.cast(scale, keys.dtype) * self.key_dim**-0.5
        query = self.query_dense(query) * ops.reshape(scale, (-1, 1))
        if query.shape[1] == 1:
            return _logits_of_one_query(query, keys)
        return ops.einsum("bthk,bshk->bhts", query, keys)

    def get_config(self):
        return {**super().get_config(), "key_dim": self.key_dim}


def _logits_of_one_query(query, keys):
    """`Q K^T` with `T = 1`, without bringing the axes of the keys, a whole cache, into another order.

    Each head has a query as wide as the keys of all heads, with zeros for the others.
    """
    batch, length, heads, key_dim = ops.shape(keys)
    queries = ops.transpose(query, (0, 2, 1, 3)) * ops.eye(heads, dtype=query.dtype)[..., None]
    queries = ops.reshape(queries, (batch, heads, heads * key_dim))
    keys = ops.reshape(keys, (batch, length, heads * key_dim))
    return ops.matmul(queries, ops.transpose(keys, (0, 2, 1)))[:, :, None]
