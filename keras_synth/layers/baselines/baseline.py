"""What the baselines have in common with each other, and with the synthesizers: the call."""

import keras
from keras import ops

from keras_synth.alignments.alignment import positive_int
from keras_synth.alignments.projecting import Projecting
from keras_synth.layers import masks


class Baseline(Projecting):
    """Base class of the layers that stand where a `keras_synth.layers.SyntheticAttention` could stand.

    They take the same call arguments, apart from attention masks that are more than a padding mask. A
    baseline is the two steps `project` and `mix`; heads are brought together as in attention.

    Args:
        num_heads: int. The number of heads, `H`.
        key_dim: int. The width of a head.
        dropout: float. Dropout of the weights by which values are mixed. Defaults to `0.0`.
        seed: int. The seed of dropout. Defaults to `None`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.MultiHeadAttention`, and keyword arguments of `keras.layers.Layer`.
    """

    #: Whether `value` may have another length than `query`.
    supports_cross_attention = False

    def __init__(self, num_heads, key_dim, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = positive_int(self, "num_heads", num_heads)
        self.key_dim = positive_int(self, "key_dim", key_dim)
        if not 0 <= dropout < 1:
            raise ValueError(
                f"`dropout` of {type(self).__name__} '{self.name}' must be at least 0 and less than 1. "
                f"Received: dropout={dropout}"
            )
        self.dropout = dropout
        self.seed = seed
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.output_dense = self.projection("bthv,hvd->btd", (query_shape[-1],), "attention_output")
        self.output_dense.build((None, None, self.num_heads, self.key_dim))

    def add_kernel(self, name, shape, initializer):
        """A weight that is regularized and constrained as the kernels are."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def project(self, value, key):
        """What `mix` needs of each token: nested tensors of shape `(batch, S, H, key_dim)`."""
        raise NotImplementedError

    def mix(self, query, projected, key_mask, start_index, causal, training):
        """Mixes what `project` made.

        Args:
            query: Tensor of shape `(batch, T, D)`.
            projected: The result of `project`, with zeros for hidden tokens.
            key_mask: bool tensor of shape `(batch, S)`, or `None`.
            start_index: int or int tensor. The position of the first query.
            causal: bool. Whether a token sees no token after itself.
            training: bool. Whether dropout acts.

        Returns:
            Tensor of shape `(batch, T, H, key_dim)`, and a function without arguments that returns the
            weights it is made with, `(batch, H, T, S)`, from before dropout.
        """
        raise NotImplementedError

    def init_cache(self, batch_size, length):
        """An empty cache for decoding.

        Args:
            batch_size: int or int tensor.
            length: int or int tensor. The number of positions.

        Returns:
            A dict of tensors, the cache of positions `0` to `length - 1`.
        """
        shape = (batch_size, length, self.num_heads, self.key_dim)
        return {"value": ops.zeros(shape, dtype=self.compute_dtype)}

    def __call__(self, query, value=None, *args, **kwargs):
        # Self-attention is a call with two tensors, so that Keras fills in the masks of both.
        if value is None and kwargs.get("cache") is None:
            value = query
        return super().__call__(query, value, *args, **kwargs)

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        cache=None,
        cache_update_index=None,
    ):
        start_index = 0
        if cache is not None and cache_update_index is None:
            projected = cache
        else:
            value = query if value is None else value
            projected = self.project(value, value if key is None else key)
            if cache is not None:
                start_index = cache_update_index
                projected = cache = {
                    name: ops.slice_update(cache[name], (0, start_index, 0, 0), projected[name])
                    for name in cache
                }

        batch, query_length = ops.shape(query)[:2]
        key_length = ops.shape(projected["value"])[1]
        if cache is None and not self.supports_cross_attention:
            self._check_lengths(query_length, key_length)
        mask = masks.attention_mask(
            self,
            (batch, query_length, key_length),
            self.num_heads,
            query_mask,
            value_mask,
            key_mask,
            attention_mask,
        )
        if mask.positions is not None or mask.full is not None:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' weighs no pairs of tokens, so its `attention_mask` "
                "can only hide padding: it must have shape (batch, 1, S). "
                f"Received: attention_mask of shape {tuple(attention_mask.shape)}"
            )
        if mask.key is not None:
            projected = keras.tree.map_structure(
                lambda tokens: ops.where(mask.key[:, :, None, None], tokens, 0), projected
            )

        output, scores = self.mix(query, projected, mask.key, start_index, use_causal_mask, training)
        if mask.query is not None:
            output = ops.where(mask.query[:, :, None, None], output, 0)
        outputs = (self.output_dense(output),)
        if return_attention_scores:
            weights = scores()
            if mask.key is not None:
                weights = ops.where(mask.key[:, None, None, :], weights, 0)
            if mask.query is not None:
                weights = ops.where(mask.query[:, None, :, None], weights, 0)
            outputs += (weights,)
        if cache is not None:
            outputs += (cache,)
        return outputs if len(outputs) > 1 else outputs[0]

    def _check_lengths(self, query_length, key_length):
        if isinstance(query_length, int) and isinstance(key_length, int) and query_length != key_length:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' mixes the tokens of one sequence, so `value` must "
                f"have the length of `query`. Received: query of length {query_length}, value of length "
                f"{key_length}"
            )

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout,
            "seed": self.seed,
        }
