"""What the three backbones have in common: arguments, embedding, and stacks of blocks."""

import keras
import keras_hub

from keras_synth import alignments
from keras_synth.core.checks import check_choice, check_positive_int
from keras_synth.core.initializers import fork_seed
from keras_synth.core.serialization import serialize_arguments
from keras_synth.core.signatures import own_parameters
from keras_synth.layers import SynthesizerBlock, SynthesizerDecoder, SynthesizerEncoder
from keras_synth.layers.residual import make_normalization
from keras_synth.models.embedding import SynthesizerEmbedding
from keras_synth.models.freezing import FrozenLayers
from keras_synth.models.sizes import get_size

#: The arguments of blocks that backbones give them by themselves, as each block needs others.
_GIVEN = {
    "intermediate_dim",
    "num_heads",
    "attention",
    "max_length",
    "dropout",
    "kernel_initializer",
    "bias_initializer",
    "relative_bias",
    "seed",
}
#: The options of blocks, which backbones take and hand on, and the defaults that differ.
BLOCK_OPTIONS = tuple(name for name in own_parameters(SynthesizerBlock) if name not in _GIVEN)
_DEFAULTS = {"attention_dropout": 0.0, "normalize_first": True}

#: What a decoder block calls its caches, in the order in which it returns them.
_CACHES = ("self_attention_cache", "cross_attention_cache")

#: The kinds of positions.
POSITIONS = ("sinusoidal", "learned", "relative_bias", None)


class SynthesizerBackbone(FrozenLayers, keras_hub.models.Backbone):
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
        positions: `"sinusoidal"`, `"learned"`, `"relative_bias"` or `None`. With the third, a bias for each
            distance is added to the logits of self-attention, one for all blocks of a stack, as in
            [Raffel et al., 2019](https://arxiv.org/abs/1910.10683). Defaults to `"sinusoidal"`.
        tie_word_embeddings: bool. Whether logits are made with the embedding itself instead of a matrix
            of their own. Defaults to `True`.
        seed: int. The seed of dropout. Defaults to `None`.
        dtype: The dtype policy of all layers.
        **kwargs: The options of blocks, as `keras_synth.layers.SynthesizerBlock` documents them, but for
            initializers. Other defaults than there: `attention_dropout` is `0.0`, and `normalize_first` is
            `True`, with a normalization after the last block. And keyword arguments of
            `keras_hub.models.Backbone`.
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
            check_positive_int(type(self), name, value)
        if hidden_dim % num_heads:
            raise ValueError(
                f"`num_heads` must divide `hidden_dim`. Received: num_heads={num_heads}, "
                f"hidden_dim={hidden_dim}"
            )
        check_choice(type(self), "positions", positions, POSITIONS)

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_length = max_length
        self.attention = one_per_layer(type(self), attention, num_layers)
        self.dropout = dropout
        self.positions = positions
        self.tie_word_embeddings = tie_word_embeddings
        self.seed = seed
        for name in BLOCK_OPTIONS:
            default = _DEFAULTS.get(name, own_parameters(SynthesizerBlock)[name].default)
            setattr(self, name, kwargs.pop(name, default))
        unknown = {name: value for name, value in kwargs.items() if name not in ("name", "trainable")}
        if unknown:  # KerasHub would pass over them
            raise ValueError(f"Unrecognized keyword arguments passed to {type(self).__name__}: {unknown}")
        self.activation = keras.activations.get(self.activation)

        # === Layers ===
        self.embedding = SynthesizerEmbedding(
            vocabulary_size,
            hidden_dim,
            max_length,
            None if positions == "relative_bias" else positions,
            tie_word_embeddings,
            dropout,
            fork_seed(seed, "embedding"),
            dtype=dtype,
            name="embedding",
        )
        self.token_embedding = self.embedding.token_embedding

        # === Functional Model ===
        inputs, outputs = self.connect(dtype)
        super().__init__(inputs=inputs, outputs=outputs, dtype=dtype, **kwargs)

    def connect(self, dtype):
        """Makes the stacks of blocks and runs them.

        Args:
            dtype: The dtype policy of all layers.

        Returns:
            The inputs and outputs of the functional model.
        """
        raise NotImplementedError

    def make_stack(self, block, name, attention, dtype):
        """Makes the blocks of one side, and the normalization after them.

        Args:
            block: The class of the blocks.
            name: string. What their names begin with.
            attention: The list of what each of them attends with.
            dtype: The dtype policy of all layers.
        """
        relative_bias = None
        if self.positions == "relative_bias":
            relative_bias = alignments.RelativeBiasAlignment(
                self.num_heads, dtype=dtype, name=f"{name}_relative_bias"
            )
        blocks = [
            block(
                self.intermediate_dim,
                self.num_heads,
                attention=spec,
                max_length=self.max_length,
                dropout=self.dropout,
                relative_bias=relative_bias,
                seed=fork_seed(self.seed, f"{name}_{i}"),
                dtype=dtype,
                name=f"{name}_{i}",
                **{option: getattr(self, option) for option in BLOCK_OPTIONS},
            )
            for i, spec in enumerate(attention)
        ]
        if self.normalize_first:
            norm = make_normalization(
                self.normalization, self.layer_norm_epsilon, dtype=dtype, name=f"{name}_norm"
            )
        else:
            norm = keras.layers.Identity(dtype=dtype, name=f"{name}_norm")
        return blocks, norm

    @property
    def max_sequence_length(self):
        """`max_length`, by the name that it has in KerasHub."""
        return self.max_length

    @classmethod
    def from_size(cls, size, **kwargs):
        """Makes an untrained backbone of a size that is known from the literature.

        Args:
            size: string. A key of `keras_synth.models.SIZES`.
            **kwargs: Arguments of the backbone, in addition to those of the size or instead of them.

        Raises:
            ValueError: If the size is unknown.
        """
        return cls(**{**get_size(size), **kwargs})

    def get_config(self):
        names = [*own_parameters(SynthesizerBackbone), *BLOCK_OPTIONS]
        names.remove("dtype")  # which the base class serializes
        return {**super().get_config(), **serialize_arguments(self, names)}


class Encoding:
    """Mixin: a stack of encoder blocks."""

    def make_encoder(self, dtype):
        self.encoder_layers, self.encoder_norm = self.make_stack(
            SynthesizerEncoder, "encoder", self.attention, dtype
        )

    def encode(self, token_ids, padding_mask):
        """The encoder's output, `(batch, T, hidden_dim)`."""
        x = self.embedding(token_ids)
        for layer in self.encoder_layers:
            x = layer(x, padding_mask=padding_mask)
        return self.encoder_norm(x)


class Decoding:
    """Mixin: a stack of decoder blocks, which also decodes step by step with a cache."""

    def make_decoder(self, attention, dtype):
        self.decoder_layers, self.decoder_norm = self.make_stack(
            SynthesizerDecoder, "decoder", attention, dtype
        )

    def decode(self, token_ids, padding_mask, intercept=lambda x, i: x, **encoder):
        """The decoder's output, `(batch, T, hidden_dim)`.

        Args:
            token_ids: int tensor of shape `(batch, T)`.
            padding_mask: Tensor of shape `(batch, T)`.
            intercept: A function of what a block returns and the number of the block, or of the embeddings
                and -1, that returns what the next block gets. Defaults to one that changes nothing.
            **encoder: `encoder_sequence` and `encoder_padding_mask`, where there is an encoder.
        """
        x = intercept(self.embedding(token_ids), -1)
        for i, layer in enumerate(self.decoder_layers):
            x = intercept(layer(x, decoder_padding_mask=padding_mask, **encoder), i)
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

    def decode_with_cache(self, token_ids, cache, index, encoder_sequence=None, length=None):
        """Decodes a part of a sequence.

        Args:
            token_ids: int tensor of shape `(batch, T)`, the tokens from `index` on.
            cache: What `init_cache` or an earlier call returned.
            index: int or int tensor. The position of the first token.
            encoder_sequence: The result of `encode`, in the first call; later its keys and values are in
                the cache.
            length: int or int tensor. How many of the tokens enter caches of constant size; those after
                them may come again. Defaults to all.

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
                self_attention_cache_update_length=length,
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


def one_per_layer(owner, attention, num_layers):
    """A list with the attention of each layer, in a form that JSON can hold."""
    check_positive_int(owner, "num_layers", num_layers)
    if not isinstance(attention, (list, tuple)):
        attention = [attention] * num_layers
    if len(attention) != num_layers:
        raise ValueError(
            f"A list of alignments must have one for each of the num_layers={num_layers} layers. "
            f"Received: a list of {len(attention)}"
        )
    return [alignments.serialize(spec) for spec in attention]
