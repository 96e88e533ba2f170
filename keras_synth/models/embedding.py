"""Tokens and positions to vectors."""

import math

import keras
import keras_hub
from keras import ops

from keras_synth.core.layer import Layer


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerEmbedding(Layer):
    """Embeds tokens and their positions, with dropout.

    `dropout(sqrt(hidden_dim) * E[token] + position)`, as in
    [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762). `token_embedding` also makes logits of
    hidden vectors, when it is called with `reverse=True`.

    Args:
        vocabulary_size: int. The number of tokens.
        hidden_dim: int. The width of a vector.
        max_length: int. The longest sequence.
        positions: `"sinusoidal"`, `"learned"` or `None`. Defaults to `"sinusoidal"`.
        tie_weights: bool. Whether logits are made with the embedding itself instead of a matrix of their
            own, see [Press and Wolf, 2016](https://arxiv.org/abs/1608.05859). Defaults to `True`.
        dropout: float. Defaults to `0.0`.
        seed: int. The seed of dropout. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        token_ids: int tensor of shape `(batch, T)`.
        start_index: int or int tensor. The position of the first token. Defaults to `0`.
        training: bool. Whether dropout acts.

    Raises:
        ValueError: In a call, if a sequence is longer than `max_length`.
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        max_length,
        positions="sinusoidal",
        tie_weights=True,
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.max_length = max_length
        self.positions = positions
        self.tie_weights = tie_weights
        self.dropout = dropout
        self.seed = seed
        self.token_embedding = keras_hub.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            tie_weights=tie_weights,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            dtype=self.dtype_policy,
            name="token_embedding",
        )
        self.position_embedding = None
        if positions == "sinusoidal":
            # In float32, because the positions of a long sequence are not exact in less.
            self.position_embedding = keras_hub.layers.SinePositionEncoding(
                dtype="float32", name="position_embedding"
            )
        elif positions == "learned":
            self.position_embedding = keras_hub.layers.PositionEmbedding(
                max_length,
                initializer=keras.initializers.RandomNormal(stddev=0.5),
                dtype=self.dtype_policy,
                name="position_embedding",
            )
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, token_ids_shape):
        self.token_embedding.build(token_ids_shape)
        if self.position_embedding is not None:
            self.position_embedding.build((*token_ids_shape, self.hidden_dim))

    def call(self, token_ids, start_index=0, training=None):
        length = ops.shape(token_ids)[1]
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' takes sequences of at most "
                f"max_length={self.max_length} tokens. Received: a sequence of length {length}."
            )
        x = self.token_embedding(token_ids) * math.sqrt(self.hidden_dim)
        if self.position_embedding is not None:
            positions = self.position_embedding(x, start_index=start_index)
            x = x + ops.cast(positions, x.dtype)
        return self.dropout_layer(x, training=training)

    def compute_output_shape(self, token_ids_shape):
        return (*token_ids_shape, self.hidden_dim)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "max_length": self.max_length,
            "positions": self.positions,
            "tie_weights": self.tie_weights,
            "dropout": self.dropout,
            "seed": self.seed,
        }
