"""The network in a Transformer block that treats each token by itself."""

import keras

from keras_synth.core.projections import Projecting
from keras_synth.core.recomputation import Dropout


@keras.saving.register_keras_serializable("keras_synth")
class FeedForward(Projecting):
    """The position-wise network of a block: `W2 act(W1 x + b1) + b2`.

    With a gate it is `W2 (act(W1 x + b1) * (V x + c)) + b2`, as in
    [Shazeer, 2020](https://arxiv.org/abs/2002.05202).

    Args:
        intermediate_dim: int. The width of the hidden layer.
        activation: Activation of the hidden layer.
        use_gate: bool. Whether there is a gate. Defaults to `False`.
        dropout: float. Dropout of the hidden layer. Defaults to `0.0`.
        seed: int. Seed of dropout. Defaults to `None`.
        **kwargs: Keyword arguments of `Projecting` and of `keras.layers.Layer`.
    """

    def __init__(self, intermediate_dim, activation, use_gate=False, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.use_gate = use_gate
        self.seed = seed
        self.dropout = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        self.intermediate = self.projection("btd,di->bti", (self.intermediate_dim,), "intermediate")
        self.intermediate.build(inputs_shape)
        self.gate = None
        if self.use_gate:
            self.gate = self.projection("btd,di->bti", (self.intermediate_dim,), "gate")
            self.gate.build(inputs_shape)
        self.output_dense = self.projection("bti,id->btd", (inputs_shape[-1],), "output")
        self.output_dense.build((*inputs_shape[:-1], self.intermediate_dim))

    def call(self, inputs, training=None):
        hidden = self.activation(self.intermediate(inputs))
        if self.gate is not None:
            hidden = hidden * self.gate(inputs)
        return self.output_dense(self.dropout(hidden, training=training))

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "use_gate": self.use_gate,
            "dropout": self.dropout.rate,
            "seed": self.seed,
        }
