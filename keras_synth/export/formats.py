"""The formats of exported models: SavedModel, and those of other runtimes through Keras's own export."""

import importlib.util
import pathlib

import keras
import tensorflow as tf

from keras_synth.export.signatures import input_structure
from keras_synth.models.backbone import SynthesizerBackbone

#: The formats besides SavedModel, and the package that writes each.
_WRITTEN_BY = {"litert": "tensorflow", "onnx": "tf2onnx", "openvino": "openvino"}
FORMATS = ("saved_model", *_WRITTEN_BY)


def check(format: str):
    """Raises an error if there is no such format, or its package is not installed."""
    if format not in FORMATS:
        raise ValueError(
            f"`format` must be one of {', '.join(map(repr, FORMATS))}. Received: format={format!r}"
        )
    package = _WRITTEN_BY.get(format)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ImportError(f"format={format!r} needs the package {package}, of the extra `formats`.")


def write(model: keras.Model, format: str, folder: pathlib.Path):
    """Writes the model itself, from tensors to tensors, in one of the other formats."""
    if format == "litert":
        # Its own operations alone: the runtime has no others. They need to know all shapes.
        model.export(
            str(folder / "model.tflite"),
            format=format,
            input_signature=_input_signature(model, batch_size=1),
            target_spec={"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]},
            verbose=False,
        )
        return
    file = {"onnx": "model.onnx", "openvino": "model.xml"}[format]
    model.export(str(folder / file), format=format, input_signature=_input_signature(model), verbose=False)


def _input_signature(model, batch_size=None):
    """The model's inputs; with a batch size their lengths are known too."""
    backbone = getattr(model, "backbone", model)
    length = backbone.max_length if batch_size and isinstance(backbone, SynthesizerBackbone) else None

    def spec(tensor):
        shape = (batch_size, *(length if size is None else size for size in tensor.shape[1:]))
        return keras.InputSpec(shape=shape, dtype=tensor.dtype, name=tensor.name)

    return [keras.tree.map_structure(spec, input_structure(model))]
