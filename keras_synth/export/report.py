"""What an exported model is, in words: for whoever serves it."""

import pathlib
import re
import sys
import types

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_synth import alignments
from keras_synth.version import __version__

#: What the servers from 2.17 to 2.19, which have tensorflow-text 2.12, lack of what that of 2.20 has.
_SINCE_2_20 = {"TFText>RoundRobinGenerateMasks", "TFText>RoundRobinTrim", "TFText>Utf8Binarize"}

#: The operations that draw random numbers.
_DRAWS = re.compile("Random|Multinomial|TruncatedNormal")


def describe_saved_model(
    model: keras.Model, graphs: dict, weights: list[tf.Variable], folder: pathlib.Path
) -> str:
    """Describes a SavedModel: signatures, which of them draw, operations, servers, size and alignments.

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
            *_describe_signatures(graphs),
            "",
            "## Operations that TensorFlow itself does not have",
            "",
            *_describe_operations(folder),
            "",
            "## Size",
            "",
            *_describe_size(weights, folder),
            "",
            "## Alignments",
            "",
            "```",
            str(alignments.describe(model)),
            "```",
            "",
        ]
    )


def _describe_signatures(graphs):
    for name, graph in graphs.items():
        draws = any(map(_DRAWS.search, _list_operations(graph.graph.as_graph_def())))
        yield f"- `{name}`" + (
            ", which draws at random: equal requests get unequal answers" if draws else ""
        )
        inputs = graph.structured_input_signature[1]
        for arrow, specs in (("from", inputs), ("to", graph.structured_outputs)):
            for key, spec in specs.items():
                shape = ", ".join("?" if size is None else str(size) for size in spec.shape)
                yield f"  - {arrow} `{key}`: {spec.dtype.name} ({shape})"


def _describe_operations(folder):
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    foreign = sorted(_list_operations(saved.meta_graphs[0].graph_def) - set(dir(tf.raw_ops)))
    libraries = {operation: _find_library(operation) for operation in foreign}
    yield from [f"- `{operation}`: {library}" for operation, library in libraries.items()] or ["None."]
    yield ""
    if set(libraries.values()) - {"tensorflow_text"}:
        yield "TensorFlow Serving does not have those of other libraries than tensorflow_text."
    else:
        oldest = "2.20" if _SINCE_2_20.intersection(foreign) else "2.17"
        yield f"The oldest TensorFlow Serving that answers: {oldest}."


def _list_operations(graph_def):
    operations = {node.op for node in graph_def.node}
    return operations.union(
        node.op for function in graph_def.library.function for node in function.node_def
    )


def _find_library(operation):
    """Finds the Python package that registers an operation."""
    name = operation.replace(">", "_")
    for path, module in list(sys.modules.items()):
        # Such a package keeps the module that TensorFlow generates for its operations.
        for value in list(vars(module).values()):
            if isinstance(value, types.ModuleType) and name in vars(value):
                return path.partition(".")[0]
    return "unknown"


def _describe_size(weights, folder):
    for dtype in sorted({weight.dtype.name for weight in weights}):
        count = sum(weight.shape.num_elements() for weight in weights if weight.dtype.name == dtype)
        yield f"- {count:,} weights in {dtype}"
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield f"- {file.stat().st_size:,} bytes in `{file.relative_to(folder)}`"
