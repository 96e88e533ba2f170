"""The decoder block."""

import keras

from keras_synth.layers.block import SynthesizerBlock
from keras_synth.layers.named import DotProductAttention


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerDecoder(SynthesizerBlock):
    """A Transformer decoder block with synthesized self-attention.

    Causal self-attention, cross-attention to an encoder's output where there is one, and a feed-forward
    network, each in a residual connection. Cross-attention is a dot product, as in the paper: a
    synthesized alignment has no place for a second sequence.

    Args:
        intermediate_dim: int. The width of the feed-forward network's hidden layer.
        num_heads: int. The number of attention heads. Must divide the width of the input.
        attention: A name, as in `keras_synth.layers.SyntheticAttention`, or of a baseline,
            `"lightweight_convolution"` or `"dynamic_convolution"`; an alignment layer, or one of
            `keras_synth.layers.baselines`, which is copied; or its serialized config. Defaults to
            `"random+dot_product"`.
        max_length: int. The longest sequence, for an `attention` given by a name that needs it.
        **kwargs: The options of a block: `dropout`, `activation`, `normalize_first` and all the others that
            `keras_synth.layers.SynthesizerBlock` documents; and keyword arguments of `keras.layers.Layer`.

    Call arguments:
        decoder_sequence: Tensor of shape `(batch, T, hidden_dim)`.
        encoder_sequence: Tensor of shape `(batch, S, hidden_dim)`. Defaults to `None`, for a
            decoder-only model. A block that was built with one must be called with one.
        decoder_padding_mask: Tensor of shape `(batch, T)`, nonzero for tokens and zero for padding.
        decoder_attention_mask: Tensor of shape `(T, T)`, `(batch, T, T)` or `(batch, H, T, T)`.
        encoder_padding_mask: Tensor of shape `(batch, S)`.
        encoder_attention_mask: Tensor of shape `(T, S)`, `(batch, T, S)` or `(batch, H, T, S)`.
        self_attention_cache: A cache that `init_cache` or an earlier call returned.
        self_attention_cache_update_index: int or int tensor. The position of the first token of
            `decoder_sequence`. Needed with `self_attention_cache`. As in
            `keras_synth.layers.SyntheticAttention`, a tensor in a compiled function must not be too large.
        self_attention_cache_update_length: int or int tensor. How many of the tokens enter a cache of
            constant size, see `keras_synth.layers.SyntheticAttention`. Defaults to all.
        cross_attention_cache: A cache that `init_cache` or an earlier call returned.
        cross_attention_cache_update_index: int or int tensor. `0` to fill the cache from
            `encoder_sequence`, `None` to use what is in it.
        use_causal_mask: bool. Whether a token sees no token after itself. Defaults to `True`.
        training: bool. Whether dropout acts.

    Returns:
        Tensor of the shape of `decoder_sequence`; then each of the two caches that was given, updated.

    Example:

    >>> import numpy as np
    >>> block = SynthesizerDecoder(intermediate_dim=32, num_heads=2, max_length=16)
    >>> block(np.ones((3, 5, 8)), np.ones((3, 7, 8))).shape
    TensorShape([3, 5, 8])
    """

    def build(self, decoder_sequence_shape, encoder_sequence_shape=None):
        shape = decoder_sequence_shape
        self.self_attention = self._build_self_attention(shape)
        self.self_attention_gate = self._build_attention_gate(shape)
        self.self_attention_residual = self._build_residual("self_attention_residual", shape)
        self.cross_attention = None
        if encoder_sequence_shape is not None:
            self.cross_attention = self._build_attention(
                DotProductAttention, "cross_attention", shape, encoder_sequence_shape
            )
            self.cross_attention_residual = self._build_residual("cross_attention_residual", shape)
        self.feedforward = self._build_feedforward(shape)
        self.feedforward_residual = self._build_residual("feedforward_residual", shape)

    def init_cache(self, batch_size, length, encoder_length=None):
        """Empty caches for decoding.

        Args:
            batch_size: int or int tensor.
            length: int or int tensor. The number of positions to decode, at most `max_length`.
            encoder_length: int or int tensor. The length of the encoder's sequence, if there is one.

        Returns:
            `(self_attention_cache, cross_attention_cache)`; the second is `None` without an encoder.
        """
        self_attention_cache = self.self_attention.init_cache(batch_size, length)
        if self.cross_attention is None:
            return self_attention_cache, None
        return self_attention_cache, self.cross_attention.init_cache(batch_size, encoder_length)

    def call(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_padding_mask=None,
        encoder_attention_mask=None,
        self_attention_cache=None,
        self_attention_cache_update_index=None,
        self_attention_cache_update_length=None,
        cross_attention_cache=None,
        cross_attention_cache_update_index=None,
        use_causal_mask=True,
        training=None,
    ):
        self._check_encoder(encoder_sequence, cross_attention_cache)
        caches = ()

        x = self.self_attention_residual.enter(decoder_sequence)
        outputs = self.self_attention(
            x,
            query_mask=decoder_padding_mask,
            value_mask=decoder_padding_mask,
            attention_mask=decoder_attention_mask,
            use_causal_mask=use_causal_mask,
            cache=self_attention_cache,
            cache_update_index=self_attention_cache_update_index,
            cache_update_length=self_attention_cache_update_length,
            training=training,
        )
        if self_attention_cache is not None:
            outputs, self_attention_cache = outputs
            caches += (self_attention_cache,)
        if self.self_attention_gate is not None:
            outputs = self.self_attention_gate(x, outputs)
        x = self.self_attention_residual(decoder_sequence, outputs, training=training)

        if self.cross_attention is not None:
            outputs = self.cross_attention(
                self.cross_attention_residual.enter(x),
                encoder_sequence,
                value_mask=encoder_padding_mask,
                attention_mask=encoder_attention_mask,
                cache=cross_attention_cache,
                cache_update_index=cross_attention_cache_update_index,
                training=training,
            )
            if cross_attention_cache is not None:
                outputs, cross_attention_cache = outputs
                caches += (cross_attention_cache,)
            x = self.cross_attention_residual(x, outputs, training=training)

        x = self._feed_forward(x, training)
        return (x, *caches) if caches else x

    def compute_output_shape(self, decoder_sequence_shape, encoder_sequence_shape=None):
        return decoder_sequence_shape

    def compute_output_spec(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        decoder_attention_mask=None,
        encoder_padding_mask=None,
        encoder_attention_mask=None,
        self_attention_cache=None,
        self_attention_cache_update_index=None,
        self_attention_cache_update_length=None,
        cross_attention_cache=None,
        cross_attention_cache_update_index=None,
        use_causal_mask=True,
        training=None,
    ):
        self._check_encoder(encoder_sequence, cross_attention_cache)
        specs = [
            self.self_attention.compute_output_spec(
                decoder_sequence,
                query_mask=decoder_padding_mask,
                value_mask=decoder_padding_mask,
                attention_mask=decoder_attention_mask,
                use_causal_mask=use_causal_mask,
                cache=self_attention_cache,
            )
        ]
        if self.cross_attention is not None:
            specs.append(
                self.cross_attention.compute_output_spec(
                    decoder_sequence,
                    encoder_sequence,
                    value_mask=encoder_padding_mask,
                    attention_mask=encoder_attention_mask,
                    cache=cross_attention_cache,
                )
            )
        caches = tuple(spec[1] for spec in specs if isinstance(spec, tuple))
        output = keras.KerasTensor(decoder_sequence.shape, self.compute_dtype)
        return (output, *caches) if caches else output

    def _check_encoder(self, encoder_sequence, cross_attention_cache):
        has_encoder = encoder_sequence is not None or cross_attention_cache is not None
        if has_encoder != (self.cross_attention is not None):
            raise ValueError(
                f"{type(self).__name__} '{self.name}' was built "
                f"{'without' if has_encoder else 'with'} an encoder and must be called so. "
                f"Received: encoder_sequence={encoder_sequence}"
            )
