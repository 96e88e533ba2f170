"""Asks a model in TensorFlow Serving, by REST or by gRPC. Prints one JSON object for each text.

    python examples/serve_client.py "4 mars 2021" "12. April 1999"
    python examples/serve_client.py --grpc localhost:8500 "4 mars 2021"
    python examples/serve_client.py --signature score \\
        --inputs '{"source": ["4 mars 2021"], "target": ["2021-03-04"]}'

REST needs nothing but Python; gRPC needs tensorflow-serving-api.
"""

import argparse
import base64
import json
import os
import sys
import urllib.error
import urllib.request


def ask_rest(server, model, signature, inputs, timeout=60):
    """Asks by REST.

    Args:
        server: string. The address of the server, as `http://localhost:8501`.
        model: string. The name of the model.
        signature: string. The name of the signature.
        inputs: dict from the names of the inputs to lists of strings or bytes, or nested lists of numbers.
        timeout: int. How many seconds to wait.

    Returns:
        A dict from the names of the outputs to lists.
    """
    body = {
        "signature_name": signature,
        "inputs": {name: [_as_json(value) for value in values] for name, values in inputs.items()},
    }
    request = urllib.request.Request(
        f"{server}/v1/models/{model}:predict",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)["outputs"]
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error)["error"]) from error


def _as_json(value):
    """Text that is no UTF-8 goes as base64."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def ask_grpc(server, model, signature, inputs, timeout=60):
    """Asks by gRPC, with the arguments and the result of `ask_rest`; `server` is as `localhost:8500`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, values in inputs.items():
        # Numbers are token ids, in int32.
        dtype = tf.string if isinstance(values[0], (str, bytes)) else tf.int32
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values, dtype))
    try:
        with grpc.insecure_channel(server) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            outputs = stub.Predict(request, timeout=timeout).outputs
    except grpc.RpcError as error:
        raise ValueError(error.details()) from error
    answers = {name: tf.make_ndarray(tensor).tolist() for name, tensor in outputs.items()}
    return {
        name: [value.decode() if isinstance(value, bytes) else value for value in values]
        for name, values in answers.items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", metavar="text", help="default: standard input, one a line")
    parser.add_argument("--model", default="date_normalizer")
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--inputs", type=json.loads, help="JSON of all inputs, instead of texts")
    parser.add_argument("--rest", default="http://localhost:8501", help="the server's address")
    parser.add_argument("--grpc", help="the server's address for gRPC, instead of REST")
    arguments = parser.parse_args()

    texts = [os.fsencode(text) for text in arguments.texts]
    inputs = arguments.inputs or {"text": texts or sys.stdin.buffer.read().splitlines()}
    ask, server = (ask_grpc, arguments.grpc) if arguments.grpc else (ask_rest, arguments.rest)
    try:
        answers = ask(server, arguments.model, arguments.signature, inputs)
    except (OSError, ValueError) as error:
        sys.exit(f"{server} gave no answer: {error}")
    for row in zip(*answers.values(), strict=True):
        print(json.dumps(dict(zip(answers, row, strict=True)), ensure_ascii=False))


if __name__ == "__main__":
    main()
