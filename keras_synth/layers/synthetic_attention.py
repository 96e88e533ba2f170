"""Multi-head attention whose alignment is a layer of its own."""

import dataclasses

import keras
from keras import ops

from keras_synth import alignments
from keras_synth.core.checks import check_positive_int
from keras_synth.core.projections import PROJECTION_ARGUMENTS
from keras_synth.core.serialization import serialize_layer
from keras_synth.layers import masks
from keras_synth.layers.attend import attend_by_logits
from keras_synth.layers.multi_head import MultiHead
from keras_synth.layers.running import RunningMixer
from keras_synth.layers.windowed import WindowMixer


@keras.saving.register_keras_serializable("keras_synth")
class SyntheticAttention(MultiHead):
    """Multi-head attention with any alignment: `Y = softmax(B) G(X)` for each head.

    `B` comes from an alignment layer, `G` is a dense projection to values, and the heads are brought
    together by another one, as in `keras.layers.MultiHeadAttention`, for which this layer is drop-in
    in self-attention. [Tay et al., 2021](https://arxiv.org/abs/2005.00743).

    Logits that do not depend on the input (the random synthesizers) are computed once for the whole
    batch. Nothing of size `batch * H * T * S` is then made, unless scores are asked for or a full
    `(batch, T, S)` mask is given.

    Masks work in every variant and path: explicit ones; the Keras masks of the inputs, which arrive and
    leave by themselves; and the causal mask. They act before the softmax. A query that may attend to
    nothing gets zeros, before the output projection. Softmax is computed in float32, or better.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        alignment: An alignment layer, its serialized config, or a name: `"random"`, `"fixed_random"`,
            `"factorized_random"`, `"dense"`, `"factorized_dense"`, `"bottleneck"`, `"convolution"`,
            `"convolutional_bottleneck"`, `"gated_linear"`, `"dot_product"`, `"fixed_pattern"`,
            `"local_dense"`, `"relative"`, `"decay"`, `"average"`, `"gaussian"`, `"routed_random"`, or names
            joined by `+` for a mixture, as `"random+dot_product"`.
        value_dim: int. The width of a head's values. Defaults to `key_dim`.
        dropout: float. Dropout of the attention weights. Where logits do not depend on the input, all
            examples of a batch share them, and what is dropped too, whatever the mask. Defaults to `0.0`.
        use_bias: bool. Whether the projections have biases. Defaults to `True`.
        output_shape: int or tuple of ints. The shape of an output token. Defaults to the query's.
        max_length: int. The longest sequence, for an `alignment` given by a name that needs it.
        seed: int. The seed of dropout. Defaults to `None`.
        sliding_window: int. How far a query sees: keys that are less than so many positions before or
            after it. Defaults to `None`, for all keys.
        use_gate: bool. Whether the heads' outputs are multiplied by the sigmoid of a dense projection of
            the query, as in [Qiu et al., 2025](https://arxiv.org/abs/2505.06708). Defaults to `False`.
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
            `None` leaves the cache as it is and ignores `value`. More than the cache has room for is an
            error, but not for a tensor in a compiled function, whose value is not known: it must not be
            too large, because backends then overwrite the last positions silently.
        cache_update_length: int or int tensor. How many of the tokens enter a cache of constant size, that
            of an alignment with a window or with rates of decay, where each token goes once: those after
            them may come again. Defaults to all.

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
        *,
        sliding_window=None,
        use_gate=False,
        **kwargs,
    ):
        super().__init__(
            num_heads, key_dim, value_dim, dropout, output_shape, seed, use_bias=use_bias, **kwargs
        )
        self.alignment = alignments.get(
            alignment,
            num_heads,
            key_dim,
            max_length,
            dtype=self.dtype_policy,
            **{name: getattr(self, name) for name in PROJECTION_ARGUMENTS},
        )
        if sliding_window is not None:
            check_positive_int(self, "sliding_window", sliding_window)
        self.sliding_window = sliding_window
        self.use_gate = use_gate
        self.mixer = None if sliding_window else find_mixer(self.alignment)

    @property
    def supports_cross_attention(self):
        return self.alignment.supports_cross_attention

    @property
    def max_length(self):
        return self.alignment.max_length

    @property
    def has_constant_cache(self):
        return self.mixer is not None

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        if not self.alignment.built:
            self.alignment.build(query_shape, key_shape)
        heads = (self.num_heads, self.value_dim)
        if self.use_gate:
            self.gate_dense = self.projection("btd,dhv->bthv", heads, "gate")
            self.gate_dense.build(query_shape)
        self.value_dense = self.projection("btd,dhv->bthv", heads, "value")
        self.value_dense.build(value_shape)
        super().build(query_shape)

    def project(self, query, value, key):
        return {"value": self.value_dense(value), "keys": self.alignment.project_key(key, query)}

    def init_cache(self, batch_size, length):
        """An empty cache for decoding: values, and keys only where the alignment has keys.

        Args:
            batch_size: int or int tensor.
            length: int or int tensor. The number of positions, at most `max_length`.

        Returns:
            A dict of nested tensors, the cache of positions `0` to `length - 1`. Of alignments with a
            `window` or with `decay_rates` it has the same size for any `length`.
        """
        if self.mixer is not None:
            return self.mixer.init_cache(batch_size, self.num_heads, self.value_dim, self.compute_dtype)
        keys = self.alignment.init_cache(batch_size, length)
        return {**super().init_cache(batch_size, length), "keys": keys}

    def mix(self, query, projected, mask, start_index, causal, training):
        arguments = (query, projected, mask, start_index, causal, training)
        dropout = self._active_dropout(training)
        if self.mixer is None or mask.full is not None or mask.positions is not None:
            return self._mix_by_logits(*arguments)
        if dropout is not None and not self.mixer.drops:
            return self._mix_by_logits(*arguments)
        output, _ = self.mixer.mix(query, projected["value"], mask.visible_keys, causal, dropout)
        return _hide_queries(output, mask), lambda: self._mix_by_logits(*arguments)[1]()

    def mix_with_cache(self, query, projected, mask, cache, length, training):
        output, cache = self.mixer.mix(
            query,
            projected["value"],
            mask.visible_keys,
            True,
            self._active_dropout(training) if self.mixer.drops else None,
            cache,
            length,
        )
        return _hide_queries(output, mask), cache

    def _active_dropout(self, training):
        return self.dropout_layer if self.dropout_layer.rate > 0 and training else None

    def _mix_by_logits(self, query, projected, mask, start_index, causal, training):
        rows, columns = ops.shape(query)[1], ops.shape(projected["value"])[1]
        logits = self.alignment(
            query,
            keys=projected["keys"],
            start_index=start_index,
            key_length=columns,
            key_mask=mask.key,
            causal=causal,
        )
        if causal:
            mask = mask.with_causal(rows, columns, start_index)
        support = self.support(rows, columns, start_index, causal)
        mask = dataclasses.replace(mask, positions=masks.combine(mask.positions, support))
        return attend_by_logits(logits, projected["value"], mask, self.dropout_layer, training)

    def support(self, query_length, key_length, start_index=0, causal=False):
        """Where attention can ever go, as `Alignment.support`, and within the sliding window."""
        support = self.alignment.support(query_length, key_length, start_index, causal)
        if self.sliding_window is None:
            return support
        window = masks.window_mask(query_length, key_length, self.sliding_window, start_index)
        return masks.combine(support, window)

    def bring_together(self, output, query):
        if self.use_gate:
            output = output * ops.sigmoid(self.gate_dense(query))
        return super().bring_together(output, query)

    def get_config(self):
        config = super().get_config()
        if self.alignment_arguments is None:
            config["alignment"] = serialize_layer(self.alignment)
        else:
            alignment_config = self.alignment.get_config()
            config.update({name: alignment_config[name] for name in self.alignment_arguments})
        return {**config, "sliding_window": self.sliding_window, "use_gate": self.use_gate}


def find_mixer(alignment):
    """What computes `softmax(B) V` without `B`, or `None`."""
    if alignment.window is not None:
        return WindowMixer(alignment)
    return None if alignment.decay_rates is None else RunningMixer(alignment)


def _hide_queries(output, mask):
    """`(batch, T, H, v)` outputs, with zeros for hidden queries."""
    return output if mask.query is None else ops.where(mask.query[:, :, None, None], output, 0)
