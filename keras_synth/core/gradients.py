"""Gradients that are written by hand."""

import functools

import keras
from keras import ops


def custom_gradient(function):
    """Decorates a function that comes with its gradient, for every backend.

    As `keras.ops.custom_gradient`, of which each backend calls the gradient in a way of its own.

    Args:
        function: A function of tensors that returns its output, a tensor or a list of tensors, and a
            function from the gradient of the output, in the same structure, to those of the arguments.

    Returns:
        A function that returns the output alone.
    """

    @ops.custom_gradient
    def with_gradient(*args):
        output, gradient = function(*args)

        def call_gradient(*args, upstream=None):
            # TensorFlow gives one argument for each output, JAX one for all, torch one by name.
            upstream = keras.tree.flatten(args if upstream is None else upstream)
            return gradient(upstream if isinstance(output, list) else upstream[0])

        return output, call_gradient

    @functools.wraps(function)
    def call(*args):
        # Variables as tensors, because TensorFlow asks for gradients of variables by themselves.
        return with_gradient(*(ops.cast(x, x.dtype) for x in args))

    return call
