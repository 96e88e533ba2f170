"""The formats of exported models: SavedModel, and those of other runtimes through Keras's own export."""

import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_synth.export.saved_model import prepare_saved_model
from keras_synth.export.signatures import ServedModel
from keras_synth.export.variants import DTYPES
from keras_synth.models.backbone import SynthesizerBackbone


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of exported models: here that of TensorFlow itself.

    Args:
        name: string. What `export` calls it.
        dtypes: The dtypes of weights that it can hold. What is missing here, its converter or its runtime
            refuses.
        package: string. The package that writes it.
    """

    name: str
    dtypes: tuple[str, ...]
    package: str

    def prepare(
        self, served: ServedModel, warmup: Sequence[Mapping], model_name: str
    ) -> Callable[[pathlib.Path], None]:
        """Makes a function that fills the folder of a version."""
        return prepare_saved_model(served, warmup, model_name)


@dataclasses.dataclass(frozen=True)
class KerasFormat(Format):
    """A format that Keras exports to: the model itself, from tensors to tensors.

    Args:
        file: string. The name of the file.
        batch_size: int. The size of a batch, if it must be known, and then lengths are known too.
        options: Further arguments of `keras.Model.export`.
    """

    file: str
    batch_size: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def prepare(self, served, warmup, model_name):
        return lambda folder: self._write(served, folder / self.file)

    def _write(self, served, file):
        length = None
        if self.batch_size is not None and isinstance(served.backbone, SynthesizerBackbone):
            length = served.backbone.max_length

        def spec(tensor):
            sizes = (length if size is None else size for size in tensor.shape[1:])
            return keras.InputSpec(shape=(self.batch_size, *sizes), dtype=tensor.dtype, name=tensor.name)

        served.model.export(
            str(file),
            format=self.name,
            input_signature=[keras.tree.map_structure(spec, served.input_structure)],
            verbose=False,
            **self.options,
        )


_FORMATS = {
    format.name: format
    for format in (
        Format("saved_model", DTYPES, "tensorflow"),
        # Its runtime has no operations but its own, and these must know all shapes.
        KerasFormat(
            "litert",
            ("float32", "int8"),
            "tensorflow",
            file="model.tflite",
            batch_size=1,
            options={"target_spec": {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}},
        ),
        KerasFormat("onnx", ("float32", "float16", "int8"), "tf2onnx", file="model.onnx"),
        # With more outputs than one, of which the first is the model's.
        KerasFormat("openvino", ("float32", "float16", "int8"), "openvino", file="model.xml"),
    )
}


def get_format(name: str, dtype: str | None, warmup: Sequence[Mapping]) -> Format:
    """Finds a format, and checks that it can hold what is asked for.

    Args:
        name: string. The name of the format.
        dtype: The dtype of the weights.
        warmup: The requests to warm a server up with.

    Raises:
        ValueError: If there is no such format, or it can't hold such weights, or requests.
        ImportError: If its package is not installed.
    """
    if name not in _FORMATS:
        raise ValueError(
            f"`format` must be one of {', '.join(map(repr, _FORMATS))}. Received: format={name!r}"
        )
    format = _FORMATS[name]
    if warmup and isinstance(format, KerasFormat):
        raise ValueError(f"Requests for `warmup` are part only of a SavedModel. Received: format={name!r}")
    if dtype not in (None, *format.dtypes) and dtype in DTYPES:
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
