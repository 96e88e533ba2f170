"""What stands around and between the attention layers of a Transformer block."""

import keras

from keras_synth.alignments.initializers import fork


class Residual(keras.layers.Layer):
    """A residual connection with dropout, and layer normalization before or after the sublayer.

    `norm(x + dropout(f(x)))`, or `x + dropout(f(norm(x)))` if `normalize_first`. Used in two steps, so
    that `f` may take and return what it likes: `y = f(residual.enter(x))`, then `residual(x, y)`.

    Args:
        normalize_first: bool. Whether the normalization comes before the sublayer.
        dropout: float. Dropout of the sublayer's output.
        layer_norm_epsilon: float. Epsilon of the normalization.
        seed: int. Seed of dropout. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(self, normalize_first, dropout, layer_norm_epsilon, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.normalize_first = normalize_first
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.dropout = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape, outputs_shape=None):
        self.norm.build(inputs_shape)

    def enter(self, inputs):
        """What the sublayer gets."""
        return self.norm(inputs) if self.normalize_first else inputs

    def call(self, inputs, outputs, training=None):
        outputs = inputs + self.dropout(outputs, training=training)
        return outputs if self.normalize_first else self.norm(outputs)


class FeedForward(keras.layers.Layer):
    """The position-wise network of a block: `W2 act(W1 x + b1) + b2`.

    Args:
        intermediate_dim: int. The width of the hidden layer.
        activation: Activation of the hidden layer.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(self, intermediate_dim, activation, kernel_initializer, bias_initializer, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer

    def build(self, inputs_shape):
        self.intermediate = self._dense(self.intermediate_dim, self.activation, "intermediate")
        self.intermediate.build(inputs_shape)
        self.output_dense = self._dense(inputs_shape[-1], None, "output")
        self.output_dense.build((*inputs_shape[:-1], self.intermediate_dim))

    def call(self, inputs):
        return self.output_dense(self.intermediate(inputs))

    def _dense(self, units, activation, name):
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=fork(self.kernel_initializer, name),
            bias_initializer=fork(self.bias_initializer, name),
            dtype=self.dtype_policy,
            name=name,
        )
