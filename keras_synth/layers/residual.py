"""What stands around and between the attention layers of a Transformer block."""

import keras

from keras_synth.core.initializers import fork

#: The kinds of normalization.
NORMALIZATIONS = {
    "layer_norm": keras.layers.LayerNormalization,
    "rms_norm": keras.layers.RMSNormalization,
}


def make_normalization(kind, epsilon, **kwargs):
    """Returns the normalization layer that `kind` names.

    Args:
        kind: `"layer_norm"`, or `"rms_norm"` of [Zhang et al., 2019](https://arxiv.org/abs/1910.07467).
        epsilon: float. What is added to the variance.
        **kwargs: Keyword arguments of the layer.

    Raises:
        ValueError: If `kind` is another name.
    """
    if kind not in NORMALIZATIONS:
        raise ValueError(
            f"`normalization` must be one of {', '.join(map(repr, NORMALIZATIONS))}. "
            f"Received: normalization={kind!r}"
        )
    layer = NORMALIZATIONS[kind](epsilon=epsilon, **kwargs)
    layer.supports_masking = True  # each token is normalized by itself
    return layer


class Residual(keras.layers.Layer):
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
        self.norm = make_normalization(
            normalization, layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
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

    With a gate it is `W2 (act(W1 x + b1) * (V x + c)) + b2`, as in
    [Shazeer, 2020](https://arxiv.org/abs/2002.05202).

    Args:
        intermediate_dim: int. The width of the hidden layer.
        activation: Activation of the hidden layer.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        use_bias: bool. Whether there are biases. Defaults to `True`.
        use_gate: bool. Whether there is a gate. Defaults to `False`.
        dropout: float. Dropout of the hidden layer. Defaults to `0.0`.
        seed: int. Seed of dropout. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        intermediate_dim,
        activation,
        kernel_initializer,
        bias_initializer,
        use_bias=True,
        use_gate=False,
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.use_bias = use_bias
        self.use_gate = use_gate
        self.dropout = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        self.intermediate = self._dense(self.intermediate_dim, self.activation, "intermediate")
        self.intermediate.build(inputs_shape)
        self.gate = None
        if self.use_gate:
            self.gate = self._dense(self.intermediate_dim, None, "gate")
            self.gate.build(inputs_shape)
        self.output_dense = self._dense(inputs_shape[-1], None, "output")
        self.output_dense.build((*inputs_shape[:-1], self.intermediate_dim))

    def call(self, inputs, training=None):
        hidden = self.intermediate(inputs)
        if self.gate is not None:
            hidden = hidden * self.gate(inputs)
        return self.output_dense(self.dropout(hidden, training=training))

    def _dense(self, units, activation, name):
        return keras.layers.Dense(
            units,
            activation=activation,
            use_bias=self.use_bias,
            kernel_initializer=fork(self.kernel_initializer, name),
            bias_initializer=fork(self.bias_initializer, name),
            dtype=self.dtype_policy,
            name=name,
        )
