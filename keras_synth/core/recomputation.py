"""Layers whose activations `keras.RematScope` computes anew in the backward pass, to save memory."""

import contextvars

import keras
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

_recomputed = contextvars.ContextVar("recomputed", default=False)


def is_recomputed():
    """Whether what is computed now will be computed anew in the backward pass."""
    return _recomputed.get()


class Recomputed(keras.layers.Layer):
    """Mixin: what is computed anew has tensors of numbers as its only arguments, with their Keras masks.

    Otherwise JAX would make tensors of flags such as `training`, TensorFlow would refuse keyword arguments
    and bool tensors, and masks would be lost.
    """

    def rematerialized_call(self, layer_call, *args, **kwargs):
        if self._remat_mode.mode == "activations":  # which Keras does by itself
            return super().rematerialized_call(layer_call, *args, **kwargs)
        arguments = (args, kwargs)
        leaves = keras.tree.flatten(arguments)
        numbers = [leaf for leaf in leaves if _is_number(leaf)]
        masks = [get_keras_mask(tensor) for tensor in numbers]

        def call(*numbers):
            for tensor, mask in zip(numbers, masks, strict=True):
                set_keras_mask(tensor, mask)
            rest = iter(numbers)
            filled = [next(rest) if _is_number(leaf) else leaf for leaf in leaves]
            args, kwargs = keras.tree.pack_sequence_as(arguments, filled)
            token = _recomputed.set(True)
            try:
                return layer_call(*args, **kwargs)
            finally:
                _recomputed.reset(token)

        recomputed = super().rematerialized_call(call, *args, **kwargs)
        return layer_call if recomputed is call else lambda *args, **kwargs: recomputed(*numbers)


def _is_number(leaf):
    return keras.ops.is_tensor(leaf) and keras.backend.is_float_dtype(leaf.dtype)


@keras.saving.register_keras_serializable("keras_synth")
class Dropout(Recomputed, keras.layers.Dropout):
    """`keras.layers.Dropout`, which says so where it would drop other entries in the backward pass."""

    def call(self, inputs, training=False):
        if self.rate > 0 and training and is_recomputed():
            raise ValueError(
                "`keras.RematScope` computes anew what dropout would then drop anew. It needs rates of 0. "
                f"Received: a rate of {self.rate}"
            )
        return super().call(inputs, training=training)
