"""Dropout of attention weights, on both paths."""

import numpy as np
import pytest
from helpers import ALL, BATCH, LENGTH, PADDING, attention, close, inputs

PATHS = {
    "shared": ("random", {}),
    "shared, padding": ("random", {"value_mask": PADDING}),
    "per example": ("dense", {"value_mask": PADDING}),
}
paths = pytest.mark.parametrize("name, masks", PATHS.values(), ids=PATHS)


@pytest.mark.parametrize("name", ALL)
def test_dropout_acts_in_training_alone(name):
    layer, x = attention(name, dropout=0.9, seed=1), inputs()
    expected = attention(name)(x)
    close(layer(x), expected)
    close(layer(x, training=False), expected)
    assert np.abs(layer(x, training=True) - expected).max() > 0.1


@paths
def test_seeds_make_dropout_reproducible(name, masks):
    def draws(seed):
        layer = attention(name, dropout=0.5, seed=seed)
        return [np.asarray(layer(inputs(), training=True, **masks)) for _ in range(2)]

    first, second = draws(seed=1)
    assert np.abs(first - second).max() > 0.01
    np.testing.assert_array_equal([first, second], draws(seed=1))
    assert np.abs(first - draws(seed=2)[0]).max() > 0.01


@paths
def test_dropout_keeps_the_expectation(name, masks):
    layer, x = attention(name, dropout=0.3, seed=1), inputs()
    samples = np.stack([layer(x, training=True, **masks) for _ in range(60)])
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - layer(x, **masks)) <= 5 * error + 1e-10)


@paths
def test_dropout_leaves_the_scores_alone(name, masks):
    layer, x = attention(name, dropout=0.9, seed=1), inputs()
    _, expected = layer(x, return_attention_scores=True, **masks)
    _, scores = layer(x, return_attention_scores=True, training=True, **masks)
    close(scores, expected)


@paths
def test_dropout_never_shows_what_a_mask_hides(name, masks):
    layer, mask = attention(name, dropout=0.5, seed=1), np.tile([1, 1, 1, 0, 0], (BATCH, 1))
    other = attention(name, dropout=0.5, seed=1)
    x, changed = inputs(), inputs()
    changed[:, 3:] += 1
    outputs = [each(y, value_mask=mask, training=True) for each, y in [(layer, x), (other, changed)]]
    close(outputs[0][:, :3], outputs[1][:, :3])
    assert outputs[0].shape[1] == LENGTH


@pytest.mark.parametrize("masks", [{}, {"value_mask": 1}, {"attention_mask": 1}], ids=str)
@pytest.mark.parametrize("name, shared", [("random", True), ("random+dot_product", False)])
def test_examples_share_the_dropout_of_logits_that_they_share(name, shared, masks):
    shapes = {"value_mask": (BATCH, LENGTH), "attention_mask": (BATCH, LENGTH, LENGTH)}
    masks = {key: np.ones(shapes[key], bool) for key in masks}
    layer, x = attention(name, dropout=0.5, seed=1), np.repeat(inputs(1), BATCH, axis=0)
    outputs = np.asarray(layer(x, training=True, **masks))
    assert np.abs(outputs - layer(x, **masks)).max() > 0.1
    assert np.allclose(outputs, outputs[:1]) == shared
