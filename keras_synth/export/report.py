"""What an exported model is, in words: for whoever serves it."""

import pathlib
import sys
import types

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_synth import alignments
from keras_synth.version import __version__


def describe_saved_model(
    model: keras.Model, graphs: dict, weights: list[tf.Variable], folder: pathlib.Path
) -> str:
    """Describes a SavedModel: signatures, operations, size and alignments.

    Args:
        model: The model that was exported.
        graphs: dict from the names of the signatures to their graphs, `serving_default` first.
        weights: The weights that the graphs read.
        folder: The folder of the SavedModel.

    Returns:
        The text of the report, in Markdown.
    """
    return "\n".join(
        [
            f"# {type(model).__name__} `{model.name}`",
            "",
            f"Exported by keras_synth {__version__} with TensorFlow {tf.__version__} and Keras "
            f"{keras.__version__}.",
            "",
            "## Signatures",
            "",
            "The first one is also `serving_default`.",
            "",
            *_signatures(graphs),
            "",
            "## Operations that TensorFlow itself does not have",
            "",
            *_foreign_operations(folder),
            "",
            "## Size",
            "",
            *_size(weights, folder),
            "",
            "## Alignments",
            "",
            "```",
            str(alignments.describe(model)),
            "```",
            "",
        ]
    )


def _signatures(graphs):
    for name, graph in graphs.items():
        yield f"- `{name}`"
        inputs = graph.structured_input_signature[1]
        for arrow, specs in (("from", inputs), ("to", graph.structured_outputs)):
            for key, spec in specs.items():
                shape = ", ".join("?" if size is None else str(size) for size in spec.shape)
                yield f"  - {arrow} `{key}`: {spec.dtype.name} ({shape})"


def _foreign_operations(folder):
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    operations = {node.op for node in graph.node}
    operations.update(node.op for function in graph.library.function for node in function.node_def)
    foreign = sorted(operations - set(dir(tf.raw_ops)))
    return [f"- `{operation}`: {_library(operation)}" for operation in foreign] or ["None."]


def _library(operation):
    """The Python package that registers an operation."""
    name = operation.replace(">", "_")
    for path, module in list(sys.modules.items()):
        # Such a package keeps the module that TensorFlow generates for its operations.
        for value in list(vars(module).values()):
            if isinstance(value, types.ModuleType) and name in vars(value):
                return path.partition(".")[0]
    return "unknown"


def _size(weights, folder):
    for dtype in sorted({weight.dtype.name for weight in weights}):
        count = sum(weight.shape.num_elements() for weight in weights if weight.dtype.name == dtype)
        yield f"- {count:,} weights in {dtype}"
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield f"- {file.stat().st_size:,} bytes in `{file.relative_to(folder)}`"
