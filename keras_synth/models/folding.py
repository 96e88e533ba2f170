"""Inference with attention weights that are finished once for a call."""

import contextlib

import keras

from keras_synth.layers.folding import folded


class Folding:
    """Mixin of models, to stand before the class of Keras, whose `predict` computes nothing twice."""

    def predict(self, *args, **kwargs):
        with finished(self):
            return super().predict(*args, **kwargs)


def finished(model):
    """`keras_synth.layers.folding.folded`, where the functions that Keras traces can read such weights."""
    one_device = keras.backend.backend() == "tensorflow"
    one_device = one_device and model.distribute_strategy.num_replicas_in_sync == 1
    return folded(model) if one_device else contextlib.nullcontext()
