"""Multi-head attention whose alignment is a layer of its own."""

import keras
from keras import ops

from keras_synth import alignments
from keras_synth.alignments.alignment import positive_int
from keras_synth.alignments.projecting import PROJECTION_ARGUMENTS, Projecting
from keras_synth.layers import masks
from keras_synth.layers.attend import attend


@keras.saving.register_keras_serializable("keras_synth")
class SyntheticAttention(Projecting):
    """Multi-head attention with any alignment: `Y = softmax(B) G(X)` for each head.

    `B` comes from an alignment layer, `G` is a dense projection to values, and the heads are brought
    together by another one, as in `keras.layers.MultiHeadAttention`, for which this layer is drop-in
    in self-attention. [Tay et al., 2021](https://arxiv.org/abs/2005.00743).

    Logits that do not depend on the input (the random synthesizers) are computed once for the whole
    batch. Nothing of size `batch * H * T * S` is then made, unless scores are asked for or a full
    `(batch, T, S)` mask is given. Attention dropout is drawn once for the batch too.

    Masks work in every variant and path: explicit ones; the Keras masks of the inputs, which arrive and
    leave by themselves; and the causal mask. They act before the softmax. A query that may attend to
    nothing gets zeros, before the output projection. Softmax is computed in float32, or better.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        alignment: An alignment layer, its serialized config, or a name: `"random"`, `"fixed_random"`,
            `"factorized_random"`, `"dense"`, `"factorized_dense"`, `"bottleneck"`, `"convolution"`,
            `"convolutional_bottleneck"`, `"gated_linear"`, `"dot_product"`, `"fixed_pattern"`, or names
            joined by `+` for a mixture, as `"random+dot_product"`.
        value_dim: int. The width of a head's values. Defaults to `key_dim`.
        dropout: float. Dropout of the attention weights. Defaults to `0.0`.
        use_bias: bool. Whether the projections have biases. Defaults to `True`.
        output_shape: int or tuple of ints. The shape of an output token. Defaults to the query's.
        max_length: int. The longest sequence, for an `alignment` given by a name that needs it.
        seed: int. The seed of dropout. Defaults to `None`.
        **kwargs: `kernel_initializer`, `bias_initializer`, `kernel_regularizer`, `bias_regularizer`,
            `kernel_constraint` and `bias_constraint` as in `keras.layers.MultiHeadAttention`, also for
            an `alignment` given by name, and keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(batch, T, D)`.
        value: Tensor of shape `(batch, S, D)`. Defaults to `query`. Only the dot product lets it have
            another length than `query`.
        key: Tensor of shape `(batch, S, D)`. Defaults to `value`. Only the dot product reads it.
        query_mask: Tensor of shape `(batch, T)`. Hidden queries get zeros.
        value_mask: Tensor of shape `(batch, S)`.
        key_mask: Tensor of shape `(batch, S)`.
        attention_mask: Tensor of shape `(T, S)`, `(batch, T, S)` or `(batch, H, T, S)`; any axis but
            the last may be 1. All masks may be bool, int or float, where nonzero means "may attend".
        return_attention_scores: bool. Whether to return the attention weights too.
        training: bool. Whether dropout acts.
        use_causal_mask: bool. Whether a query sees no key after itself.
        cache: The cache that `init_cache` or an earlier call returned. With a cache, `S` is its length
            and `query` holds the tokens from `cache_update_index` on.
        cache_update_index: int or int tensor. Where in the cache the keys and values of `value` go.
            `None` leaves the cache as it is and ignores `value`.

    Returns:
        The output, of shape `(batch, T, D)` or `(batch, T, *output_shape)`; then the scores, of shape
        `(batch, H, T, S)`, if `return_attention_scores`; then the updated cache, if `cache` was given.

    Raises:
        ValueError: If an argument is not as described; in a call, if a sequence is longer than the
            alignment's `max_length`, a mask has the wrong shape, or `value` has another length than
            `query` and the alignment does not allow it.

    Example:

    >>> import numpy as np
    >>> layer = SyntheticAttention(num_heads=2, key_dim=4, alignment="random", max_length=16)
    >>> layer(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    #: For subclasses that make their own alignment: those of its arguments that are theirs too.
    alignment_arguments = None

    def __init__(
        self,
        num_heads,
        key_dim,
        alignment,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        max_length=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(use_bias=use_bias, **kwargs)
        self.supports_masking = True
        self.num_heads = positive_int(self, "num_heads", num_heads)
        self.key_dim = positive_int(self, "key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else positive_int(self, "value_dim", value_dim)
        if not 0 <= dropout < 1:
            raise ValueError(
                f"`dropout` of {type(self).__name__} '{self.name}' must be at least 0 and less than 1. "
                f"Received: dropout={dropout}"
            )
        self.dropout = dropout
        self.seed = seed
        self._output_shape = (output_shape,) if isinstance(output_shape, int) else output_shape
        self.alignment = alignments.get(
            alignment,
            num_heads,
            key_dim,
            max_length,
            dtype=self.dtype_policy,
            **{name: getattr(self, name) for name in PROJECTION_ARGUMENTS},
        )
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        if not self.alignment.built:
            self.alignment.build(query_shape, key_shape)
        heads = (self.num_heads, self.value_dim)
        self.value_dense = self.projection("btd,dhv->bthv", heads, "value")
        self.value_dense.build(value_shape)
        output_shape = self._output_shape or (query_shape[-1],)
        axes = "defg"[: len(output_shape)]
        self.output_dense = self.projection(f"bthv,hv{axes}->bt{axes}", output_shape, "attention_output")
        self.output_dense.build((None, None, *heads))

    def init_cache(self, batch_size, length):
        """An empty cache for decoding: values, and keys only where the alignment has keys.

        Args:
            batch_size: int or int tensor.
            length: int or int tensor. The number of positions, at most `max_length`.

        Returns:
            A dict of nested tensors, the cache of positions `0` to `length - 1`.
        """
        shape = (batch_size, length, self.num_heads, self.value_dim)
        return {
            "value": ops.zeros(shape, dtype=self.compute_dtype),
            "keys": self.alignment.init_cache(batch_size, length),
        }

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
        if cache is not None and cache_update_index is None:
            start_index, values, keys = 0, cache["value"], cache["keys"]
        else:
            value = query if value is None else value
            key = value if key is None else key
            start_index = 0
            values, keys = self.value_dense(value), self.alignment.project_key(key, query)
            if cache is not None:
                start_index = cache_update_index
                values, keys = keras.tree.map_structure(
                    lambda old, new: ops.slice_update(
                        old, (0, start_index) + (0,) * (len(old.shape) - 2), new
                    ),
                    (cache["value"], cache["keys"]),
                    (values, keys),
                )
                cache = {"value": values, "keys": keys}

        batch, query_length = ops.shape(query)[:2]
        key_length = ops.shape(values)[1]
        self._check_cross_attention(query_length, key_length, cached=cache is not None)
        positions = None
        if use_causal_mask:
            positions = masks.causal_mask(query_length, key_length, start_index)
        elif cache is not None and cache_update_index is not None:
            positions = masks.filled_mask(key_length, start_index + ops.shape(value)[1])
        support = self.alignment.support(query_length, key_length, start_index)
        mask = masks.attention_mask(
            self,
            (batch, query_length, key_length),
            self.num_heads,
            query_mask,
            value_mask,
            key_mask,
            attention_mask,
            masks.combine(positions, support),
        )

        logits = self.alignment(
            query,
            keys=keys,
            start_index=start_index,
            key_length=key_length,
            key_mask=mask.key,
            causal=use_causal_mask,
        )
        output, scores = attend(logits, values, mask, self.dropout_layer, training)
        outputs = (self.output_dense(output),)
        if return_attention_scores:
            outputs += (scores(),)
        if cache is not None:
            outputs += (cache,)
        return outputs if len(outputs) > 1 else outputs[0]

    def get_config(self):
        config = super().get_config()
        config.update(
            num_heads=self.num_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            dropout=self.dropout,
            output_shape=self._output_shape,
            seed=self.seed,
        )
        if self.alignment_arguments is None:
            config["alignment"] = keras.saving.serialize_keras_object(self.alignment)
        else:
            alignment_config = self.alignment.get_config()
            config.update({name: alignment_config[name] for name in self.alignment_arguments})
        return config

    def _check_cross_attention(self, query_length, key_length, cached):
        if cached or self.alignment.supports_cross_attention:
            return
        if isinstance(query_length, int) and isinstance(key_length, int):
            if query_length != key_length:
                raise ValueError(
                    f"{type(self).__name__} '{self.name}' synthesizes its alignment from the query "
                    "alone, so `value` must have the length of `query`. Received: query of length "
                    f"{query_length}, value of length {key_length}"
                )
