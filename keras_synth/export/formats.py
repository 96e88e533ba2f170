"""The formats of exported models: SavedModel, and those of other runtimes through Keras's own export."""

import dataclasses
import importlib
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_synth.export.served import input_structure
from keras_synth.models.backbone import SynthesizerBackbone


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that Keras exports to.

    Args:
        name: string. Keras's name of it.
        file: string. The name of the file.
        package: string. The package that writes it.
        dtypes: The dtypes of weights that it can hold. What is missing here, its converter or its runtime
            refuses.
        batch_size: int. The size of a batch, if it must be known, and then lengths are known too.
        options: Further arguments of `keras.Model.export`.
    """

    name: str
    file: str
    package: str
    dtypes: tuple[str, ...]
    batch_size: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_FORMATS = {
    format.name: format
    for format in (
        # Its runtime has no operations but its own, and these must know all shapes.
        Format(
            "litert",
            file="model.tflite",
            package="tensorflow",
            dtypes=("float32", "int8"),
            batch_size=1,
            options={"target_spec": {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}},
        ),
        Format("onnx", file="model.onnx", package="tf2onnx", dtypes=("float32", "float16", "int8")),
        # With more outputs than one, of which the first is the model's.
        Format("openvino", file="model.xml", package="openvino", dtypes=("float32", "float16", "int8")),
    )
}


def get(name: str, dtype: str | None) -> Format | None:
    """Finds a format.

    Args:
        name: string. `"saved_model"`, or a format that Keras exports to.
        dtype: The dtype of the weights.

    Returns:
        The format, `None` for a SavedModel.

    Raises:
        ValueError: If there is no such format, or it can't hold such weights.
        ImportError: If its package is not installed.
    """
    if name == "saved_model":
        return None
    if name not in _FORMATS:
        raise ValueError(
            f"`format` must be one of {', '.join(map(repr, ('saved_model', *_FORMATS)))}. "
            f"Received: format={name!r}"
        )
    format = _FORMATS[name]
    if dtype not in (None, *format.dtypes):
        raise ValueError(
            f"format={name!r} holds weights in {', '.join(format.dtypes)}. Received: dtype={dtype!r}"
        )
    try:
        importlib.import_module(format.package)
    except ImportError as error:
        raise ImportError(
            f"format={name!r} needs the package {format.package}, of the extra `formats`."
        ) from error
    return format


def write(model: keras.Model, format: Format, folder: pathlib.Path):
    """Writes the model itself, from tensors to tensors."""
    backbone = getattr(model, "backbone", model)
    length = None
    if format.batch_size is not None and isinstance(backbone, SynthesizerBackbone):
        length = backbone.max_length

    def spec(tensor):
        sizes = (length if size is None else size for size in tensor.shape[1:])
        return keras.InputSpec(shape=(format.batch_size, *sizes), dtype=tensor.dtype, name=tensor.name)

    model.export(
        str(folder / format.file),
        format=format.name,
        input_signature=[keras.tree.map_structure(spec, input_structure(model))],
        verbose=False,
        **format.options,
    )
