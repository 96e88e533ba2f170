"""Low precision, accumulated gradients, clipping, XLA and several steps at once, on one device."""

import random

import keras
import numpy as np
import pytest
from tasks import causal_language_model

pytestmark = pytest.mark.tensorflow


def compiled(optimizer, dtype=None, **kwargs):
    """A model that is the same in each call, and eight examples."""
    random.seed(1)
    model, example = causal_language_model(dtype)
    model.compile(optimizer, **kwargs)
    return model, keras.tree.map_structure(lambda array: array[:8], example)


def fit(model, example, batch_size=4, epochs=1):
    x, y, weight = example
    arguments = dict(sample_weight=weight, batch_size=batch_size, epochs=epochs)
    return model.fit(x, y, shuffle=False, verbose=0, **arguments).history["loss"]


def assert_equal_weights(one, other, **tolerance):
    for actual, expected in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(actual, expected, **tolerance)


@pytest.mark.parametrize(
    "make",
    [
        lambda **kwargs: keras.optimizers.SGD(1.0, global_clipnorm=0.1, **kwargs),
        lambda **kwargs: keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-2, **kwargs),
        lambda **kwargs: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0, **kwargs)),
    ],
    ids=["clipped", "adamw", "loss_scale"],
)
def test_accumulated_batches_are_one_large_batch(make):
    """The batches have 9, 10, 7 and 13 tokens, so it is not the mean of their means."""
    large, example = compiled(make(), run_eagerly=True)
    fit(large, example, batch_size=8, epochs=2)
    small, example = compiled(make(gradient_accumulation_steps=4), run_eagerly=True)
    fit(small, example, batch_size=2, epochs=2)
    assert_equal_weights(small, large, rtol=1e-5, atol=1e-6)


def test_accumulation_goes_on_after_loading(tmp_path):
    def make():
        return compiled(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), run_eagerly=True)

    model, example = make()
    fit(model, example)
    interrupted, example = make()
    first, second = (
        keras.tree.map_structure(lambda array, half=half: array[half], example)
        for half in (slice(4), slice(4, 8))
    )
    fit(interrupted, first)
    interrupted.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    fit(loaded, second)
    assert_equal_weights(loaded, model, rtol=1e-6)


@pytest.mark.parametrize(
    "dtype, jit_compile", [("mixed_bfloat16", False), ("float16", False), ("mixed_float16", True)]
)
def test_low_precision_learns_what_float32_learns(dtype, jit_compile):
    losses, weights = {}, None
    for policy in ("float32", dtype):
        optimizer = keras.optimizers.SGD(1.0, global_clipnorm=0.5)
        model, example = compiled(optimizer, policy, jit_compile=jit_compile and policy == dtype)
        # The same start, because in each dtype other random numbers are drawn.
        weights = model.get_weights() if weights is None else weights
        model.set_weights(weights)
        losses[policy] = fit(model, example, epochs=3)
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (dtype == "mixed_float16")
    assert losses["float32"][-1] < 0.9 * losses["float32"][0]
    np.testing.assert_allclose(losses[dtype], losses["float32"], rtol=1e-2)


def test_xla_and_several_steps_at_once_change_nothing():
    models = []
    for arguments in [{}, dict(jit_compile=True), dict(steps_per_execution=3)]:
        model, example = compiled(keras.optimizers.SGD(1.0, clipnorm=0.5), **arguments)
        assert model.jit_compile == ("jit_compile" in arguments)  # "auto" is no XLA on CPUs
        fit(model, example, batch_size=2, epochs=2)
        models.append(model)
    for other in models[1:]:
        assert int(other.optimizer.iterations) == 8
        assert_equal_weights(other, models[0], rtol=1e-4, atol=1e-6)
