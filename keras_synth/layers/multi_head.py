"""The layers that stand where `keras.layers.MultiHeadAttention` could stand, and what they share."""

import operator

import keras
from keras import ops

from keras_synth.core.checks import check_positive_int, check_rate, describe_owner
from keras_synth.core.projections import Projecting
from keras_synth.core.recomputation import Dropout
from keras_synth.core.serialization import to_plain
from keras_synth.core.slices import start_indices
from keras_synth.layers import masks


class MultiHead(Projecting):
    """Base class of the layers that mix the values of tokens, head by head.

    It has their call: masks, scores, caches, and the projection that brings the heads together. What a
    layer is lies in two methods: `project` makes what is kept of each token, among it the values, and
    `mix` makes outputs of that.

    Args:
        num_heads: int. The number of heads, `H`.
        key_dim: int. The width of a head.
        value_dim: int. The width of a head's values. Defaults to `key_dim`.
        dropout: float. Dropout of the weights by which values are mixed. Defaults to `0.0`.
        output_shape: int or tuple of ints. The shape of an output token. Defaults to the query's.
        seed: int. The seed of dropout. Defaults to `None`.
        **kwargs: Keyword arguments of `Projecting` and of `keras.layers.Layer`.
    """

    #: Whether `value` may have another length than `query`.
    supports_cross_attention = False
    #: The longest sequence that the layer can take, `None` if it takes any.
    max_length = None
    #: Whether a cache has the same size for any number of tokens, which enter it once, in their order.
    has_constant_cache = False

    def __init__(
        self, num_heads, key_dim, value_dim=None, dropout=0.0, output_shape=None, seed=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = check_positive_int(self, "num_heads", num_heads)
        self.key_dim = check_positive_int(self, "key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else check_positive_int(self, "value_dim", value_dim)
        self.dropout = check_rate(self, "dropout", dropout)
        if output_shape is not None:
            sizes = output_shape if isinstance(output_shape, (list, tuple)) else [output_shape]
            output_shape = tuple(check_positive_int(self, "output_shape", size) for size in sizes)
        self._output_shape = output_shape
        self.seed = seed
        # It takes weights as they come: in float16, those that are not normalized yet would overflow.
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy, autocast=False)

    def build(self, query_shape, value_shape=None, key_shape=None):
        """Creates the projection that brings the heads together; subclasses create the rest."""
        heads = (self.num_heads, self.value_dim)
        output_shape = self._output_shape or (query_shape[-1],)
        axes = "defg"[: len(output_shape)]
        self.output_dense = self.projection(f"bthv,hv{axes}->bt{axes}", output_shape, "attention_output")
        self.output_dense.build((None, None, *heads))

    def project(self, query, value, key):
        """What `mix` needs of each token, once computed and then kept in a cache.

        Returns:
            A dict of nested tensors of shape `(batch, S, ...)`, with `"value"` among them.
        """
        raise NotImplementedError

    def mix(self, query, projected, mask, start_index, causal, training):
        """Mixes what `project` made.

        Args:
            query: Tensor of shape `(batch, T, D)`.
            projected: The result of `project`, or the cache.
            mask: A `keras_synth.layers.masks.AttentionMask`, which leaves it to `causal` to be causal.
            start_index: int or int tensor. The position of the first query.
            causal: bool. Whether a query sees no key after itself.
            training: bool. Whether dropout acts.

        Returns:
            Tensor of shape `(batch, T, H, value_dim)`, and a function without arguments that returns
            the scores, `(batch, H, T, S)`, from before dropout.
        """
        raise NotImplementedError

    def bring_together(self, output, query):
        """Makes tokens, `(batch, T, D)`, of what `mix` makes."""
        return self.output_dense(output)

    def mix_with_cache(self, query, projected, mask, cache, length, training):
        """`mix` of the tokens that follow those of a cache, for a layer that `has_constant_cache`.

        Args:
            query: Tensor of shape `(batch, T, D)`.
            projected: The result of `project`, for these tokens.
            mask: An `AttentionMask` of these tokens, without positions.
            cache: What `init_cache` or an earlier call returned.
            length: int or int tensor. How many of the tokens enter the cache; `None` for all.
            training: bool. Whether dropout acts.

        Returns:
            Tensor of shape `(batch, T, H, value_dim)`, and the new cache.
        """
        raise NotImplementedError

    def init_cache(self, batch_size, length):
        """An empty cache for decoding, with what `project` makes of each token.

        Args:
            batch_size: int or int tensor.
            length: int or int tensor. The number of positions, at most `max_length`.

        Returns:
            A dict of nested tensors, the cache of positions `0` to `length - 1`.
        """
        shape = (batch_size, length, self.num_heads, self.value_dim)
        return {"value": ops.zeros(shape, dtype=self.compute_dtype)}

    def __call__(self, query, value=None, *args, **kwargs):
        # Self-attention is a call with two tensors, so that Keras fills in the masks of both.
        if value is None and kwargs.get("cache") is None:
            value = query
        self._check_axes(query=query, value=value, key=kwargs.get("key"))
        if kwargs.get("cache_update_index") is not None and kwargs.get("cache") is None:
            raise ValueError(
                f"`cache_update_index` of {describe_owner(self)} needs a `cache`. "
                f"Received: cache=None, cache_update_index={kwargs['cache_update_index']}"
            )
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
        cache_update_length=None,
    ):
        start_index, positions = 0, None
        constant = cache is not None and self.has_constant_cache
        if constant:
            self._check_constant_cache(cache_update_index, use_causal_mask, return_attention_scores)
        if cache is not None and cache_update_index is None:
            projected = cache
        else:
            value = query if value is None else value
            key = value if key is None else key
            self._check_key(value, key)
            projected = self.project(query, value, key)
            if cache is not None:
                start_index = self._start_index(cache_update_index, value, cache)
            if cache is not None and not constant:
                projected = cache = keras.tree.map_structure(
                    lambda old, new: ops.slice_update(
                        old, start_indices(len(old.shape), 1, start_index), new
                    ),
                    cache,
                    projected,
                )
                positions = masks.filled_mask(
                    ops.shape(projected["value"])[1], start_index + ops.shape(value)[1]
                )

        batch, query_length = ops.shape(query)[:2]
        key_length = None if constant else ops.shape(projected["value"])[1]
        self._check_lengths(query_length, key_length, cached=cache is not None)
        given = dict(
            query_mask=query_mask, value_mask=value_mask, key_mask=key_mask, attention_mask=attention_mask
        )
        given = self._check_masks((batch, query_length, key_length), **given)
        if constant:
            given = masks.cut_columns(self, start_index, query_length, **given)
        mask = masks.AttentionMask.of(**given, positions=None if use_causal_mask else positions)

        if constant:
            output, cache = self.mix_with_cache(
                query, projected, mask, cache, cache_update_length, training
            )
        else:
            output, scores = self.mix(query, projected, mask, start_index, use_causal_mask, training)
        outputs = (self.bring_together(output, query),)
        if return_attention_scores:
            outputs += (scores(),)
        if cache is not None:
            outputs += (cache,)
        return outputs if len(outputs) > 1 else outputs[0]

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:2], *(self._output_shape or query_shape[2:]))

    def compute_output_spec(
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
        cache_update_length=None,
    ):
        # Instead of a trial run, which on JAX has no lengths to compare with `max_length`.
        value = query if value is None else value
        self._check_key(value, value if key is None else key)
        batch, query_length = query.shape[:2]
        key_length = value.shape[1] if cache is None else self._cache_length(cache)
        self._check_lengths(query_length, key_length, cached=cache is not None)
        self._check_masks(
            (batch, query_length, key_length),
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
        )
        outputs = (keras.KerasTensor(self.compute_output_shape(query.shape), self.compute_dtype),)
        if return_attention_scores:
            shape = (batch, self.num_heads, query_length, key_length)
            outputs += (keras.KerasTensor(shape, self.compute_dtype),)
        if cache is not None:
            outputs += (keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape, x.dtype), cache),)
        return outputs if len(outputs) > 1 else outputs[0]

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "output_shape": to_plain(self._output_shape),
            "seed": self.seed,
        }

    def _check_axes(self, **tokens):
        for name, tensor in tokens.items():
            shape = getattr(tensor, "shape", None)
            if tensor is not None and (shape is None or len(shape) != 3):
                raise ValueError(
                    f"`{name}` of {describe_owner(self)} must be a tensor of shape (batch, tokens, width). "
                    f"Received: {name} of {'type ' + type(tensor).__name__ if shape is None else shape}"
                )

    def _check_key(self, value, key):
        lengths = value.shape[1], key.shape[1]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                f"`key` of {describe_owner(self)} must have the length of `value`. Received: key of length "
                f"{lengths[1]}, value of length {lengths[0]}"
            )

    def _start_index(self, index, value, cache):
        try:
            index = operator.index(index)
        except TypeError:  # a tensor whose value is not known yet
            return ops.cast(index, "int32")
        length, size = value.shape[1], self._cache_length(cache)
        if length is not None and size is not None and not 0 <= index <= size - length:
            raise ValueError(
                f"The cache of {type(self).__name__} '{self.name}' has {size} positions, so with a "
                f"sequence of length {length} `cache_update_index` must be from 0 to {size - length}. "
                f"Received: cache_update_index={index}"
            )
        return index

    def _cache_length(self, cache):
        """The number of positions of a cache, if there is one and it is known."""
        return None if self.has_constant_cache else cache["value"].shape[1]

    def _check_constant_cache(self, cache_update_index, use_causal_mask, return_attention_scores):
        if cache_update_index is None or not use_causal_mask or return_attention_scores:
            raise ValueError(
                f"The cache of {type(self).__name__} '{self.name}' holds no single tokens, so it needs "
                "`cache_update_index` and `use_causal_mask=True`, and gives no scores. Received: "
                f"cache_update_index={cache_update_index}, use_causal_mask={use_causal_mask}, "
                f"return_attention_scores={return_attention_scores}"
            )

    def _check_masks(self, lengths, **given):
        """The masks as tensors, or an error if one has a shape that it must not have."""
        given = {
            name: mask if mask is None or hasattr(mask, "shape") else ops.convert_to_tensor(mask)
            for name, mask in given.items()
        }
        masks.check_shapes(self, lengths, **given)
        return given

    def _check_lengths(self, query_length, key_length, cached):
        known = [length for length in (query_length, key_length) if isinstance(length, int)]
        if self.max_length is not None and max(known, default=0) > self.max_length:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' takes sequences of at most "
                f"max_length={self.max_length} tokens. Received: a sequence of length {max(known)}."
            )
        if not cached and not self.supports_cross_attention and len(set(known)) > 1:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' mixes the tokens of one sequence, so `value` must "
                f"have the length of `query`. Received: query of length {query_length}, value of length "
                f"{key_length}"
            )
