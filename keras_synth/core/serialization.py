"""What the configs of layers and models hold: plain dicts, lists, strings and numbers."""

import keras


def serialize_layer(layer):
    """The config of a layer that several others may share, which they still do when a model is loaded.

    Args:
        layer: keras.layers.Layer. For `keras.saving.deserialize_keras_object`.
    """
    keras.saving.serialize_keras_object(layer)
    # While Keras saves a model it marks what it serializes for the second time as shared. That it marks the
    # first one too is lost where that is a part of another config, which Keras copies.
    return to_plain(keras.saving.serialize_keras_object(layer))


#: How arguments with these names become what JSON can hold.
_SERIALIZERS = {
    "activation": keras.activations.serialize,
    "kernel_initializer": keras.initializers.serialize,
    "bias_initializer": keras.initializers.serialize,
    "relative_bias": lambda layer: layer and serialize_layer(layer),
}


def serialize_arguments(owner, names):
    """The attributes of a layer or model with these names, as its config holds them."""
    return {name: _SERIALIZERS.get(name, to_plain)(getattr(owner, name)) for name in names}


def to_plain(value):
    """A copy of nested dicts and lists without the containers by which Keras tracks what is in them."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value
