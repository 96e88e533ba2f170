"""Files that were saved before files moved between rooms: they load, and answer the same."""

import pathlib

import keras
import numpy as np
import pytest

import keras_synth.models  # noqa: F401  Registers the classes.

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", ["layers", "seq2seq"])
def test_a_file_of_before_answers_the_same(name):
    model = keras.models.load_model(FIXTURES / f"{name}_before_0.1.keras")
    saved = np.load(FIXTURES / f"{name}_before_0.1.npz")
    inputs = {tensor.name: saved[tensor.name] for tensor in model.inputs}
    outputs = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(outputs, saved["output"], rtol=1e-4, atol=1e-5)
    if name == "seq2seq":
        answers = model.generate(["one two", "three"], max_length=10)
        assert [str(answer) for answer in answers] == saved["generated"].tolist()
