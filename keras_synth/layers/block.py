"""What the two blocks of a Transformer have in common."""

import keras

from keras_synth import alignments
from keras_synth.core.checks import check_choice, check_positive_int, check_rate
from keras_synth.core.initializers import fork, fork_seed
from keras_synth.core.layer import Layer
from keras_synth.core.serialization import serialize_arguments
from keras_synth.core.signatures import own_parameters
from keras_synth.layers.attention import check_attention, make_self_attention, resize_attention
from keras_synth.layers.feedforward import FeedForward
from keras_synth.layers.gate import AttentionGate
from keras_synth.layers.residual import NORMALIZATIONS, Residual


class SynthesizerBlock(Layer):
    """Base class of `SynthesizerEncoder` and `SynthesizerDecoder`: their arguments, and their sublayers.

    The arguments from `dropout` on are the options of a block. Backbones hand them on as they are.

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
        use_attention_gate: bool. Whether gates weigh the input of self-attention and its output, and add
            them up: `sigmoid(W1 [x; y]) * x + sigmoid(W2 [x; y]) * y`, as in the average attention of
            [Zhang et al., 2018](https://arxiv.org/abs/1805.00631). Defaults to `False`.
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
        use_attention_gate=False,
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
        self.use_attention_gate = use_attention_gate
        # What is wrong is an error now, not when the width of the input is known.
        for name in ("dropout", "attention_dropout", "feedforward_dropout"):
            check_rate(self, name, getattr(self, name))
        check_choice(self, "normalization", normalization, NORMALIZATIONS)
        check_attention(attention, num_heads, max_length, relative_bias)

    def get_config(self):
        return {**super().get_config(), **serialize_arguments(self, own_parameters(SynthesizerBlock))}

    def resize_attention(self, max_length):
        """Returns what to say as `attention` of the same block for sequences of another length.

        Args:
            max_length: int. The longest sequence.

        Raises:
            ValueError: If the attention cannot have this `max_length`.
        """
        return resize_attention(self.attention, self.self_attention, max_length, self.relative_bias)

    def _build_self_attention(self, shape):
        arguments = {
            "attention": self.attention,
            "max_length": self.max_length,
            "relative_bias": self.relative_bias,
        }
        return self._build_attention(make_self_attention, "self_attention", shape, **arguments)

    def _build_attention(self, make, name, shape, *other_shapes, **kwargs):
        hidden_dim = shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                f"The width of the input of {type(self).__name__} '{self.name}' must be divisible by "
                f"num_heads={self.num_heads}. Received: an input of width {hidden_dim}"
            )
        layer = make(
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
        layer.build(shape, *other_shapes)
        return layer

    def _build_attention_gate(self, shape):
        if not self.use_attention_gate:
            return None
        name = "self_attention_gate"
        layer = AttentionGate(
            kernel_initializer=fork(self.kernel_initializer, name),
            bias_initializer=fork(self.bias_initializer, name),
            use_bias=self.use_bias,
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build(shape)
        return layer

    def _build_feedforward(self, shape):
        layer = FeedForward(
            self.intermediate_dim,
            self.activation,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            use_bias=self.use_bias,
            use_gate=self.use_gated_activation,
            dropout=self.feedforward_dropout,
            seed=fork_seed(self.seed, "feedforward"),
            dtype=self.dtype_policy,
            name="feedforward",
        )
        layer.build(shape)
        return layer

    def _build_residual(self, name, shape):
        layer = Residual(
            self.normalize_first,
            self.dropout,
            self.layer_norm_epsilon,
            self.normalization,
            seed=fork_seed(self.seed, name),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build(shape)
        return layer

    def _feed_forward(self, x, training):
        """Runs the last sublayer of a block, in its residual connection."""
        y = self.feedforward(self.feedforward_residual.enter(x), training=training)
        return self.feedforward_residual(x, y, training=training)
