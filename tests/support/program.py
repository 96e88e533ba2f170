"""What tests run in processes of their own: it trains, checks, and saves results to be compared.

python program.py FUNCTION FOLDER
"""

import os
import pathlib
import random
import sys
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import pytest
import tensorflow as tf
from tasks import TASKS, Own, causal_language_model

#: What to run.
PROGRAM = pathlib.Path(__file__)
#: Not all, to save time.
EVALUATED = ("classifier", "model_of_ones_own", "masked_language_model")
TASKS_OF_WORKERS = {
    2: ["model_of_ones_own", "masked_language_model", "causal_language_model"],
    3: ["classifier", "sequence_to_sequence"],
}


def train(name, folder, variant, drop_remainder=False, **kwargs):
    """Trains a task, and saves its losses, its metrics and its weights in the end."""
    model, example = TASKS[name](**kwargs)
    draw = np.random.default_rng(1).normal  # the same on every backend
    model.set_weights([draw(0.0, 0.3, weight.shape) for weight in model.get_weights()])
    data = tf.data.Dataset.from_tensor_slices(example).batch(4, drop_remainder=drop_remainder)
    results = model.fit(data, epochs=2, verbose=0, shuffle=False).history
    if name in EVALUATED:
        results["evaluation"] = model.evaluate(data, verbose=0)
    weights = {f"weight {i}": weight for i, weight in enumerate(model.get_weights())}
    np.savez(folder / f"{name}, {variant}.npz", **results, **weights)
    return model, example[0]


def check(folder, function, variant, *arguments):
    """Calls a function of this module, and saves how it failed: nothing, if it did not."""
    path = folder / f"{function.__name__}, {variant}.txt"
    try:
        function(*arguments)
    except (Exception, pytest.fail.Exception):
        path.write_text(traceback.format_exc())
    else:
        path.touch()


def mirrored(count):
    cpus = [f"CPU:{i}" for i in range(count)]
    return tf.distribute.MirroredStrategy(cpus, tf.distribute.ReductionToOneDevice())


def replicas(folder):
    """All tasks on one device and on two, one also on four, and what else may go wrong on two."""
    from keras_synth.training import strategy

    strategy("cpu:4")
    two = mirrored(2)
    for name in TASKS:
        train(name, folder, "one device")
        with two.scope():
            model, _ = train(name, folder, "two replicas", steps_per_execution=2)
        check(folder, variables_are_distributed, name, model)
    with mirrored(4).scope():
        train("classifier", folder, "four replicas")
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        train("classifier", folder, "a single worker")
    for function in ON_TWO_REPLICAS:
        check(folder, function, "two replicas", two, folder)


def variables_are_distributed(model):
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    assert all(isinstance(variable.value, tf.distribute.DistributedValues) for variable in variables)


def replicas_draw_different_numbers(two, folder):
    with two.scope():
        inputs = keras.Input((50,))
        outputs = keras.layers.Dense(1, use_bias=False)(keras.layers.Dropout(0.5, seed=1)(inputs))
        model = Own(inputs, outputs)
        model.compile(keras.optimizers.SGD(1.0), lambda y, y_pred: y_pred)
    steps = []
    for _ in range(2):
        before = model.get_weights()[0]
        model.fit(np.ones((2, 50)), np.ones(2), verbose=0)
        steps.append(np.round(before - model.get_weights()[0]))
        # Where both replicas kept the input, where one did, where none did.
        assert set(steps[-1].ravel()) == {2.0, 1.0, 0.0}
        (seed,) = (v for v in model.variables if v.name == "seed_generator_state")
        np.testing.assert_array_equal(*seed.value.values)
    assert np.any(steps[0] != steps[1])


def bfloat16_follows_rates_set_by_callbacks(two, folder):
    def fit(dtype, callbacks):
        random.seed(1)
        model, (x, y, weight) = causal_language_model(dtype)
        model.compile(keras.optimizers.SGD(1.0), sampler="greedy")
        fit = dict(sample_weight=weight, batch_size=4, epochs=3, shuffle=False, verbose=0)
        return model, model.fit(x, y, **fit, callbacks=callbacks).history

    with two.scope():
        rates = [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
            keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, min_delta=100.0, patience=1),
        ]
        model, history = fit("mixed_bfloat16", rates)
    expected = [0.5, 0.25, 0.0125]
    np.testing.assert_allclose(history["learning_rate"], expected)
    same_rates = keras.callbacks.LearningRateScheduler(lambda epoch: expected[epoch])
    np.testing.assert_allclose(history["loss"], fit("float32", [same_rates])[1]["loss"], rtol=1e-2)
    check(folder, a_saved_model_loads_on_one_device_and_on_two, "two replicas", two, folder, model)


def a_saved_model_loads_on_one_device_and_on_two(two, folder, model):
    path = folder / "model.keras"
    model.save(path)
    on_one = keras.models.load_model(path)
    with two.scope():
        on_two = keras.models.load_model(path)
    for loaded in (on_one, on_two):
        variables = [*model.variables, *model.optimizer.variables]
        for one, other in zip(variables, [*loaded.variables, *loaded.optimizer.variables], strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    prompt = {"token_ids": np.array([[5, 6, 7, 0, 0]]), "padding_mask": np.array([[1, 1, 1, 0, 0]])}
    on_one.run_eagerly = True  # for a text so short
    answers = [loaded.generate(prompt, stop_token_ids=None)["token_ids"] for loaded in (on_one, on_two)]
    np.testing.assert_array_equal(*answers)


def a_gradient_that_one_replica_cannot_represent_changes_no_weight(two, folder):
    with two.scope():
        model, (x, y, weight) = causal_language_model("mixed_float16")
    model.compile("sgd")  # named, it is made under the scope
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    x, y, weight = keras.tree.map_structure(lambda array: array[:4].copy(), (x, y, weight))
    before = model.get_weights()

    def step(last):
        weight[-1] = last  # it is on the second replica
        model.fit(x, y, sample_weight=weight, batch_size=4, shuffle=False, verbose=0)
        changed = [np.any(old != new) for old, new in zip(before, model.get_weights(), strict=True)]
        return any(changed), float(model.optimizer.dynamic_scale.numpy())

    scale = model.optimizer.initial_scale
    assert step(np.inf) == (False, scale / 2)
    assert step(1.0) == (True, scale / 2)


def an_optimizer_of_another_scope_is_refused(two, folder):
    with two.scope():
        model, _ = causal_language_model()
    with pytest.raises(ValueError, match="under the scope of the model's strategy, MirroredStrategy"):
        model.compile(keras.optimizers.SGD(0.1))


def accumulated_gradients_are_refused(two, folder):
    with two.scope():
        model, _ = causal_language_model()
        accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="2 replicas no optimizer can accumulate.*_steps=2"):
        model.compile(accumulating)


def xla_is_refused(two, folder):
    with two.scope():
        model, _ = causal_language_model()
    with pytest.raises(ValueError, match="2 replicas `jit_compile` must be 'auto' or False"):
        model.compile("sgd", jit_compile=True)


def several_steps_at_once_are_refused_with_collectives(two, folder):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model, _ = causal_language_model()
        with pytest.raises(ValueError, match="`steps_per_execution` must be 1.*steps_per_execution=2"):
            model.compile("sgd", steps_per_execution=2)


def workers(folder):
    """Two tasks on three workers; others, and what else may go wrong, on two."""
    from keras_synth.training import num_workers, strategy

    where = strategy("multi_worker")
    this, count = where.cluster_resolver.task_id, num_workers(where)
    check(folder, workers_know_of_each_other, f"worker {this} of {count}", where)
    for name in TASKS_OF_WORKERS[count]:
        with where.scope():
            model, _ = train(name, folder, f"worker {this} of {count}")
    if count == 2:
        for function in ON_TWO_WORKERS:
            check(folder, function, f"worker {this} of 2", where, folder, model)


def workers_know_of_each_other(where):
    from keras_synth.training import any_worker, is_chief

    this = where.cluster_resolver.task_id
    assert is_chief(where) == (this == 0)
    assert any_worker(where, this == 1) and not any_worker(where, False)


def batches_of_one_file_are_split_by_examples(where, folder, model):
    this = where.cluster_resolver.task_id
    path = folder / "numbers.txt"
    lines = tf.data.TextLineDataset(path).map(lambda line: tf.strings.to_number(line, tf.int32))
    batch = next(iter(where.experimental_distribute_dataset(lines.batch(4))))
    (share,) = where.experimental_local_results(batch)
    np.testing.assert_array_equal(share, [2 * this, 2 * this + 1])


def the_clock_of_one_worker_stops_all_and_the_chief_alone_saves(where, folder, model):
    from keras_synth.training import TimeLimit, is_chief

    x, y, weight = TASKS["causal_language_model"]()[1]
    callbacks = [TimeLimit(60.0 if is_chief(where) else 0.0)]
    if is_chief(where):
        callbacks += [
            keras.callbacks.ModelCheckpoint(folder / name, save_weights_only=name.endswith(".h5"))
            for name in ("model.keras", "model.weights.h5")
        ]
    fit = dict(sample_weight=weight, batch_size=4, epochs=3, verbose=0, callbacks=callbacks)
    assert len(model.fit(x, y, **fit).history["loss"]) == 1
    if is_chief(where):
        with tf.distribute.get_strategy().scope():
            loaded = keras.models.load_model(folder / "model.keras")
        for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


#: Checks of replicas in one process, and of workers.
ON_TWO_REPLICAS = (
    replicas_draw_different_numbers,
    bfloat16_follows_rates_set_by_callbacks,
    a_gradient_that_one_replica_cannot_represent_changes_no_weight,
    an_optimizer_of_another_scope_is_refused,
    accumulated_gradients_are_refused,
    xla_is_refused,
    several_steps_at_once_are_refused_with_collectives,
)
ON_TWO_WORKERS = (
    batches_of_one_file_are_split_by_examples,
    the_clock_of_one_worker_stops_all_and_the_chief_alone_saves,
)


def devices(folder):
    """All tasks on four devices of JAX."""
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    for name in TASKS:
        model, x = train(name, folder, "JAX", drop_remainder=True)  # it splits nothing unevenly
        assert len(model.trainable_variables[0].value.sharding.device_set) == 4
    prompts = {name: value[:8] for name, value in x.items()}  # two for each device
    np.savez(folder / "answers.npz", **model.generate(prompts, stop_token_ids=None))


if __name__ == "__main__":
    {f.__name__: f for f in (replicas, workers, devices)}[sys.argv[1]](pathlib.Path(sys.argv[2]))
