"""Label smoothing: what Keras computes from one-hot targets."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_synth.training import SmoothedCrossentropy

CLASSES = 7


@pytest.fixture
def targets_and_logits():
    generator = np.random.default_rng(1)
    targets = generator.integers(0, CLASSES, (3, 5))
    return targets, generator.normal(scale=4.0, size=(3, 5, CLASSES)).astype("float32")


def one_hot(label_smoothing, **kwargs):
    return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=label_smoothing, **kwargs)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight", None])
def test_it_equals_the_loss_of_one_hot_targets(targets_and_logits, label_smoothing, reduction):
    targets, logits = targets_and_logits
    weight = np.random.default_rng(2).uniform(0, 2, targets.shape) * [1, 1, 1, 0, 1]
    expected = one_hot(label_smoothing, reduction=reduction)(np.eye(CLASSES)[targets], logits, weight)
    loss = SmoothedCrossentropy(label_smoothing, reduction=reduction)
    np.testing.assert_allclose(loss(targets, logits, weight), expected, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
def test_its_gradient_too(targets_and_logits, label_smoothing, jit_compile):
    targets, logits = targets_and_logits

    def gradient(loss, targets):
        @tf.function(jit_compile=jit_compile)
        def compute(logits):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                result = loss(targets, logits)
            return tape.gradient(result, logits)

        return compute(tf.constant(logits))

    np.testing.assert_allclose(
        gradient(SmoothedCrossentropy(label_smoothing), targets),
        gradient(one_hot(label_smoothing), np.eye(CLASSES, dtype="float32")[targets]),
        atol=1e-6,
    )


@pytest.mark.parametrize("scale", [1.0, 80.0])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits_are_scored_in_float32(targets_and_logits, dtype, scale):
    targets, logits = targets_and_logits
    rounded = ops.cast(logits * scale, dtype)
    result = SmoothedCrossentropy()(targets, rounded)
    assert result.dtype == "float32"
    expected = one_hot(0.1)(np.eye(CLASSES)[targets], ops.cast(rounded, "float32"))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_it_trains_a_saved_model(tmp_path):
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.Dense(CLASSES)])
    model.compile("adam", SmoothedCrossentropy(0.2))
    x, y = np.ones((4, 5, 4)), np.ones((4, 5), "int32")
    model.fit(x, y, sample_weight=np.tri(4, 5), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == model.loss.get_config()
    assert loaded.evaluate(x, y, verbose=0) == pytest.approx(model.evaluate(x, y, verbose=0))


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.5])
def test_a_smoothing_out_of_range(label_smoothing):
    with pytest.raises(ValueError, match=f"between 0 and 1.*label_smoothing={label_smoothing}"):
        SmoothedCrossentropy(label_smoothing)
