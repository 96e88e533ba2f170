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
        ValueError: If a request is no dict of batches, or no signature has its inputs.
        ImportError: If tensorflow-serving-api is not installed, and there are requests.
    """
    if requests and importlib.util.find_spec("tensorflow_serving") is None:
        raise ImportError("`warmup` needs the package tensorflow-serving-api, of the extra `serving`.")
    signatures = {name: graph.structured_input_signature[1] for name, graph in graphs.items()}
    checked = []
    for request in requests:
        if not isinstance(request, Mapping):
            raise ValueError(
                "A request in `warmup` must be a dict from the inputs of a signature to batches of values, "
                f"as {{'text': ['one', 'two']}}. Received: {request!r}"
            )
        fitting = {name: specs for name, specs in signatures.items() if specs.keys() == request.keys()}
        if not fitting:
            raise ValueError(
                "A request in `warmup` must have the inputs of a signature. Received: a request with "
                f"{sorted(request)}; the signatures are "
                + ", ".join(f"{name}: {sorted(specs)}" for name, specs in signatures.items())
            )
        for name, specs in fitting.items():
            inputs = {key: _convert_to_batch(key, value, specs[key]) for key, value in request.items()}
            # A request that fails would keep the server from loading the model.
            graphs[name](**inputs)
            checked.append((name, inputs))
    return checked


def _convert_to_batch(name, value, spec):
    try:
        tensor = tf.convert_to_tensor(value, spec.dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` of a request in `warmup` must be {spec.dtype.name}, without gaps. "
            f"Received: {name}={value!r}"
        ) from error
    if not spec.shape.is_compatible_with(tensor.shape):
        raise ValueError(
            f"`{name}` of a request in `warmup` must be a batch, of shape {tuple(spec.shape)}. "
            f"Received: {name}={value!r}, of shape {tuple(tensor.shape)}"
        )
    return tensor


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
