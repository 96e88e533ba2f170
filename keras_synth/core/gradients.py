"""Gradients that are written by hand."""

import functools

import keras
from keras import ops

from keras_synth.core.recomputation import is_recomputed


def custom_gradient(function):
    """Decorates a function that comes with its gradient, for every backend.

    As `keras.ops.custom_gradient`, of which each backend calls the gradient in a way of its own. On torch
    that takes one output alone, and hides errors, so there torch differentiates the function by itself; and
    so does JAX what it computes anew, because there gradients may not use tensors from outside of them.

    Args:
        function: A function of tensors that returns its output, a tensor or a list of tensors, and a
            function from the gradient of the output, in the same structure, to those of the arguments.

    Returns:
        A function that returns the output alone.
    """

    @ops.custom_gradient
    def with_gradient(*args):
        output, gradient = function(*args)

        def call_gradient(*args):
            # TensorFlow gives one argument for each output, JAX one for all.
            upstream = keras.tree.flatten(args)
            return gradient(upstream if isinstance(output, list) else upstream[0])

        return output, call_gradient

    @functools.wraps(function)
    def call(*args):
        # Variables as tensors, because TensorFlow asks for gradients of variables by themselves.
        args = [ops.cast(x, x.dtype) for x in args]
        backend = keras.backend.backend()
        if backend == "torch" or (backend == "jax" and is_recomputed()):
            return function(*args)[0]
        return with_gradient(*args)

    return call
