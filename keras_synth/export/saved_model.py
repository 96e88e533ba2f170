"""The SavedModel of a model, with a report and requests to warm a server up."""

import pathlib
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from keras_synth.export.report import describe_saved_model
from keras_synth.export.signatures import ServedModel
from keras_synth.export.slice_update import without_xla
from keras_synth.export.warmup import WARMUP_FILE, check_warmup, write_warmup

#: What TensorFlow Serving leaves alone, unless it knows a file in it.
EXTRA_ASSETS = "assets.extra"


def prepare_saved_model(
    served: ServedModel, warmup: Sequence[Mapping], model_name: str
) -> Callable[[pathlib.Path], None]:
    """Makes the graphs of a model, and a function that fills a folder with their SavedModel.

    Args:
        served: What can be asked of the model.
        warmup: The requests to warm up with.
        model_name: The name under which a server has the model.

    Raises:
        ValueError: If a request fits to no signature.
    """
    model = served.model
    with without_xla():
        graphs = {signature.name: signature.trace() for signature in served.list_signatures()}
    requests = check_warmup(graphs, warmup)

    def fill(folder):
        weights = _list_weights(graphs)
        _save(model, graphs, weights, folder)
        extra = folder / EXTRA_ASSETS
        extra.mkdir()
        report = describe_saved_model(model, graphs, weights, folder)
        (extra / "report.md").write_text(report, encoding="utf-8")
        if requests:
            write_warmup(requests, model_name, extra / WARMUP_FILE)

    return fill


def _list_weights(graphs: dict) -> list[tf.Variable]:
    """Lists the variables that graphs read, each once."""
    read = {id(tensor) for graph in graphs.values() for tensor in graph.captured_inputs}
    # Not those that were read while a graph was traced, to precompute others.
    variables = {id(v.handle): v for graph in graphs.values() for v in graph.variables}
    return [variable for handle, variable in variables.items() if handle in read]


def _save(model, graphs, weights, folder):
    exported = tf.Module()
    for name, graph in graphs.items():
        setattr(exported, name, graph)
    # What the graphs use: of the weights these alone, and all tokenizers and tables.
    exported._weights = weights
    exported._tables = [layer for layer in model._flatten_layers() if layer.built and not layer.variables]
    default = next(iter(graphs.values()))
    tf.saved_model.save(exported, folder, {**graphs, "serving_default": default})
