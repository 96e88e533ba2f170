"""Learning rates, against the formulas of the papers."""

import keras
import numpy as np
import pytest

from keras_synth.training import InverseSquareRoot


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


@pytest.mark.parametrize(
    "hidden_dim, warmup_steps, factor", [(512, 4000, 1.0), (1024, 16000, 2.0), (64, 1, 1)]
)
def test_the_transformer(hidden_dim, warmup_steps, factor):
    steps = np.array([0, 1, 99, warmup_steps - 1, warmup_steps, 99_999, 299_999])
    n = steps + 1.0
    expected = factor * hidden_dim**-0.5 * np.minimum(n**-0.5, n * warmup_steps**-1.5)
    schedule = InverseSquareRoot.transformer(hidden_dim, warmup_steps, factor)
    np.testing.assert_allclose(rates(schedule, steps), expected, rtol=1e-5)


def test_the_base_model_peaks_at_7e_4():
    assert InverseSquareRoot.transformer(512).peak == pytest.approx(7e-4, rel=2e-2)


@pytest.mark.parametrize("warmup_steps", [1, 10_000])
def test_t5(warmup_steps):
    steps = np.array([0, 1, 4_999, 9_999, 10_000, 524_287])
    expected = 1 / np.sqrt(np.maximum(steps + 1, warmup_steps))
    np.testing.assert_allclose(rates(InverseSquareRoot.t5(warmup_steps), steps), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "schedule",
    [InverseSquareRoot(0.3, 10), InverseSquareRoot.transformer(8, 3), InverseSquareRoot.t5(7)],
)
def test_in_an_optimizer_that_is_saved(schedule):
    optimizer = keras.optimizers.Adam(schedule)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    for step in (0, 5, 20):
        again.iterations.assign(step)
        assert float(again.learning_rate) == float(schedule(step))


def test_it_is_counted_in_steps_of_training():
    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    model.compile(
        keras.optimizers.SGD(InverseSquareRoot(0.4, 4)), lambda y, y_pred: y_pred, run_eagerly=True
    )
    weights = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: weights.append(float(model.get_weights()[0][0, 0]))
    )
    model.fit(np.ones((8, 1)), np.ones((8, 1)), batch_size=1, verbose=0, callbacks=[record])
    expected = [0.1, 0.2, 0.3, 0.4, *(0.4 * np.sqrt(4 / np.arange(5, 9)))]
    np.testing.assert_allclose(weights, 1 - np.cumsum(expected), atol=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"warmup_steps": 0}, "`warmup_steps` must be at least 1.*warmup_steps=0"),
        ({"warmup_steps": 9, "warmup": "cosine"}, "`warmup` must be one of 'linear', 'constant'.*'cosine'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        InverseSquareRoot(0.1, **arguments)


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=9.0),
    ],
)
def test_keras_refuses_to_set_the_rate_beside_a_schedule(callback):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(InverseSquareRoot(0.1, 4)), "mse", run_eagerly=True)
    with pytest.raises(TypeError, match="LearningRateSchedule"):
        model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0, epochs=3, callbacks=[callback])
