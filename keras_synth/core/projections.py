"""Layers that own dense projections."""

import math

import keras
from keras import ops

from keras_synth.core.gradients import custom_gradient
from keras_synth.core.initializers import PerHeadInitializer, ProjectionInitializer, fork
from keras_synth.core.layer import Layer
from keras_synth.core.recomputation import Recomputed

_GETTERS = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}

#: The constructor arguments of `Projecting`, for layers that hand them on to a sublayer.
PROJECTION_ARGUMENTS = (
    "use_bias",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
)


@custom_gradient
def add_bias(tokens, bias):
    """`(tokens, n)` plus `(n,)`, of which TensorFlow's own gradient adds up in the dtype of the tokens.

    In bfloat16, where 256 and 1 are 256, that is wrong from a few hundred tokens on.
    """
    return ops.add(tokens, bias), lambda upstream: (upstream, ops.sum(upstream, axis=0))


@keras.saving.register_keras_serializable("keras_synth")
class TokenDense(Recomputed, keras.layers.EinsumDense):
    """`EinsumDense` for tokens, `(batch, T, ...)`, as one matrix product for all of them.

    The same results in the same weights. Keras's own product has a gradient of the kernel for each example
    before it adds them up, and a bias of several axes that nothing fuses with the product.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.supports_masking = True  # it keeps the tokens where they are

    def call(self, inputs, training=None):
        shape = ops.shape(inputs)
        inputs_dim = math.prod(shape[2:])
        outputs = ops.matmul(
            ops.reshape(inputs, (-1, inputs_dim)), ops.reshape(self.kernel, (inputs_dim, -1))
        )
        if self.bias is not None:
            outputs = add_bias(outputs, ops.reshape(self.bias, (-1,)))
        if self.activation is not None:
            outputs = self.activation(outputs)
        return ops.reshape(outputs, (*shape[:2], *self.partial_output_shape[1:]))

    def quantize(self, mode=None, type_check=False, config=None):
        super().quantize(mode, type_check=False, config=config)


class Projecting(Layer):
    """Mixin: the arguments of `keras.layers.Dense` for all the projections of one layer.

    Args:
        use_bias: bool. Whether the projections have biases. Defaults to `True`.
        kernel_initializer: Initializer of the kernels. Defaults to `"glorot_uniform"`, with the fans of
            the matrix that a kernel acts as.
        bias_initializer: Initializer of the biases. Defaults to `"zeros"`.
        kernel_regularizer: Regularizer of the kernels. Defaults to `None`.
        bias_regularizer: Regularizer of the biases. Defaults to `None`.
        kernel_constraint: Constraint of the kernels. Defaults to `None`.
        bias_constraint: Constraint of the biases. Defaults to `None`.
        **kwargs: Keyword arguments of the next class.
    """

    def __init__(
        self,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def projection(self, equation, output_shape, name):
        """A dense layer for an einsum `equation` such as `"btd,dhk->bthk"`.

        The equation's input starts with the axes `b` and `t`, which the kernel does not have.
        """
        inputs, _, outputs = equation.replace("->", ",").split(",")
        dense = TokenDense(
            equation,
            output_shape=(None, *output_shape),
            bias_axes=outputs[2:] if self.use_bias else None,
            kernel_initializer=ProjectionInitializer(
                fork(self.kernel_initializer, name), input_rank=len(inputs) - 2
            ),
            bias_initializer=fork(self.bias_initializer, name),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )
        return dense

    def add_head_weights(self, name, shape):
        """A kernel `(H, inputs, outputs)` and its bias `(H, 1, outputs)`, or `None`, for each head."""
        kernel = self.add_weight(
            name=f"{name}_kernel",
            shape=shape,
            initializer=PerHeadInitializer(fork(self.kernel_initializer, name)),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        bias = None
        if self.use_bias:
            bias = self.add_weight(
                name=f"{name}_bias",
                shape=(shape[0], 1, shape[2]),
                initializer=fork(self.bias_initializer, name),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        return kernel, bias

    def get_config(self):
        config = super().get_config()
        for name in PROJECTION_ARGUMENTS:
            value = getattr(self, name)
            getter = _GETTERS.get(name.split("_")[-1])
            config[name] = getter.serialize(value) if getter and value is not None else value
        return config
