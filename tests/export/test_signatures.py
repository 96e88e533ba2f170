"""The names that models of other kinds are asked by, and get their answers with."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_synth.export import export

A, B = (keras.Input((3,), name=name) for name in "ab")
TWICE, ONCE = keras.layers.Dense(2, name="twice"), keras.layers.Dense(4, name="once")
X = {name: np.random.default_rng(i).normal(size=(5, 3)).astype("float32") for i, name in enumerate("ab")}


def ask(model, folder, **inputs):
    return tf.saved_model.load(export(model, folder)).signatures["predict"](**inputs)


@pytest.mark.parametrize(
    "make_outputs, names",
    [
        (lambda: [TWICE(A), TWICE(B)], ["twice", "twice_1"]),
        (lambda: (TWICE(A), TWICE(A), TWICE(B)), ["twice", "twice_1", "twice_2"]),
        (lambda: [[TWICE(A), ONCE(B)], TWICE(B)], ["twice", "once", "twice_1"]),
        (lambda: [A, TWICE(A)], ["a", "twice"]),
        (lambda: {"x": (TWICE(A), TWICE(B)), "y": {"z": ONCE(A)}}, ["x", "x_1", "y_z"]),
        (lambda: {"x": [TWICE(A), TWICE(B)], "x_1": ONCE(A)}, ["x", "x_2", "x_1"]),
        (lambda: [{"x": TWICE(A)}, {"x": TWICE(B)}, ONCE(B)], ["x", "x_1", "once"]),
        (lambda: {"x": {"y": TWICE(A)}, "x_y": TWICE(B)}, ["x_y", "x_y_1"]),
    ],
)
def test_every_output_has_a_name(make_outputs, names, tmp_path):
    model = keras.Model([A, B], make_outputs())
    answer = ask(model, tmp_path, **X)
    expected = keras.tree.flatten(model([X["a"], X["b"]]))
    assert answer.keys() == set(names) and len(names) == len(expected)
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(answer[name], value, atol=1e-6)


def test_outputs_of_a_model_inside_of_a_sequential_one(tmp_path):
    inner = keras.Model(A, [TWICE(A), ONCE(A)], name="inner")
    model = keras.Sequential([keras.Input((3,), name="x"), inner])
    answer = ask(model, tmp_path, x=X["a"])
    for name, value in zip(["inner", "inner_1"], inner(X["a"]), strict=True):
        np.testing.assert_allclose(answer[name], value, atol=1e-6)


def test_inputs_whose_names_repeat(tmp_path):
    inputs = [
        keras.layers.InputLayer(input_tensor=keras.KerasTensor((None, 3), name="x"), name=name).output
        for name in "ab"
    ]
    assert [tensor.name for tensor in inputs] == ["x", "x"]
    model = keras.Model(inputs, [TWICE(inputs[0]), ONCE(inputs[1])])
    answer = ask(model, tmp_path, x=X["a"], x_1=X["b"])
    np.testing.assert_allclose(answer["twice"], TWICE(X["a"]), atol=1e-6)
    np.testing.assert_allclose(answer["once"], ONCE(X["b"]), atol=1e-6)
