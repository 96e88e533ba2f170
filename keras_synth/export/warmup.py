"""Requests that TensorFlow Serving sends to a model before it answers others."""

import importlib.util
import pathlib
from collections.abc import Mapping, Sequence

import tensorflow as tf

#: Where TensorFlow Serving looks for them.
WARMUP_FILE = "tf_serving_warmup_requests"


def check_warmup(graphs: dict, requests: Sequence[Mapping]) -> list[tuple[str, dict[str, tf.Tensor]]]:
    """Finds the signatures that can answer requests, and lets them answer once.

    Args:
        graphs: dict from the names of the signatures to their graphs.
        requests: Sequence of dicts from the names of inputs to values.

    Returns:
        A list with the name of a signature and its inputs: each request once for each of the signatures
        that have these inputs.

    Raises:
        ValueError: If no signature has the inputs of a request.
        ImportError: If tensorflow-serving-api is not installed, and there are requests.
    """
    if requests and importlib.util.find_spec("tensorflow_serving") is None:
        raise ImportError("`warmup` needs the package tensorflow-serving-api, of the extra `serving`.")
    checked = []
    for request in requests:
        fitting = {}
        for name, graph in graphs.items():
            specs = graph.structured_input_signature[1]
            if specs.keys() == request.keys():
                fitting[name] = {
                    key: tf.convert_to_tensor(value, specs[key].dtype) for key, value in request.items()
                }
                # A request that fails would keep the server from loading the model.
                graph(**fitting[name])
        if not fitting:
            raise ValueError(
                "A request in `warmup` must have the inputs of a signature. Received: a request with "
                f"{sorted(request)}; the signatures are "
                + ", ".join(
                    f"{name}: {sorted(g.structured_input_signature[1])}" for name, g in graphs.items()
                )
            )
        checked.extend(fitting.items())
    return checked


def write_warmup(requests: list[tuple[str, dict[str, tf.Tensor]]], model_name: str, path: pathlib.Path):
    """Writes requests as a file of `PredictionLog` records."""
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.name = model_name
            log.predict_log.request.model_spec.signature_name = signature
            for name, value in inputs.items():
                log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
            writer.write(log.SerializeToString())
