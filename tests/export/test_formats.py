"""Exports for other runtimes, each asked by its own."""

import itertools
import sys

import keras
import numpy as np
import pytest
import sentencepiece

from keras_synth.export import export, with_dtype

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:keras.src.export.tf2onnx_lib")


def litert(version):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    runner = interpreter(str(version / "model.tflite")).get_signature_runner()
    return lambda inputs: runner(**inputs)


def onnx(version):
    session = pytest.importorskip("onnxruntime").InferenceSession(version / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def openvino(version):
    core = pytest.importorskip("openvino").Core()
    # On some machines it computes in bfloat16 unless it is told otherwise.
    model = core.compile_model(version / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda inputs: {
        name: value for output, value in model(inputs).items() for name in output.get_names()
    }


PACKAGES = {
    "litert": (litert, ["ai_edge_litert"]),
    "onnx": (onnx, ["tf2onnx", "onnxruntime"]),
    "openvino": (openvino, ["openvino"]),
}


def tokens(model, batch_size, length):
    rng = np.random.default_rng(length)
    return {
        tensor.name: np.ones((batch_size, length), "int32") * (np.arange(length) < max(1, length - 2))
        if "padding_mask" in tensor.name
        else rng.integers(1, 20, (batch_size, length))
        for tensor in model.inputs
    }


@pytest.mark.parametrize(
    "format, task, dtype",
    [
        *itertools.product(PACKAGES, ["causal_lm", "seq2seq_lm"], [None]),
        *itertools.product(PACKAGES, ["classifier"], [None, "int8"]),
        *itertools.product(["onnx", "openvino"], ["classifier"], ["float16"]),
    ],
)
def test_each_runtime_computes_what_the_model_computes(format, task, dtype, make_task, tmp_path):
    runtime, packages = PACKAGES[format]
    for package in packages:
        pytest.importorskip(package)
    model = make_task(task, preprocessor=False, attention="random+dot_product")
    ask = runtime(export(model, tmp_path, format=format, dtype=dtype))
    sizes = [(1, model.backbone.max_length)] if format == "litert" else [(1, 7), (3, 23), (2, 1)]
    expected = with_dtype(model, dtype) if dtype else model
    for size in sizes:
        inputs = {name: ids.astype("int32") for name, ids in tokens(model, *size).items()}
        np.testing.assert_allclose(
            ask(inputs)["logits"], expected(inputs), rtol=1e-4, atol=2e-3 if dtype == "float16" else 1e-5
        )


@pytest.mark.parametrize("format", PACKAGES)
def test_outputs_have_the_names_of_a_saved_model(format, tmp_path):
    runtime, packages = PACKAGES[format]
    for package in packages:
        pytest.importorskip(package)
    a, b = (keras.Input((3,), name=name) for name in "ab")
    twice, once = keras.layers.Dense(2, name="twice"), keras.layers.Dense(4, name="once")
    model = keras.Model([a, b], [twice(a), once(b), twice(b), {"x": (once(a), twice(a))}])
    answer = runtime(export(model, tmp_path, format=format))(inputs := {
        name: np.random.default_rng(i).normal(size=(1, 3)).astype("float32") for i, name in enumerate("ab")
    })  # fmt: skip
    names = ["twice", "once", "twice_1", "x", "x_1"]
    assert format == "openvino" or answer.keys() == set(names)
    for name, value in zip(names, keras.tree.flatten(model(list(inputs.values()))), strict=True):
        np.testing.assert_allclose(answer[name], value, atol=1e-5)


def test_an_output_with_the_name_of_an_input(tmp_path):
    pytest.importorskip("onnxruntime")
    x = keras.Input((3,), name="x")
    model = keras.Model(x, {"x": keras.layers.Dense(2)(x)})
    inputs = {"x": np.ones((1, 3), "float32")}
    answer = onnx(export(model, tmp_path, format="onnx"))(inputs)
    np.testing.assert_allclose(answer["x_1"], model(inputs["x"])["x"], atol=1e-5)


def test_texts_by_the_tokenizer_that_lies_beside(make_task, tmp_path):
    pytest.importorskip("onnxruntime")
    model = make_task("classifier")
    version = export(model, tmp_path, format="onnx")
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(version / "vocabulary.spm"))
    text = "one three two"
    ids = [tokenizer.bos_id(), *tokenizer.encode(text), tokenizer.eos_id()]
    inputs = {"token_ids": np.array([ids], "int32"), "padding_mask": np.ones((1, len(ids)), "int32")}
    expected = model(model.preprocessor([text]))
    np.testing.assert_allclose(onnx(version)(inputs)["logits"], expected, atol=1e-5)


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_a_missing_package_is_named(format, tmp_path, monkeypatch):
    package = PACKAGES[format][1][0]
    monkeypatch.setitem(sys.modules, package, None)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ImportError, match=f"needs the package {package}"):
        export(model, tmp_path / "model", format=format)
    assert not (tmp_path / "model").exists()


def test_what_these_formats_cannot_hold(make_task, tmp_path):
    model = make_task("classifier", preprocessor=False)
    for format in PACKAGES:
        with pytest.raises(ValueError, match="holds weights in float32"):
            export(model, tmp_path / "model", format=format, dtype="bfloat16")
    with pytest.raises(ValueError, match="only of a SavedModel"):
        export(model, tmp_path / "model", format="litert", warmup=[{"text": ["one"]}])
    assert not (tmp_path / "model").exists()
