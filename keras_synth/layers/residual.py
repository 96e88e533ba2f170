"""The connection around each sublayer of a Transformer block, with its normalization."""

import keras

from keras_synth.core.layer import Layer
from keras_synth.core.recomputation import Dropout

#: The kinds of normalization; the second is that of [Zhang et al., 2019](https://arxiv.org/abs/1910.07467).
NORMALIZATIONS = {
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
}


def make_normalization(kind, epsilon, **kwargs):
    """Makes a normalization layer.

    Args:
        kind: One of `NORMALIZATIONS`.
        epsilon: float. What is added to the variance.
        **kwargs: Keyword arguments of the layer.
    """
    layer = NORMALIZATIONS[kind](epsilon=epsilon, **kwargs)
    layer.supports_masking = True  # each token is normalized by itself
    return layer


@keras.saving.register_keras_serializable("keras_synth")
class Residual(Layer):
    """A residual connection with dropout, and normalization before or after the sublayer.

    `norm(x + dropout(f(x)))`, or `x + dropout(f(norm(x)))` if `normalize_first`. Used in two steps, so
    that `f` may take and return what it likes: `y = f(residual.enter(x))`, then `residual(x, y)`.

    Args:
        normalize_first: bool. Whether the normalization comes before the sublayer.
        dropout: float. Dropout of the sublayer's output.
        layer_norm_epsilon: float. Epsilon of the normalization.
        normalization: `"layer_norm"` or `"rms_norm"`. Defaults to `"layer_norm"`.
        seed: int. Seed of dropout. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        normalize_first,
        dropout,
        layer_norm_epsilon,
        normalization="layer_norm",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.normalize_first = normalize_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self.normalization = normalization
        self.seed = seed
        self.norm = make_normalization(
            normalization, layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.dropout = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape, outputs_shape=None):
        self.norm.build(inputs_shape)

    def enter(self, inputs):
        """What the sublayer gets."""
        return self.norm(inputs) if self.normalize_first else inputs

    def call(self, inputs, outputs, training=None):
        outputs = inputs + self.dropout(outputs, training=training)
        return outputs if self.normalize_first else self.norm(outputs)

    def get_config(self):
        return {
            **super().get_config(),
            "normalize_first": self.normalize_first,
            "dropout": self.dropout.rate,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "normalization": self.normalization,
            "seed": self.seed,
        }
