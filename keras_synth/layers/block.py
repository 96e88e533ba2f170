"""Transformer blocks that take any alignment."""

import keras

from keras_synth import alignments
from keras_synth.core.checks import check_choice, check_positive_int, check_rate
from keras_synth.core.initializers import fork, fork_seed
from keras_synth.layers.attention import check_attention, make_self_attention
from keras_synth.layers.named import DotProductAttention
from keras_synth.layers.residual import NORMALIZATIONS, FeedForward, Residual


class SynthesizerBlock(keras.layers.Layer):
    """Base class of the encoder and decoder block: their arguments and how they make sublayers.

    Args:
        intermediate_dim: int. The width of the feed-forward network's hidden layer.
        num_heads: int. The number of attention heads. Must divide the width of the input.
        attention: A name, as in `keras_synth.layers.SyntheticAttention`, or of a baseline,
            `"lightweight_convolution"`, `"dynamic_convolution"` or `"linear"`; an alignment layer, or one
            of `keras_synth.layers.baselines`, which is copied; or its serialized config. Defaults to
            `"random+dot_product"`.
        max_length: int. The longest sequence, for an `attention` given by a name that needs it.
        dropout: float. Dropout of the output of each sublayer. Defaults to `0.0`.
        attention_dropout: float. Dropout of the attention weights. Defaults to `dropout`.
        activation: Activation of the feed-forward network. Defaults to `"relu"`.
        layer_norm_epsilon: float. Epsilon of the normalizations. Defaults to `1e-5`.
        kernel_initializer: Initializer of all kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of all biases. Defaults to `"zeros"`.
        normalize_first: bool. Whether the block is pre-norm: normalization before each sublayer instead
            of after it. Defaults to `False`.
        seed: int. The seed of dropout. Defaults to `None`.
        feedforward_dropout: float. Dropout of the feed-forward network's hidden layer. Defaults to
            `0.0`.
        use_gated_activation: bool. Whether the feed-forward network's hidden layer has a gate, as in
            [Shazeer, 2020](https://arxiv.org/abs/2002.05202). Defaults to `False`.
        normalization: `"layer_norm"` or `"rms_norm"`. Defaults to `"layer_norm"`.
        use_bias: bool. Whether attention and the feed-forward network have biases. Defaults to `True`.
        relative_bias: A `keras_synth.alignments.RelativeBiasAlignment`, or the serialized config of one,
            that is added to the logits of self-attention. A layer is not copied: blocks that get the same
            one share it. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        attention="random+dot_product",
        max_length=None,
        dropout=0.0,
        attention_dropout=None,
        activation="relu",
        layer_norm_epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        normalize_first=False,
        seed=None,
        *,
        feedforward_dropout=0.0,
        use_gated_activation=False,
        normalization="layer_norm",
        use_bias=True,
        relative_bias=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.intermediate_dim = check_positive_int(self, "intermediate_dim", intermediate_dim)
        self.num_heads = check_positive_int(self, "num_heads", num_heads)
        # A layer is a pattern to copy, so that one spec can serve many blocks.
        self.attention = alignments.serialize(attention)
        self.max_length = max_length
        self.dropout = dropout
        self.attention_dropout = dropout if attention_dropout is None else attention_dropout
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.normalize_first = normalize_first
        self.seed = seed
        self.feedforward_dropout = feedforward_dropout
        self.use_gated_activation = use_gated_activation
        self.normalization = normalization
        self.use_bias = use_bias
        if isinstance(relative_bias, dict):
            relative_bias = keras.saving.deserialize_keras_object(relative_bias)
        self.relative_bias = relative_bias
        # What is wrong is an error now, not when the width of the input is known.
        for name in ("dropout", "attention_dropout", "feedforward_dropout"):
            check_rate(self, name, getattr(self, name))
        check_choice(self, "normalization", normalization, NORMALIZATIONS)
        check_attention(attention, num_heads, max_length, relative_bias)

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "attention": self.attention,
            "max_length": self.max_length,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": keras.activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "normalize_first": self.normalize_first,
            "seed": self.seed,
            "feedforward_dropout": self.feedforward_dropout,
            "use_gated_activation": self.use_gated_activation,
            "normalization": self.normalization,
            "use_bias": self.use_bias,
            "relative_bias": self.relative_bias and keras.saving.serialize_keras_object(self.relative_bias),
        }

    def _attention_layer(self, cls, hidden_dim, name, **kwargs):
        if hidden_dim % self.num_heads:
            raise ValueError(
                f"The width of the input of {type(self).__name__} '{self.name}' must be divisible by "
                f"num_heads={self.num_heads}. Received: an input of width {hidden_dim}"
            )
        return cls(
            self.num_heads,
            hidden_dim // self.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            # So that those of self- and cross-attention differ, also with a seed.
            kernel_initializer=fork(self.kernel_initializer, name),
            bias_initializer=fork(self.bias_initializer, name),
            seed=fork_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )

    def _self_attention(self, hidden_dim):
        return self._attention_layer(
            make_self_attention,
            hidden_dim,
            "self_attention",
            attention=self.attention,
            max_length=self.max_length,
            relative_bias=self.relative_bias,
        )

    def _feedforward(self):
        return FeedForward(
            self.intermediate_dim,
            self.activation,
            self.kernel_initializer,
            self.bias_initializer,
            use_bias=self.use_bias,
            use_gate=self.use_gated_activation,
            dropout=self.feedforward_dropout,
            seed=fork_seed(self.seed, "feedforward"),
            dtype=self.dtype_policy,
            name="feedforward",
        )

    def _residual(self, name):
        return Residual(
            self.normalize_first,
            self.dropout,
            self.layer_norm_epsilon,
            self.normalization,
            seed=fork_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerEncoder(SynthesizerBlock):
    """A Transformer encoder block with synthesized attention.

    Self-attention and a feed-forward network, each in a residual connection. Where no `padding_mask` is
    given, the Keras mask of the input is used; it leaves with the output.

    Args:
        intermediate_dim: int. The width of the feed-forward network's hidden layer.
        num_heads: int. The number of attention heads. Must divide the width of the input.
        attention: A name, as in `keras_synth.layers.SyntheticAttention`, or of a baseline,
            `"lightweight_convolution"`, `"dynamic_convolution"` or `"linear"`; an alignment layer, or one
            of `keras_synth.layers.baselines`, which is copied; or its serialized config. Defaults to
            `"random+dot_product"`.
        max_length: int. The longest sequence, for an `attention` given by a name that needs it.
        **kwargs: `dropout`, `attention_dropout`, `activation`, `layer_norm_epsilon`,
            `kernel_initializer`, `bias_initializer`, `normalize_first` and `seed`, as in
            `keras_hub.layers.TransformerEncoder`; `feedforward_dropout`, dropout of the feed-forward
            network's hidden layer; `use_gated_activation`, whether that layer has a gate;
            `normalization`, `"layer_norm"` or `"rms_norm"`; `use_bias`; `relative_bias`, a
            `keras_synth.alignments.RelativeBiasAlignment` as in T5, which blocks may share; and keyword
            arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(batch, T, hidden_dim)`.
        padding_mask: Tensor of shape `(batch, T)`, nonzero for tokens and zero for padding.
        attention_mask: Tensor of shape `(T, T)`, `(batch, T, T)` or `(batch, H, T, T)`.
        training: bool. Whether dropout acts.
        return_attention_scores: bool. Whether to return the attention weights too.

    Returns:
        Tensor of the shape of `inputs`; with the attention weights, `(batch, H, T, T)`, if
        `return_attention_scores`.

    Example:

    >>> import numpy as np
    >>> block = SynthesizerEncoder(intermediate_dim=32, num_heads=2, max_length=16)
    >>> block(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    def build(self, inputs_shape):
        self.self_attention = self._self_attention(inputs_shape[-1])
        self.self_attention.build(inputs_shape)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.self_attention_residual.build(inputs_shape)
        self.feedforward = self._feedforward()
        self.feedforward.build(inputs_shape)
        self.feedforward_residual = self._residual("feedforward_residual")
        self.feedforward_residual.build(inputs_shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        x = self.self_attention_residual.enter(inputs)
        outputs = self.self_attention(
            x,
            query_mask=padding_mask,
            value_mask=padding_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        x, scores = outputs if return_attention_scores else (outputs, None)
        x = self.self_attention_residual(inputs, x, training=training)

        y = self.feedforward(self.feedforward_residual.enter(x), training=training)
        x = self.feedforward_residual(x, y, training=training)
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        return self.self_attention.compute_output_spec(
            inputs,
            query_mask=padding_mask,
            value_mask=padding_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
        )


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
        **kwargs: `dropout`, `attention_dropout`, `activation`, `layer_norm_epsilon`,
            `kernel_initializer`, `bias_initializer`, `normalize_first` and `seed`, as in
            `keras_hub.layers.TransformerDecoder`; `feedforward_dropout`, dropout of the feed-forward
            network's hidden layer; `use_gated_activation`, whether that layer has a gate;
            `normalization`, `"layer_norm"` or `"rms_norm"`; `use_bias`; `relative_bias`, a
            `keras_synth.alignments.RelativeBiasAlignment` as in T5, which blocks may share; and keyword
            arguments of `keras.layers.Layer`.

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
            `decoder_sequence`. Needed with `self_attention_cache`.
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
        self.self_attention = self._self_attention(shape[-1])
        self.self_attention.build(shape)
        self.self_attention_residual = self._residual("self_attention_residual")
        self.self_attention_residual.build(shape)
        self.cross_attention = None
        if encoder_sequence_shape is not None:
            self.cross_attention = self._attention_layer(DotProductAttention, shape[-1], "cross_attention")
            self.cross_attention.build(shape, encoder_sequence_shape)
            self.cross_attention_residual = self._residual("cross_attention_residual")
            self.cross_attention_residual.build(shape)
        self.feedforward = self._feedforward()
        self.feedforward.build(shape)
        self.feedforward_residual = self._residual("feedforward_residual")
        self.feedforward_residual.build(shape)

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
            training=training,
        )
        if self_attention_cache is not None:
            outputs, self_attention_cache = outputs
            caches += (self_attention_cache,)
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

        y = self.feedforward(self.feedforward_residual.enter(x), training=training)
        x = self.feedforward_residual(x, y, training=training)
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
