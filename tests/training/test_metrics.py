"""The accuracy of integer classes: what NumPy computes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_synth.training import sparse_categorical_accuracy


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_it_is_the_share_of_largest_predictions(dtype):
    generator = np.random.default_rng(0)
    predictions = ops.cast(generator.normal(size=(5, 40, 1500)), dtype)
    predictions = ops.cast(ops.round(4 * predictions) / 4, dtype)  # many are equal
    best = np.argmax(np.array(ops.cast(predictions, "float32")), axis=-1)
    for targets in (best, best ^ 1, generator.integers(0, 1500, best.shape)):
        hits = sparse_categorical_accuracy(targets, predictions)
        assert hits.dtype == "float32"
        np.testing.assert_array_equal(hits, targets == best)


def test_it_is_a_metric_that_is_saved(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, weighted_metrics=[sparse_categorical_accuracy])
    x, y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 4
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    hits = np.argmax(model.predict(x, verbose=0), axis=-1) == y
    assert results["sparse_categorical_accuracy"] == pytest.approx(np.mean(hits))
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").evaluate(
        x, y, verbose=0, return_dict=True
    ) == pytest.approx(results)
