"""What the three backbones have in common: arguments, embedding, and stacks of blocks."""

import keras
import keras_hub

from keras_synth import alignments
from keras_synth.core.initializers import fork_seed
from keras_synth.layers import SynthesizerDecoder, SynthesizerEncoder
from keras_synth.layers.residual import make_normalization
from keras_synth.models.embedding import SynthesizerEmbedding
from keras_synth.models.sizes import size_config

#: The arguments of a backbone that its blocks take as they are.
_BLOCK_ARGUMENTS = (
    "max_length",
    "dropout",
    "attention_dropout",
    "feedforward_dropout",
    "use_gated_activation",
    "normalization",
    "layer_norm_epsilon",
    "normalize_first",
    "use_bias",
)
_CONFIG = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "attention",
    *_BLOCK_ARGUMENTS,
    "positions",
    "tie_word_embeddings",
    "seed",
)


#: What a decoder block calls its caches, in the order in which it returns them.
_CACHES = ("self_attention_cache", "cross_attention_cache")

#: The kinds of positions.
POSITIONS = ("sinusoidal", "learned", "relative_bias", None)


class SynthesizerBackbone(keras_hub.models.Backbone):
    """Base class of the backbones.

    A subclass says in `connect` how the stacks of blocks are put together.

    Args:
        vocabulary_size: int. The number of tokens in the vocabulary.
        num_layers: int. The number of blocks of each stack.
        num_heads: int. The number of attention heads. Must divide `hidden_dim`.
        hidden_dim: int. The width of the embedding and of every block.
        intermediate_dim: int. The width of the feed-forward networks' hidden layer.
        max_length: int. The longest sequence.
        attention: The self-attention, as in `keras_synth.layers.SynthesizerEncoder`, or a list with one
            for each block. Defaults to `"random+dot_product"`.
        dropout: float. Dropout of the embeddings and of the output of each sublayer. Defaults to `0.1`.
        attention_dropout: float. Dropout of the attention weights. Defaults to `0.0`.
        feedforward_dropout: float. Dropout of the feed-forward networks' hidden layer. Defaults to
            `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"relu"`.
        use_gated_activation: bool. Whether the feed-forward networks have a gate. Defaults to `False`.
        normalization: `"layer_norm"` or `"rms_norm"`. Defaults to `"layer_norm"`.
        layer_norm_epsilon: float. Epsilon of the normalizations. Defaults to `1e-5`.
        normalize_first: bool. Whether blocks are pre-norm, with a normalization after the last one.
            Defaults to `True`.
        use_bias: bool. Whether attention and the feed-forward networks have biases. Defaults to `True`.
        positions: `"sinusoidal"`, `"learned"`, `"relative_bias"` or `None`. With the third, a bias for each
            distance is added to the logits of self-attention, one for all blocks of a stack, as in
            [Raffel et al., 2019](https://arxiv.org/abs/1910.10683). Defaults to `"sinusoidal"`.
        tie_word_embeddings: bool. Whether logits are made with the embedding itself instead of a matrix
            of their own. Defaults to `True`.
        seed: int. The seed of dropout. Defaults to `None`.
        dtype: The dtype policy of all layers.
        **kwargs: Keyword arguments of `keras_hub.models.Backbone`.
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
        dropout=0.1,
        attention_dropout=0.0,
        feedforward_dropout=0.0,
        activation="relu",
        use_gated_activation=False,
        normalization="layer_norm",
        layer_norm_epsilon=1e-5,
        normalize_first=True,
        use_bias=True,
        positions="sinusoidal",
        tie_word_embeddings=True,
        seed=None,
        dtype=None,
        **kwargs,
    ):
        for name, value in (
            ("vocabulary_size", vocabulary_size),
            ("num_heads", num_heads),
            ("hidden_dim", hidden_dim),
            ("max_length", max_length),
        ):
            check_positive_int(name, value)
        if hidden_dim % num_heads:
            raise ValueError(
                f"`num_heads` must divide `hidden_dim`. Received: num_heads={num_heads}, "
                f"hidden_dim={hidden_dim}"
            )
        if positions not in POSITIONS:
            raise ValueError(
                f"`positions` must be one of {', '.join(map(repr, POSITIONS))}. "
                f"Received: positions={positions!r}"
            )
        has_relative_bias = positions == "relative_bias"

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_length = max_length
        self.attention = one_per_layer(attention, num_layers)
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.feedforward_dropout = feedforward_dropout
        self.activation = keras.activations.get(activation)
        self.use_gated_activation = use_gated_activation
        self.normalization = normalization
        self.layer_norm_epsilon = layer_norm_epsilon
        self.normalize_first = normalize_first
        self.use_bias = use_bias
        self.positions = positions
        self.tie_word_embeddings = tie_word_embeddings
        self.seed = seed

        # === Layers ===
        self.embedding = SynthesizerEmbedding(
            vocabulary_size,
            hidden_dim,
            max_length,
            None if has_relative_bias else positions,
            tie_word_embeddings,
            dropout,
            fork_seed(seed, "embedding"),
            dtype=dtype,
            name="embedding",
        )
        self.token_embedding = self.embedding.token_embedding

        def stack(cls, name, attention):
            """The blocks of one side, and the normalization after them."""
            relative_bias = None
            if has_relative_bias:
                relative_bias = alignments.RelativeBiasAlignment(
                    num_heads, dtype=dtype, name=f"{name}_relative_bias"
                )
            blocks = [
                cls(
                    intermediate_dim,
                    num_heads,
                    attention=spec,
                    activation=self.activation,
                    **{argument: getattr(self, argument) for argument in _BLOCK_ARGUMENTS},
                    relative_bias=relative_bias,
                    seed=fork_seed(seed, f"{name}_{i}"),
                    dtype=dtype,
                    name=f"{name}_{i}",
                )
                for i, spec in enumerate(attention)
            ]
            if normalize_first:
                norm = make_normalization(
                    normalization, layer_norm_epsilon, dtype=dtype, name=f"{name}_norm"
                )
            else:
                norm = keras.layers.Identity(dtype=dtype, name=f"{name}_norm")
            return blocks, norm

        # === Functional Model ===
        inputs, outputs = self.connect(stack)
        super().__init__(inputs=inputs, outputs=outputs, dtype=dtype, **kwargs)

    def connect(self, stack):
        """Makes the stacks of blocks and runs them.

        Args:
            stack: A function from a class of blocks, a name and a list of alignments to a list of blocks
                and the normalization after them.

        Returns:
            The inputs and outputs of the functional model.
        """
        raise NotImplementedError

    @classmethod
    def from_size(cls, size, **kwargs):
        """Makes an untrained backbone of a size that is known from the literature.

        Args:
            size: string. A key of `keras_synth.models.SIZES`.
            **kwargs: Arguments of the backbone, in addition to those of the size or instead of them.

        Raises:
            ValueError: If the size is unknown.
        """
        return cls(**{**size_config(size), **kwargs})

    def get_config(self):
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in _CONFIG},
            "activation": keras.activations.serialize(self.activation),
        }


class Encoding:
    """Mixin: a stack of encoder blocks."""

    def make_encoder(self, stack):
        self.encoder_layers, self.encoder_norm = stack(SynthesizerEncoder, "encoder", self.attention)

    def encode(self, token_ids, padding_mask):
        """The encoder's output, `(batch, T, hidden_dim)`."""
        x = self.embedding(token_ids)
        for layer in self.encoder_layers:
            x = layer(x, padding_mask=padding_mask)
        return self.encoder_norm(x)


class Decoding:
    """Mixin: a stack of decoder blocks, which also decodes step by step with a cache."""

    def make_decoder(self, stack, attention):
        self.decoder_layers, self.decoder_norm = stack(SynthesizerDecoder, "decoder", attention)

    def decode(self, token_ids, padding_mask, **encoder):
        """The decoder's output, `(batch, T, hidden_dim)`.

        Args:
            token_ids: int tensor of shape `(batch, T)`.
            padding_mask: Tensor of shape `(batch, T)`.
            **encoder: `encoder_sequence` and `encoder_padding_mask`, where there is an encoder.
        """
        x = self.embedding(token_ids)
        for layer in self.decoder_layers:
            x = layer(x, decoder_padding_mask=padding_mask, **encoder)
        return self.decoder_norm(x)

    def init_cache(self, batch_size, length, encoder_padding_mask=None):
        """An empty cache, as `decode_with_cache` takes it.

        Args:
            batch_size: int or int tensor.
            length: int or int tensor. The number of positions, at most `max_length`.
            encoder_padding_mask: Tensor of shape `(batch, S)`, where there is an encoder.

        Returns:
            A dict of nested tensors, whose first axis is the batch.
        """
        encoder_length = None
        cache = {}
        if encoder_padding_mask is not None:
            encoder_length = keras.ops.shape(encoder_padding_mask)[1]
            cache["encoder_padding_mask"] = keras.ops.cast(encoder_padding_mask, "bool")
        cache["blocks"] = []
        for layer in self.decoder_layers:
            caches = layer.init_cache(batch_size, length, encoder_length)
            cache["blocks"].append({n: c for n, c in zip(_CACHES, caches, strict=True) if c is not None})
        return cache

    def decode_with_cache(self, token_ids, cache, index, encoder_sequence=None):
        """Decodes a part of a sequence.

        Args:
            token_ids: int tensor of shape `(batch, T)`, the tokens from `index` on.
            cache: What `init_cache` or an earlier call returned.
            index: int or int tensor. The position of the first token.
            encoder_sequence: The result of `encode`, in the first call; later its keys and values are in
                the cache.

        Returns:
            The decoder's output, `(batch, T, hidden_dim)`, and the updated cache.
        """
        x = self.embedding(token_ids, start_index=index)
        blocks = []
        for layer, caches in zip(self.decoder_layers, cache["blocks"], strict=True):
            x, *updated = layer(
                x,
                encoder_sequence,
                encoder_padding_mask=cache.get("encoder_padding_mask"),
                self_attention_cache_update_index=index,
                cross_attention_cache_update_index=None if encoder_sequence is None else 0,
                **caches,
            )
            # In their order, which JAX does not keep in the dicts of a loop.
            names = [name for name in _CACHES if name in caches]
            blocks.append(dict(zip(names, updated, strict=True)))
        return self.decoder_norm(x), {**cache, "blocks": blocks}


def tokens_and_mask(side=""):
    """The inputs of one side, whose names begin with `side`."""
    return {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in (f"{side}token_ids", f"{side}padding_mask")
    }


def one_per_layer(attention, num_layers):
    """A list with the alignment spec of each layer, in a form that JSON can hold."""
    check_positive_int("num_layers", num_layers)
    if not isinstance(attention, (list, tuple)):
        attention = [attention] * num_layers
    if len(attention) != num_layers:
        raise ValueError(
            f"A list of alignments must have one for each of the num_layers={num_layers} layers. "
            f"Received: a list of {len(attention)}"
        )
    return [alignments.serialize(spec) for spec in attention]


def check_positive_int(name, value):
    """Raises a `ValueError` if the argument called `name` is no positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
