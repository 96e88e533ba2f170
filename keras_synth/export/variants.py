"""Copies of models with smaller weights."""

import keras
import keras_hub

#: The dtypes that weights may be exported in.
DTYPES = ("float32", "bfloat16", "float16", "int8")

_QUANTIZED = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


def with_dtype(model: keras.Model, dtype: str) -> keras.Model:
    """Returns a copy of a model whose weights have another dtype.

    `"float32"`, `"bfloat16"` and `"float16"` are dtype policies: the copy stores its weights in this dtype
    and computes in it, save what its layers keep in float32, such as softmax. `"int8"` is Keras's
    quantization of the weights alone: the matrices of dense layers and embeddings are stored as int8 with
    a float32 scale for each channel, and the copy computes in the model's dtype.

    Args:
        model: A task or backbone of `keras_synth.models`, or another functional or sequential model. It
            stays as it is.
        dtype: string. One of `DTYPES`.

    Raises:
        ValueError: If the dtype is unknown.
    """
    if dtype not in DTYPES:
        raise ValueError(
            f"`dtype` must be one of {', '.join(map(repr, DTYPES))}. Received: dtype={dtype!r}"
        )
    config = model.get_config()
    if dtype != "int8":
        config = _with_policy(config, keras.dtype_policies.get(dtype))
    if isinstance(model, keras_hub.models.Task):
        # The preprocessor itself, because its config is without its vocabulary.
        config["preprocessor"] = model.preprocessor
    copy = type(model).from_config(config)
    if hasattr(model, "sampler"):
        copy.sampler = model.sampler
    for old, new in zip(model.weights, copy.weights, strict=True):
        new.assign(keras.ops.cast(old.value, new.dtype))
    if dtype == "int8":
        copy.quantize(
            config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None),
            type_check=False,  # subclasses of Keras's layers too
            filters=lambda layer: isinstance(layer, _QUANTIZED),
        )
    return copy


def _with_policy(config, policy):
    """A copy of a config in which every dtype policy is another."""
    if isinstance(config, (list, tuple)):
        return type(config)(_with_policy(item, policy) for item in config)
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy":
        return keras.dtype_policies.serialize(policy)
    return {key: _with_policy(value, policy) for key, value in config.items()}
