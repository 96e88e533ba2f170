"""The client, against servers that answer with a real export: requests must fit its signatures."""

import base64
import concurrent.futures
import contextlib
import http.server
import importlib.util
import json
import pathlib
import threading

import pytest
import tensorflow as tf

from keras_synth.export import export

CLIENT = pathlib.Path(__file__).parents[2] / "examples" / "serve_client.py"
spec = importlib.util.spec_from_file_location("serve_client", CLIENT)
serve_client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(serve_client)


@pytest.fixture(scope="module")
def model(make_task, tmp_path_factory):
    labels = ["bad", "g\u00fct", "neutral"]
    version = export(make_task("classifier"), tmp_path_factory.mktemp("topics"), labels=labels)
    return tf.saved_model.load(version)


def answer(model, signature, inputs):
    """The signature's answer; what does not fit it, exactly, is an error."""
    signature = model.signatures[signature]
    specs = signature.structured_input_signature[1]
    if specs.keys() != inputs.keys():
        raise ValueError(f"the inputs are {sorted(specs)}")
    return signature(**{name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()})


@contextlib.contextmanager
def rest_server(model):
    """The predict method of TensorFlow Serving's REST API, in its column format."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                assert self.path == "/v1/models/topics:predict" and body.keys() == {
                    "signature_name",
                    "inputs",
                }
                inputs = {
                    name: [base64.b64decode(v["b64"]) if isinstance(v, dict) else v for v in values]
                    for name, values in body["inputs"].items()
                }
                outputs = answer(model, body["signature_name"], inputs)
                values = {
                    name: [v.decode() if isinstance(v, bytes) else v for v in tensor.numpy().tolist()]
                    for name, tensor in outputs.items()
                }
                status, reply = 200, {"outputs": values}
            except (AssertionError, KeyError, ValueError) as error:
                status, reply = 400, {"error": str(error)}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(reply).encode())

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def grpc_server(model):
    """The prediction service as tensorflow-serving-api defines it."""
    grpc = pytest.importorskip("grpc")
    apis = pytest.importorskip("tensorflow_serving.apis")
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Service(apis.prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            assert request.model_spec.name == "topics"
            try:
                specs = model.signatures[request.model_spec.signature_name].structured_input_signature[1]
                inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
                for name, tensor in request.inputs.items():
                    if name in specs:
                        assert tensor.dtype == specs[name].dtype.as_datatype_enum
                outputs = answer(model, request.model_spec.signature_name, inputs)
            except (KeyError, ValueError) as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            response = predict_pb2.PredictResponse()
            for name, tensor in outputs.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(tensor.numpy()))
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None).wait()


WAYS = {"rest": (rest_server, serve_client.ask_rest), "grpc": (grpc_server, serve_client.ask_grpc)}


@pytest.mark.parametrize("way", WAYS)
def test_requests_fit_the_signatures(way, model):
    serve, ask = WAYS[way]
    texts = ["one two", "", "\u05e9\u05dc\u05d5\u05dd \U0001f600", b"\xff\xfe three"]
    with serve(model) as server:
        for signature, inputs in (
            ("serving_default", {"text": texts}),
            ("classify_pair", {"text": texts, "second_text": texts}),
            ("predict", {"token_ids": [[1, 5, 7]], "padding_mask": [[1, 1, 0]]}),
        ):
            outputs = ask(server, "topics", signature, inputs)
            expected = answer(model, signature, inputs)
            assert outputs.keys() == expected.keys()
            for name, value in expected.items():
                value = value.numpy().tolist()
                value = [v.decode() if isinstance(v, bytes) else v for v in value]
                assert (
                    outputs[name] == value
                    if name in ("label", "truncated")
                    else outputs[name]
                    == (pytest.approx(value) if name == "score" else [pytest.approx(row) for row in value])
                )
        with pytest.raises(ValueError, match="the inputs are"):
            ask(server, "topics", "classify", {"txt": ["one"]})


@pytest.mark.parametrize("way", WAYS)
def test_one_line_for_each_text(way, model, monkeypatch, capsys):
    with WAYS[way][0](model) as server:
        monkeypatch.setattr(
            "sys.argv", ["serve_client.py", "--model=topics", f"--{way}", server, "one", "two"]
        )
        serve_client.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["label"] in ("bad", "g\u00fct", "neutral") for line in lines] == [True, True]


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setattr("sys.argv", ["serve_client.py", "--rest", "http://localhost:9", "one"])
    with pytest.raises(SystemExit, match="http://localhost:9 gave no answer"):
        serve_client.main()


def test_the_example_of_a_config_is_one():
    text_format = pytest.importorskip("google.protobuf.text_format")
    configs = pytest.importorskip("tensorflow_serving.config.model_server_config_pb2")
    text = (CLIENT.parent / "serving" / "models.config").read_text()
    (config,) = text_format.Parse(text, configs.ModelServerConfig()).model_config_list.config
    assert config.base_path == f"/models/{config.name}"
    assert (CLIENT.parents[1] / "saved_models" / config.name).is_dir()
