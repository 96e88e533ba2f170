"""Attention whose cost is linear in the length of the sequence."""

import keras
from keras import ops

from keras_synth.core.checks import check_positive_int
from keras_synth.core.initializers import PerHeadInitializer, fork
from keras_synth.layers.baselines.baseline import Baseline


@keras.saving.register_keras_serializable("keras_synth")
class LinearAttention(Baseline):
    """Dot-product attention to a sequence that is projected to a fixed length.

    `Y = softmax(Q (E K)^T / sqrt(key_dim)) F V` for each head, with learned `E` and `F` from the `N`
    positions to `rank`, cut to the length of the sequence. Linformer,
    [Wang et al., 2020](https://arxiv.org/abs/2006.04768), where nothing is shared between heads, or
    between keys and values. `4 D^2 + 2 H N rank` parameters for `D = H * key_dim`, and `4 D` biases.

    Padding is cut out before it is projected. There is no causal form and no cache: each projected key
    is a sum over the whole sequence.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        max_length: int. The longest sequence of keys and values, `N`.
        rank: int. The length that keys and values are projected to, `k` in the paper. Defaults to `64`.
        **kwargs: `dropout`, the dropout of the attention weights; `seed`; `use_bias` and the
            initializers, regularizers and constraints of `keras.layers.MultiHeadAttention`; and keyword
            arguments of `keras.layers.Layer`.

    Call arguments:
        As in `keras_synth.layers.SyntheticAttention`, without `use_causal_mask` and `cache`.
        `attention_mask` can only hide padding. Scores are the weights of the values, `(batch, H, T, S)`:
        the attention weights times `F`, which need not be positive or sum to one.

    Raises:
        ValueError: If an argument is not as described; in a call, if `use_causal_mask`, or a sequence is
            longer than `max_length`, or a mask has the wrong shape.

    Example:

    >>> import numpy as np
    >>> LinearAttention(num_heads=2, key_dim=4, max_length=16, rank=3)(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    supports_cross_attention = True
    supports_causal_mask = False

    def __init__(self, num_heads, key_dim, max_length, rank=64, **kwargs):
        super().__init__(num_heads, key_dim, **kwargs)
        self.max_length = check_positive_int(self, "max_length", max_length)
        self.rank = check_positive_int(self, "rank", rank)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        heads = (self.num_heads, self.key_dim)
        self.query_dense = self.projection("btd,dhk->bthk", heads, "query")
        self.query_dense.build(query_shape)
        self.key_dense = self.projection("btd,dhk->bthk", heads, "key")
        self.key_dense.build(value_shape if key_shape is None else key_shape)
        self.value_dense = self.projection("btd,dhv->bthv", (self.num_heads, self.value_dim), "value")
        self.value_dense.build(value_shape)
        lengths = (self.num_heads, self.max_length, self.rank)
        self.key_lengths, self.value_lengths = (
            self.add_kernel(name, lengths, PerHeadInitializer(fork(self.kernel_initializer, name)))
            for name in ("key_lengths", "value_lengths")
        )
        super().build(query_shape)

    def project(self, query, value, key):
        return {"key": self.key_dense(key), "value": self.value_dense(value)}

    def mix_values(self, query, projected, start_index, causal, training):
        if causal:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' cannot be causal: each of its projected keys is a "
                "sum over the whole sequence. Received: use_causal_mask=True"
            )
        length = ops.shape(projected["value"])[1]
        value_lengths = self.value_lengths[:, :length]
        keys = ops.einsum("bshd,hsk->bhkd", projected["key"], self.key_lengths[:, :length])
        values = ops.einsum("bshd,hsk->bhkd", projected["value"], value_lengths)

        logits = ops.einsum("bthd,bhkd->bhtk", self.query_dense(query) * self.key_dim**-0.5, keys)
        weights = ops.softmax(ops.cast(logits, keras.backend.result_type(logits.dtype, "float32")))
        weights = ops.cast(weights, values.dtype)
        output = ops.einsum("bhtk,bhkd->bthd", self.dropout_layer(weights, training=training), values)
        return output, lambda: ops.einsum("bhtk,hsk->bhts", weights, value_lengths)

    def init_cache(self, batch_size, length):
        raise ValueError(
            f"{type(self).__name__} '{self.name}' cannot decode with a cache, because it cannot be causal."
        )

    def resize(self, max_length):
        return self.from_config({**self.get_config(), "max_length": max_length})

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length, "rank": self.rank}
