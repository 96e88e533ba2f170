"""The encoder block."""

import keras

from keras_synth.layers.block import SynthesizerBlock


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
        **kwargs: The options of a block: `dropout`, `activation`, `normalize_first` and all the others that
            `keras_synth.layers.SynthesizerBlock` documents; and keyword arguments of `keras.layers.Layer`.

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
        self.self_attention = self._build_self_attention(inputs_shape)
        self.self_attention_gate = self._build_attention_gate(inputs_shape)
        self.self_attention_residual = self._build_residual("self_attention_residual", inputs_shape)
        self.feedforward = self._build_feedforward(inputs_shape)
        self.feedforward_residual = self._build_residual("feedforward_residual", inputs_shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        entered = self.self_attention_residual.enter(inputs)
        outputs = self.self_attention(
            entered,
            query_mask=padding_mask,
            value_mask=padding_mask,
            attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        x, scores = outputs if return_attention_scores else (outputs, None)
        if self.self_attention_gate is not None:
            x = self.self_attention_gate(entered, x)
        x = self.self_attention_residual(inputs, x, training=training)
        x = self._feed_forward(x, training)
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
