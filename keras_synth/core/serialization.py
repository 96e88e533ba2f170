"""Layers in the configs of other layers."""

import keras


def serialize_layer(layer):
    """The config of a layer that several others may share, which they still do when a model is loaded.

    Args:
        layer: keras.layers.Layer. For `keras.saving.deserialize_keras_object`.
    """
    keras.saving.serialize_keras_object(layer)
    # While Keras saves a model it marks what it serializes for the second time as shared. That it marks the
    # first one too is lost where that is a part of another config, which Keras copies.
    return keras.saving.serialize_keras_object(layer)
