"""Training that dies goes on, and ends with the weights of training that nothing disturbed."""

import errno
import os
import pathlib
import random
import resource
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_synth.training import Adafactor, AdamW, Checkpoint, InverseSquareRoot, TimeLimit

EPOCHS, STEPS = 3, 5


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    """Ends training before a step, counted from 0 in this run."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_begin(self, batch, logs=None):
        if self.left == 0:
            raise Killed
        self.left -= 1


def make_model(optimizer=None, **kwargs):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(6, kernel_initializer=keras.initializers.GlorotUniform(1)),
            keras.layers.Dropout(0.5, seed=2),
            keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(3)),
        ]
    )
    kwargs = {"run_eagerly": True, "jit_compile": False, **kwargs}
    model.compile(optimizer or keras.optimizers.Adam(InverseSquareRoot(0.1, 4)), "mse", **kwargs)
    return model


def examples(steps=STEPS):
    generator = np.random.default_rng(7)
    return generator.normal(size=(2 * steps, 4)), generator.normal(size=(2 * steps, 1))


def train(model, callbacks=(), data=None, epochs=EPOCHS, **kwargs):
    data = tf.data.Dataset.from_tensor_slices(examples()).batch(2) if data is None else data
    return model.fit(
        data, epochs=epochs, callbacks=[*callbacks], verbose=0, shuffle=False, **kwargs
    ).history


def train_with_kills(folder, kills, make=make_model, callbacks=lambda: [], also=lambda: [], **kwargs):
    """A run for each kill and one more to the end, each with a model and callbacks of its own."""
    for step in [*kills, None]:
        model, others = make(), also()
        checkpoint = Checkpoint(folder, every_minutes=None, every_steps=2, also=others)
        kill = [] if step is None else [Kill(step)]
        try:
            return model, train(model, [*callbacks(), *others, checkpoint, *kill], **kwargs)
        except Killed:
            continue


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def assert_same_state(model, other):
    for value, expected in zip(state(model), state(other), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.fixture(scope="module")
def undisturbed():
    model = make_model()
    train(model)
    return model


# A run after the first one skips the steps of its epoch that are done; they count here.
@pytest.mark.parametrize("kills", [[1], [3], [5], [6], [14], [4, 4, 8, 4], [0, 7, 0]])
def test_the_end_is_that_of_undisturbed_training(undisturbed, kills, tmp_path):
    model, _ = train_with_kills(tmp_path, kills)
    assert_same_state(model, undisturbed)
    assert int(model.optimizer.iterations) == EPOCHS * STEPS


@pytest.mark.nightly
def test_on_jax():
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-k", "not processes and not jax", __file__]
    subprocess.run(command, env={**os.environ, "KERAS_BACKEND": "jax"}, check=True)


@pytest.fixture(scope="module", params=[1, pytest.param(20, marks=pytest.mark.nightly)])
def killed_processes(request, tmp_path_factory):
    """The folder of trainings in processes, some of them killed, and what the program printed."""
    program = pathlib.Path(__file__).parents[1] / "support" / "killed.py"
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, program, folder, str(request.param)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return folder, result.stdout[-5000:], result.returncode


@pytest.mark.tensorflow
@pytest.mark.parametrize("place", ["one process", "two replicas", "two workers"])
def test_killed_processes_end_as_undisturbed_ones(killed_processes, place):
    folder, output, _ = killed_processes
    killed = list(folder.glob(f"{place}/killed*/end *.npz"))
    assert killed, output
    for path in killed:
        end, expected = np.load(path), np.load(folder / place / "undisturbed" / path.name)
        for name, array in expected.items():
            np.testing.assert_array_equal(end[name], array)


@pytest.mark.tensorflow
def test_the_program_that_kills_processes_ended_well(killed_processes):
    _, output, return_code = killed_processes
    assert return_code == 0, output


def test_no_more_than_the_steps_since_the_last_save_are_trained_again(tmp_path):
    trained = []

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            trained.append(int(self.model.optimizer.iterations))

    train_with_kills(tmp_path, [8], callbacks=lambda: [Recorder()])
    # Saved after 2, 4, 5 (an epoch) and 7 steps; the second run skips two of the second epoch.
    assert trained == [*range(1, 9), 0, 0, *range(8, 16)]


def test_what_is_lost_by_a_kill_is_no_more_than_a_minute_if_you_wish(tmp_path):
    model = make_model()
    saved = []

    class Recorder(Checkpoint):
        def save(self):
            super().save()
            saved.append(int(self.model.optimizer.iterations))

    train(model, [Recorder(tmp_path, every_minutes=0)], epochs=1)
    assert saved == [1, 2, 3, 4, 5]
    saved.clear()
    train(make_model(), [Recorder(tmp_path / "other", every_minutes=60)])
    assert saved == [5, 10, 15]


def float16():
    return make_model(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), dynamic_growth_steps=3)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_model(keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True)),
        lambda: make_model(AdamW(0.01, weight_decay=0.1)),
        lambda: make_model(Adafactor(InverseSquareRoot.t5(3))),
        lambda: make_model(keras.optimizers.Adam(use_ema=True, ema_overwrite_frequency=4)),
        lambda: make_model(keras.optimizers.Adam(gradient_accumulation_steps=3)),
        float16,
        lambda: make_model(run_eagerly=False),
        lambda: make_model(run_eagerly=False, steps_per_execution=2),
    ],
    ids=["momentum", "AdamW", "Adafactor", "average", "accumulation", "float16", "graph", "two at once"],
)
def test_every_optimizer_goes_on(make, tmp_path):
    expected = make()
    train(expected)
    # In an accumulation of gradients, among others.
    model, _ = train_with_kills(tmp_path, [4], make)
    assert_same_state(model, expected)


def patient():
    return [
        keras.callbacks.EarlyStopping("loss", patience=4, min_delta=10.0, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2, min_delta=10.0),
        keras.callbacks.History(),
    ]


def rates():
    return [keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate)]


def test_callbacks_go_on(tmp_path):
    def make():
        return make_model(keras.optimizers.Adam(0.1))

    expected = make()
    history = train(expected, [*rates(), *patient()], epochs=9)
    assert len(history["loss"]) == 5  # patience has ended
    assert len(set(history["learning_rate"])) == 5
    kills = [3 * STEPS + 1, 4]
    model, resumed = train_with_kills(tmp_path, kills, make, rates, patient, epochs=9)
    assert_same_state(model, expected)
    np.testing.assert_allclose(resumed["learning_rate"], history["learning_rate"])
    # What was stopped stays so, and gives its best weights again.
    model, resumed = train_with_kills(tmp_path, [], make, rates, patient, epochs=9)
    assert_same_state(model, expected)
    assert len(resumed["loss"]) == 5


def test_what_numpy_and_python_shuffle_comes_in_the_same_order(tmp_path):
    def data():
        x, y = examples()
        order = [*range(len(x))]
        random.shuffle(order)
        for i in np.random.permutation(order):
            yield x[i : i + 1], y[i : i + 1]

    def dataset():
        random.seed(5)
        np.random.seed(6)
        shape = [tf.TensorSpec((None, size)) for size in (4, 1)]
        data_set = tf.data.Dataset.from_generator(data, output_signature=tuple(shape))
        return data_set.apply(tf.data.experimental.assert_cardinality(2 * STEPS))

    expected = make_model()
    train(expected, data=dataset())
    before, state = random.getstate(), np.random.get_state()
    for kill in (3 * STEPS, None):  # in the second epoch
        model = make_model()
        callbacks = [Checkpoint(tmp_path, every_steps=3), *([Kill(kill)] if kill else [])]
        try:
            train(model, callbacks, dataset())
        except Killed:
            continue
    assert_same_state(model, expected)
    assert random.getstate() == before
    np.testing.assert_array_equal(np.random.get_state()[1], state[1])


def test_data_in_another_order_in_each_epoch(tmp_path):
    x, y = examples()

    def epochs(first):
        def shuffled(epoch):
            data = tf.data.Dataset.from_tensor_slices((x, y))
            return data.shuffle(len(x), seed=epoch, reshuffle_each_iteration=False).batch(2)

        return tf.data.Dataset.range(1 + first, 1 + EPOCHS).flat_map(shuffled)

    expected = make_model()
    train(expected, data=epochs(0), steps_per_epoch=STEPS)
    for kill in (2 * STEPS + 3, None):
        model, checkpoint = make_model(), Checkpoint(tmp_path, every_steps=2)
        callbacks = [checkpoint, *([Kill(kill)] if kill else [])]
        try:
            train(model, callbacks, epochs(checkpoint.epoch), steps_per_epoch=STEPS)
        except Killed:
            assert Checkpoint(tmp_path).epoch == 2
    assert_same_state(model, expected)


@pytest.mark.parametrize("kill", [STEPS, STEPS + 2])
def test_data_that_goes_on_from_epoch_to_epoch(kill, tmp_path):
    def batches():
        return tf.data.Dataset.from_tensor_slices(examples(8)).batch(2).repeat()

    expected = make_model()
    train(expected, data=batches(), steps_per_epoch=STEPS)
    callbacks = [Checkpoint(tmp_path, every_steps=1), Kill(kill)]
    with pytest.raises(Killed):
        train(make_model(), callbacks, batches(), steps_per_epoch=STEPS)
    with pytest.raises(ValueError, match="saved in epoch 2.*begin with .*Received: steps_per_epoch=5"):
        train(make_model(), [Checkpoint(tmp_path)], batches(), steps_per_epoch=STEPS)
    model, checkpoint = make_model(), Checkpoint(tmp_path)
    rest = batches().skip(checkpoint.epoch * STEPS)
    train(model, [checkpoint], rest, steps_per_epoch=STEPS)
    assert_same_state(model, expected)


def test_time_that_ran_out_in_an_epoch(undisturbed, tmp_path):
    class StopAt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    train(make_model(), [StopAt(), Checkpoint(tmp_path)])
    assert Checkpoint(tmp_path).epoch == 0
    # Not even time to skip the steps that are done.
    train(make_model(), [TimeLimit(-1), Checkpoint(tmp_path)])
    model, _ = train_with_kills(tmp_path, [])
    assert_same_state(model, undisturbed)


def test_a_model_that_was_trained_before(undisturbed, tmp_path):
    train_with_kills(tmp_path, [7, 0])
    model = make_model()
    train(model, epochs=1)
    train(model, [Checkpoint(tmp_path)])
    assert_same_state(model, undisturbed)
    # Without a checkpoint, `fit` begins where it is told to.
    assert len(train(model, epochs=2)["loss"]) == 2


def test_after_the_end_there_is_nothing_to_train_but_more_epochs(undisturbed, tmp_path):
    train(make_model(), [Checkpoint(tmp_path)], epochs=2)
    model = make_model()
    assert train(model, [Checkpoint(tmp_path)], epochs=2) == {}
    assert int(model.optimizer.iterations) == 2 * STEPS
    assert len(train(model, [Checkpoint(tmp_path)])["loss"]) == 1
    assert_same_state(model, undisturbed)


@pytest.mark.tensorflow
def test_after_the_end_there_may_be_no_data(undisturbed, tmp_path):
    train_with_kills(tmp_path, [])
    model = make_model()
    nothing = tf.data.Dataset.from_tensor_slices(examples()).batch(2).take(0)
    assert train(model, [Checkpoint(tmp_path)], nothing, steps_per_epoch=0) == {}
    assert_same_state(model, undisturbed)


def test_weights_in_bfloat16(tmp_path):
    def make():
        dense = keras.layers.Dense(
            1, dtype="bfloat16", kernel_initializer=keras.initializers.GlorotUniform(1)
        )
        model = keras.Sequential([keras.Input((4,)), dense])
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
        return model

    def also():  # the best weights are those of the first epoch
        return [keras.callbacks.EarlyStopping("loss", patience=2, min_delta=9.0, restore_best_weights=True)]

    expected = make()
    train(expected, also())
    model, _ = train_with_kills(tmp_path, [STEPS + 3], make, also=also)
    assert_same_state(model, expected)


def test_checkpoints_are_models(tmp_path):
    model = make_model()
    train(model, [Checkpoint(tmp_path, every_steps=2, keep=4)])
    assert [path.name for path in Checkpoint(tmp_path).paths] == [
        f"step-{step:08}.keras" for step in (10, 12, 14, 15)
    ]
    assert sorted(tmp_path.iterdir()) == Checkpoint(tmp_path).paths
    loaded = keras.models.load_model(Checkpoint(tmp_path).path)
    for ours, theirs in [
        (loaded.weights, model.weights),
        (loaded.optimizer.variables, model.optimizer.variables),
    ]:
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, flip, lambda content: b""], ids=["cut", "flip", "empty"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(undisturbed, damage, tmp_path):
    train_with_kills(tmp_path, [])
    *_, before, newest = Checkpoint(tmp_path).paths
    newest.write_bytes(damage(newest.read_bytes()))
    with pytest.warns(UserWarning, match=f"{newest.name} is damaged"):
        assert Checkpoint(tmp_path).path == before
    with warnings.catch_warnings(record=True) as reports:
        warnings.simplefilter("always")
        model, _ = train_with_kills(tmp_path, [])
    assert any(f"{newest.name} is damaged" in str(report.message) for report in reports)
    assert_same_state(model, undisturbed)
    assert Checkpoint(tmp_path).path == newest


def test_damaged_checkpoints_alone_are_an_error(tmp_path):
    tmp_path.joinpath("step-00000003.keras").write_bytes(b"damaged")
    with (
        pytest.warns(UserWarning, match="step-00000003.keras is damaged"),
        pytest.raises(ValueError, match="All checkpoints in .* are damaged.*step-00000003.keras"),
    ):
        train(make_model(), [Checkpoint(tmp_path)])


def test_a_full_disk(undisturbed, tmp_path):
    class FullDisk(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == 8:
                size = min(path.stat().st_size for path in tmp_path.iterdir())
                resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        message = "File too large: the checkpoint of step 9 .*step-00000007.keras"
        with pytest.raises(OSError, match=message) as full:
            train_with_kills(tmp_path, [], callbacks=lambda: [FullDisk()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert full.value.errno == errno.EFBIG
    assert sorted(tmp_path.iterdir()) == Checkpoint(tmp_path).paths
    assert Checkpoint(tmp_path).path.name == "step-00000007.keras"
    model, _ = train_with_kills(tmp_path, [])
    assert_same_state(model, undisturbed)


def test_a_kill_while_saving_leaves_what_was_there(undisturbed, tmp_path, monkeypatch):
    replace = os.replace

    def killed(partial, path):
        if "00000007" in str(path):
            raise Killed
        replace(partial, path)

    monkeypatch.setattr(os, "replace", killed)
    monkeypatch.setattr("pathlib.Path.unlink", lambda self, missing_ok=False: None)
    with pytest.raises(Killed):
        train(make_model(), [Checkpoint(tmp_path, every_steps=1)])
    monkeypatch.undo()
    (partial,) = set(tmp_path.iterdir()) - set(Checkpoint(tmp_path).paths)
    model, _ = train_with_kills(tmp_path, [])
    assert_same_state(model, undisturbed)
    assert not partial.exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite(bad, tmp_path):
    x, y = examples()
    y[2 * 3] = bad  # in the fourth batch
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    with pytest.raises(
        FloatingPointError, match=r"loss is (nan|inf) at step 4 \(epoch 1\).*00000002.keras"
    ):
        train_with_kills(tmp_path, [], data=data)
    with pytest.raises(FloatingPointError, match=r"loss is (nan|inf) at steps 4 to 6 \(epoch 1\)"):
        train(
            make_model(run_eagerly=False, steps_per_execution=3),
            [Checkpoint(tmp_path / "other")],
            data.repeat(2),
        )


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == 4:
                self.model.layers[0].kernel.assign(np.full((4, 6), np.nan))

    with pytest.raises(
        FloatingPointError, match=r"dense\w*/kernel is not finite after step 4 .*00000002.keras"
    ):
        train_with_kills(tmp_path, [], callbacks=lambda: [Spoil()])


def unbuilt():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    "make, data, also, message",
    [
        (lambda: make_model(keras.optimizers.SGD(0.1)), None, [], "saved with another optimizer.*=SGD"),
        # On JAX, Keras builds it by itself.
        pytest.param(unbuilt, None, [], "must be built.*=sequential", marks=pytest.mark.tensorflow),
        (make_model, examples(steps=2), [], "after 4 steps of epoch 1, which now has fewer"),
        (make_model, None, [TimeLimit(9)], "saved with 0 callbacks in `also`.*TimeLimit"),
        (
            lambda: make_model(run_eagerly=False, steps_per_execution=3),
            None,
            [],
            "after 4 steps of an epoch, .* multiple of `steps_per_execution`.*=3",
        ),
    ],
)
def test_what_does_not_fit_the_checkpoint(make, data, also, message, tmp_path):
    with pytest.raises(Killed):
        train(make_model(), [Checkpoint(tmp_path, every_steps=2), Kill(4)])
    data = data and tf.data.Dataset.from_tensor_slices(data).batch(2)
    with pytest.raises(ValueError, match=message):
        train(make(), [Checkpoint(tmp_path, also=also)], data)


@pytest.mark.parametrize("argument", [{"every_minutes": -1}, {"every_steps": 0}, {"keep": 0}])
def test_bad_arguments(argument, tmp_path):
    ((name, value),) = argument.items()
    with pytest.raises(ValueError, match=f"`{name}` must be at least .* Received: {name}={value}"):
        Checkpoint(tmp_path, **argument)
