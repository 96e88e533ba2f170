"""The encoder-decoder Transformer of the paper, with synthesized self-attention."""

import math

import keras
import keras_hub

from keras_synth import alignments
from keras_synth.layers import SynthesizerDecoder, SynthesizerEncoder


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerEncoderDecoderBackbone(keras_hub.models.Backbone):
    """An encoder-decoder Transformer whose self-attention is synthesized.

    The architecture of [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) with the attention of
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743): one embedding for both languages, with
    sinusoidal positions; cross-attention is a dot product. Inputs are a dict with
    `"encoder_token_ids"`, `"encoder_padding_mask"`, `"decoder_token_ids"` and
    `"decoder_padding_mask"`; outputs a dict with `"encoder_sequence_output"` and
    `"decoder_sequence_output"`.

    Args:
        vocabulary_size: int. The number of tokens in the vocabulary.
        num_layers: int. The number of encoder blocks, and of decoder blocks.
        num_heads: int. The number of attention heads. Must divide `hidden_dim`.
        hidden_dim: int. The width of the embedding and of every block.
        intermediate_dim: int. The width of the feed-forward networks' hidden layer.
        max_length: int. The longest sequence, of either side.
        attention: The alignment of the self-attention, as in `keras_synth.layers.SynthesizerEncoder`,
            or a list with one for each block. Defaults to `"random+dot_product"`.
        decoder_attention: The same for the decoder. Defaults to `attention`.
        dropout: float. Dropout of the embeddings and of the output of each sublayer.
        attention_dropout: float. Dropout of the attention weights. Defaults to `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"relu"`.
        layer_norm_epsilon: float. Epsilon of the layer normalizations. Defaults to `1e-5`.
        normalize_first: bool. Whether blocks are pre-norm, with a normalization after the last one.
            Defaults to `True`.
        seed: int. The seed of dropout. Defaults to `None`.
        dtype: The dtype policy of all layers.
        **kwargs: Keyword arguments of `keras_hub.models.Backbone`.

    Raises:
        ValueError: If `num_heads` does not divide `hidden_dim`, or `attention` is wrong.

    Example:

    >>> import numpy as np
    >>> backbone = SynthesizerEncoderDecoderBackbone(
    ...     vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=64,
    ... )
    >>> outputs = backbone({
    ...     "encoder_token_ids": np.ones((3, 7), "int32"),
    ...     "encoder_padding_mask": np.ones((3, 7), "bool"),
    ...     "decoder_token_ids": np.ones((3, 5), "int32"),
    ...     "decoder_padding_mask": np.ones((3, 5), "bool"),
    ... })
    >>> outputs["decoder_sequence_output"].shape
    TensorShape([3, 5, 16])
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_length,
        attention="random+dot_product",
        decoder_attention=None,
        dropout=0.1,
        attention_dropout=0.0,
        activation="relu",
        layer_norm_epsilon=1e-5,
        normalize_first=True,
        seed=None,
        dtype=None,
        **kwargs,
    ):
        if hidden_dim % num_heads:
            raise ValueError(
                f"`num_heads` must divide `hidden_dim`. Received: num_heads={num_heads}, "
                f"hidden_dim={hidden_dim}"
            )
        encoder_specs = one_per_layer(attention, num_layers)
        decoder_specs = one_per_layer(
            attention if decoder_attention is None else decoder_attention, num_layers
        )

        # === Layers ===
        # Read by `embed`, which is used before the functional model exists.
        self.embedding_scale = math.sqrt(hidden_dim)
        self.token_embedding = keras_hub.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            dtype=dtype,
            name="token_embedding",
        )
        # In float32, because the positions of a long sequence are not exact in less.
        self.position_embedding = keras_hub.layers.SinePositionEncoding(
            dtype="float32", name="position_embedding"
        )
        self.embedding_dropout = keras.layers.Dropout(
            dropout, seed=seed, dtype=dtype, name="embedding_dropout"
        )

        def blocks(cls, name, specs):
            return [
                cls(
                    intermediate_dim,
                    num_heads,
                    attention=spec,
                    max_length=max_length,
                    dropout=dropout,
                    attention_dropout=attention_dropout,
                    activation=activation,
                    layer_norm_epsilon=layer_norm_epsilon,
                    normalize_first=normalize_first,
                    seed=seed,
                    dtype=dtype,
                    name=f"{name}_{i}",
                )
                for i, spec in enumerate(specs)
            ]

        def final_norm(name):
            if not normalize_first:
                return keras.layers.Identity(dtype=dtype, name=name)
            return keras.layers.LayerNormalization(epsilon=layer_norm_epsilon, dtype=dtype, name=name)

        self.encoder_layers = blocks(SynthesizerEncoder, "encoder", encoder_specs)
        self.encoder_norm = final_norm("encoder_norm")
        self.decoder_layers = blocks(SynthesizerDecoder, "decoder", decoder_specs)
        self.decoder_norm = final_norm("decoder_norm")

        # === Functional Model ===
        def tokens_and_mask(side):
            return (
                keras.Input((None,), dtype="int32", name=f"{side}_token_ids"),
                keras.Input((None,), dtype="int32", name=f"{side}_padding_mask"),
            )

        encoder_token_ids, encoder_padding_mask = tokens_and_mask("encoder")
        decoder_token_ids, decoder_padding_mask = tokens_and_mask("decoder")
        encoder_output = self.encode(encoder_token_ids, encoder_padding_mask)
        x = self.embed(decoder_token_ids)
        for layer in self.decoder_layers:
            x = layer(
                x,
                encoder_output,
                decoder_padding_mask=decoder_padding_mask,
                encoder_padding_mask=encoder_padding_mask,
            )
        super().__init__(
            inputs={
                "encoder_token_ids": encoder_token_ids,
                "encoder_padding_mask": encoder_padding_mask,
                "decoder_token_ids": decoder_token_ids,
                "decoder_padding_mask": decoder_padding_mask,
            },
            outputs={
                "encoder_sequence_output": encoder_output,
                "decoder_sequence_output": self.decoder_norm(x),
            },
            dtype=dtype,
            **kwargs,
        )

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_length = max_length
        self.attention = encoder_specs
        self.decoder_attention = decoder_specs
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.normalize_first = normalize_first
        self.seed = seed

    def embed(self, token_ids, start_index=0):
        """Embeds tokens and their positions, the first of which is `start_index`."""
        x = self.token_embedding(token_ids) * self.embedding_scale
        positions = self.position_embedding(x, start_index=start_index)
        return self.embedding_dropout(x + keras.ops.cast(positions, x.dtype))

    def encode(self, token_ids, padding_mask):
        """The encoder's output, `(batch, S, hidden_dim)`."""
        x = self.embed(token_ids)
        for layer in self.encoder_layers:
            x = layer(x, padding_mask=padding_mask)
        return self.encoder_norm(x)

    def init_cache(self, batch_size, length, encoder_length):
        """Empty caches of all decoder blocks, as `decode` takes them."""
        return [layer.init_cache(batch_size, length, encoder_length) for layer in self.decoder_layers]

    def decode(self, token_ids, encoder_padding_mask, cache, index, encoder_output=None):
        """Decodes a part of a sequence with caches.

        Args:
            token_ids: int tensor of shape `(batch, T)`, the tokens from `index` on.
            encoder_padding_mask: Tensor of shape `(batch, S)`.
            cache: What `init_cache` or an earlier call returned.
            index: int or int tensor. The position of the first token.
            encoder_output: The result of `encode`, in the first call; later its keys and values are
                in the cache.

        Returns:
            The decoder's output, `(batch, T, hidden_dim)`, and the updated cache.
        """
        x = self.embed(token_ids, start_index=index)
        updated = []
        for layer, (self_attention_cache, cross_attention_cache) in zip(
            self.decoder_layers, cache, strict=True
        ):
            x, *caches = layer(
                x,
                encoder_output,
                encoder_padding_mask=encoder_padding_mask,
                self_attention_cache=self_attention_cache,
                self_attention_cache_update_index=index,
                cross_attention_cache=cross_attention_cache,
                cross_attention_cache_update_index=None if encoder_output is None else 0,
            )
            updated.append(tuple(caches))
        return self.decoder_norm(x), updated

    def get_config(self):
        config = super().get_config()
        config.update(
            vocabulary_size=self.vocabulary_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_dim=self.hidden_dim,
            intermediate_dim=self.intermediate_dim,
            max_length=self.max_length,
            attention=self.attention,
            decoder_attention=self.decoder_attention,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation=keras.activations.serialize(self.activation),
            layer_norm_epsilon=self.layer_norm_epsilon,
            normalize_first=self.normalize_first,
            seed=self.seed,
        )
        return config


def one_per_layer(attention, num_layers):
    """A list with the alignment spec of each layer, in a form that JSON can hold."""
    if not isinstance(attention, (list, tuple)):
        attention = [attention] * num_layers
    if len(attention) != num_layers:
        raise ValueError(
            f"A list of alignments must have one for each of the num_layers={num_layers} layers. "
            f"Received: a list of {len(attention)}"
        )
    return [alignments.serialize(spec) for spec in attention]
