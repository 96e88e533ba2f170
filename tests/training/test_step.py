"""The loss of a model of one's own, and what its optimizer does with the gradients of several batches."""

import keras
import numpy as np
import pytest
from tasks import Own, model_of_ones_own

from keras_synth import training

pytestmark = pytest.mark.tensorflow


def examples():
    generator = np.random.default_rng(3)
    return [generator.normal(size=(10, size)).astype("float32") for size in (3, 1)]


def functional(*mixins):
    class Model(*mixins, keras.Model):
        pass

    inputs = keras.Input((3,))
    return Model(inputs, keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")(inputs))


def subclassed(*mixins):
    class Model(*mixins, keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")

        def call(self, inputs):
            return self.dense(inputs)

    return Model()


def with_a_loss_of_its_own(*mixins):
    class Model(*mixins, keras.Model):
        def compute_loss(
            self, x, y, y_pred, sample_weight=None
        ):  # not that of Keras, and without `training`
            return keras.ops.mean(keras.ops.abs(y - y_pred))

    inputs = keras.Input((3,))
    return Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))


def with_an_addition_to_its_loss(*mixins):
    class Model(*mixins, keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, *args, **kwargs):
            return super().compute_loss(x, y, y_pred, *args, **kwargs) + keras.ops.mean(y_pred**2)

    inputs = keras.Input((3,))
    return Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))


@pytest.mark.parametrize(
    "make", [functional, subclassed, with_a_loss_of_its_own, with_an_addition_to_its_loss]
)
@pytest.mark.parametrize("run_eagerly", [True, False])
def test_accumulated_batches_are_one_large_batch_of_keras(make, run_eagerly):
    x, y = examples()
    results = []
    for mixins, steps, batch_size in [((training.ReplicaTraining,), 3, 4), ((), None, 10)]:
        model = make(*mixins)
        # The last of the three batches has two examples.
        optimizer = keras.optimizers.Adam(0.1, epsilon=1e-2, gradient_accumulation_steps=steps)
        model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=run_eagerly)
        fit = dict(batch_size=batch_size, epochs=3, shuffle=False, verbose=0)
        history = model.fit(x, y, **fit).history
        results.append([model.get_weights(), history, model.evaluate(x, y, verbose=0)])
    actual, expected = map(keras.tree.flatten, results)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_batches_with_a_mask_are_one_large_batch():
    results = []
    for steps, batch_size in [(3, 4), (None, 10)]:
        keras.utils.set_random_seed(1)
        model, (x, y) = model_of_ones_own()
        optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=steps)
        model.compile(optimizer, model.loss, run_eagerly=True)
        history = model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0).history
        results.append([model.get_weights(), history])
    actual, expected = map(keras.tree.flatten, results)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_an_optimizer_also_accumulates_what_no_model_weighs():
    model = functional(training.ReplicaTraining)
    model.compile(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), "mse")
    kernel, bias = before = model.get_weights()
    for size in (1.0, 3.0):
        model.optimizer.apply([size * np.ones_like(kernel), np.zeros_like(bias)], model.trainable_variables)
    np.testing.assert_allclose(model.get_weights()[0], before[0] - 2.0)


def test_a_loss_that_is_a_mean_over_weights():
    x, y = examples()
    weight = np.arange(10.0)
    model = functional(training.ReplicaTraining)
    expected = np.average((model.predict(x, verbose=0) - y)[:, 0] ** 2, weights=weight)
    expected += float(keras.ops.sum(model.losses))
    model.compile("sgd", keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"))
    loss = model.evaluate(x, y, sample_weight=weight, batch_size=3, verbose=0)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_several_outputs():
    x, y = examples()
    inputs = keras.Input((3,))
    outputs = {name: keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")}
    model = Own(inputs, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 2.0})
    a, b = (model.predict(x, verbose=0)[name] - y for name in ("a", "b"))
    results = model.evaluate(x, {"a": y, "b": y}, batch_size=4, return_dict=True, verbose=0)
    np.testing.assert_allclose(results["loss"], np.mean(a**2) + 2 * np.mean(np.abs(b)), rtol=1e-5)
    with pytest.raises(ValueError, match="`loss` of a Own is a mean, .*Received: reduction='sum'"):
        model.compile("sgd", {"a": "mse", "b": keras.losses.MeanAbsoluteError(reduction="sum")})


def test_the_accuracy_tells_large_classes_apart_in_bfloat16():
    inputs = keras.Input((1,), dtype="int32")
    model = Own(inputs, keras.layers.Embedding(4, 3000, dtype="mixed_bfloat16")(inputs)[:, 0])
    model.compile("sgd", metrics=["sparse_categorical_accuracy"], loss="sparse_categorical_crossentropy")
    best = np.argmax(keras.ops.cast(model(np.arange(4)[:, None]), "float32"), axis=-1)
    for target, accuracy in [(best, 1.0), (best ^ 1, 0.0)]:
        assert model.evaluate(np.arange(4)[:, None], target, verbose=0)[1] == accuracy


def test_its_former_name():
    from keras_synth.training.replicas import ReplicaTraining

    assert ReplicaTraining is training.ReplicaTraining
