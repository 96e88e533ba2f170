"""The formats of exported models: SavedModel, and those of other runtimes through Keras's own export."""

import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

from keras_synth.export.saved_model import prepare_saved_model
from keras_synth.export.signatures import ServedModel, make_unique
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

    Where the model has a tokenizer, its files lie beside.

    Args:
        file: string. The name of the file.
        write: A function of a `ServedModel` and the path of the file, which writes it.
    """

    file: str
    write: Callable[[ServedModel, pathlib.Path], None]

    def prepare(self, served, warmup, model_name):
        tokenizer = getattr(getattr(served.model, "preprocessor", None), "tokenizer", None)

        def fill(folder):
            self.write(served, folder / self.file)
            if hasattr(tokenizer, "save_assets"):
                tokenizer.save_assets(str(folder))

        return fill


def _write_litert(served, file):
    # Its runtime has no operations but its own, and these must know all shapes.
    length = served.backbone.max_length if isinstance(served.backbone, SynthesizerBackbone) else None
    builtins = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    # The names of its outputs are the keys of a dict.
    model = _WithOutputs(served.model, served.name_outputs)
    _export(model, served, "litert", file, (1, length), target_spec=builtins)


def _write_onnx(served, file):
    import onnx

    # In a dict, a key that is the name of an input would be an error.
    _export(_WithOutputs(served.model, keras.tree.flatten), served, "onnx", file)
    model = onnx.load(file)
    names = make_unique([*served.input_specs, *served.output_names])[len(served.input_specs) :]
    for output, name in zip(model.graph.output, names, strict=True):
        model.graph.node.append(onnx.helper.make_node("Identity", [output.name], [name]))
        output.name = name
    onnx.save(model, file)


def _write_openvino(served, file):
    import openvino

    _export(served.model, served, "openvino", file)
    core = openvino.Core()
    core.set_property({"ENABLE_MMAP": False})  # the files are written anew
    model = core.read_model(file)
    # It may have more outputs than the model, behind those.
    for output, name in zip(model.outputs, served.output_names, strict=False):
        output.tensor.add_names({name})
    openvino.serialize(model, file)


def _export(model, served, format, file, sizes=(None, None), **options):
    """Exports by Keras, with a batch and lengths of these sizes where the model says nothing."""
    batch_size, length = sizes
    specs = [
        keras.InputSpec(
            shape=(batch_size, *(length if size is None else size for size in spec.shape[1:])),
            dtype=spec.dtype.name,
            name=name,
        )
        for name, spec in served.input_specs.items()
    ]
    signature = [keras.tree.pack_sequence_as(served.input_structure, specs)]
    model.export(str(file), format=format, input_signature=signature, verbose=False, **options)


class _WithOutputs(keras.Model):
    """A model whose outputs are arranged in another way, by a function."""

    def __init__(self, model, arrange):
        super().__init__(name=model.name)
        self.model, self.arrange, self.built = model, arrange, True

    def call(self, inputs, training=False):
        return self.arrange(self.model(inputs, training=training))


_FORMATS = {
    format.name: format
    for format in (
        Format("saved_model", DTYPES, "tensorflow"),
        KerasFormat("litert", ("float32", "int8"), "tensorflow", "model.tflite", _write_litert),
        KerasFormat("onnx", ("float32", "float16", "int8"), "tf2onnx", "model.onnx", _write_onnx),
        KerasFormat("openvino", ("float32", "float16", "int8"), "openvino", "model.xml", _write_openvino),
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
