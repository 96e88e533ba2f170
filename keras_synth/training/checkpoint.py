"""Checkpoints: training that was killed goes on as if nothing had happened."""

import errno
import inspect
import os
import pathlib
import time
import warnings
import zipfile

import keras
import numpy as np
from keras import ops

from keras_synth.core.files import PARTIAL, replace_file
from keras_synth.training.state import (
    capture_state,
    check_state,
    dump_state,
    get_python_random,
    load_state,
    restore_state,
    set_python_random,
)
from keras_synth.training.strategies import any_worker, is_chief

#: What a checkpoint has beside what every `.keras` file has.
STATE = "training.json"


class Checkpoint(keras.callbacks.Callback):
    """Saves the state of training every so often, and goes on from there in another process.

    The same program, started again, goes on from the newest checkpoint, also in the middle of an epoch, and
    ends with the weights of a run that nothing disturbed: weights, optimizer, random state of the layers,
    epoch, step, and the state of the callbacks in `also` are as they were. The steps of the epoch that are
    done are skipped: their batches are read and not trained. So the data must come in the same order in
    each run; where that differs from epoch to epoch, or goes on from one to the next, as with
    `steps_per_epoch` and `repeat()`, give the data from epoch `checkpoint.epoch` on, as
    `keras_synth.data.token_batches` does with `epochs`. Metrics of the interrupted epoch are those of its
    steps after the interruption.

    Each checkpoint is a whole model, `<folder>/step-<number>.keras`, which `keras.models.load_model` reads.
    It is written under another name and moved into place when it is on the disk, so whatever happens, there
    are only whole ones. One that was damaged later is reported, and the one before it used. With several
    workers the chief saves, and all go on from the same folder, which they share. A folder belongs to one
    training: to train on after its end, raise `epochs`; to begin anew, take another folder.

    Args:
        folder: string or path. It is made if need be.
        every_minutes: float. The time between two checkpoints. Defaults to `10`. `None` for no such.
        every_steps: int. The number of steps between two checkpoints. Defaults to `None`. In any case there
            is one at the end of each epoch, after validation, and of training.
        keep: int. The number of checkpoints that are kept, the newest. Defaults to `3`.
        also: A list of callbacks of the same training whose state is saved and restored too, as those of
            Keras with a patience, and `keras.callbacks.History`. Their numbers, texts, arrays, and lists
            and dicts of these count, but for arguments of their constructors.

    Raises:
        ValueError: If an argument is out of its range. In `fit`, if there are checkpoints and all of them
            are damaged, they do not fit the model, its optimizer or `also`, or the data has fewer steps, or
            goes on from epoch to epoch and `epoch` was not asked for.
        FloatingPointError: In `fit`, if the loss or a weight becomes infinite or NaN. The message names the
            step; the checkpoints before it stay.
        OSError: In `fit`, if a checkpoint cannot be written, as on a full disk. Those before it stay.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> x, y = np.ones((8, 3)), np.ones((8, 1))
    >>> def train(epochs):  # as if in processes of their own
    ...     model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    ...     model.compile("adam", "mse")
    ...     fit = dict(batch_size=2, shuffle=False, verbose=0, callbacks=[Checkpoint(folder)])
    ...     return model.fit(x, y, epochs=epochs, **fit).epoch
    >>> train(epochs=2), train(epochs=5)
    ([0, 1], [2, 3, 4])
    >>> Checkpoint(folder).epoch
    5
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        every_minutes: float | None = 10,
        every_steps: int | None = None,
        keep: int = 3,
        also: list[keras.callbacks.Callback] | tuple = (),
    ):
        super().__init__()
        for name, value, least in [
            ("every_minutes", every_minutes, 0),
            ("every_steps", every_steps, 1),
            ("keep", keep, 1),
        ]:
            if value is not None and value < least:
                raise ValueError(f"`{name}` must be at least {least}. Received: {name}={value}")
        self.folder = pathlib.Path(folder)
        self.every_minutes = every_minutes
        self.every_steps = every_steps
        self.keep = keep
        self.also = list(also)
        self._epoch_is_known = False

    @property
    def paths(self) -> list[pathlib.Path]:
        """The files of all checkpoints, the newest last."""
        return sorted((path for path in self.folder.glob("step-*.keras") if _step(path)), key=_step)

    @property
    def path(self) -> pathlib.Path | None:
        """The file that training goes on from, the newest that is whole; `None` if there is none."""
        return self._newest()[0]

    @property
    def epoch(self) -> int:
        """The epoch in which training goes on: what `fit` calls `initial_epoch`."""
        self._epoch_is_known = True  # to whoever makes the data
        return self._newest()[1].get("epoch", 0)

    def _newest(self):
        """The path and the state of the newest checkpoint that is whole."""
        paths = self.paths
        for path in reversed(paths):
            try:
                return path, _read_state(path)
            except Exception as error:  # a damaged archive raises what it likes
                warnings.warn(f"{path} is damaged and will not be used: {error!r}", stacklevel=3)
        if paths:
            raise ValueError(
                f"All checkpoints in {self.folder} are damaged. Remove them to begin anew, or restore: "
                f"{', '.join(path.name for path in paths)}"
            )
        return None, {}

    # All that the other callbacks do at the beginning of training and of an epoch, they do before the first
    # batch, when the state is restored. And it is saved there too. So their order does not matter.

    def on_train_begin(self, logs=None):
        strategy = getattr(self.model, "distribute_strategy", None)
        self._is_chief = is_chief(strategy)
        self._source, self._resumed = self._newest()
        found = bool(self._resumed)
        if any_worker(strategy, found) and any_worker(strategy, not found):
            raise ValueError(
                "All workers must find the checkpoints of the chief. Some find none. "
                f"Received: folder={str(self.folder)!r}"
            )
        self._resuming = found
        self._position = self._resumed.get("epoch", 0), self._resumed.get("batch", 0)
        if self._position[1] % self.model.steps_per_execution:
            raise ValueError(
                f"{self._source} was saved after {self._position[1]} steps of an epoch, which must be a "
                "multiple of `steps_per_execution`. "
                f"Received: steps_per_execution={self.model.steps_per_execution}"
            )
        self._steps = self._saved_steps = self._resumed.get("steps", 0)
        self._saved_at = time.monotonic()
        if self._is_chief:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left_by_a_kill in self.folder.glob(f"{PARTIAL}*"):
                left_by_a_kill.unlink()
        # What Keras's own `BackupAndRestore` does. Nothing is left to do after an early stop.
        stopped = any(state.get("stopped_epoch") for state in self._resumed.get("callbacks", []))
        self.model._initial_epoch = self.params["epochs"] if stopped else self._position[0]
        self._check_beginning_of_data()

    def _check_beginning_of_data(self):
        steps = _steps_of_data_that_goes_on()
        if steps and not self._epoch_is_known and 0 < self.model._initial_epoch < self.params["epochs"]:
            raise ValueError(
                f"{self._source} was saved in epoch {self._position[0] + 1}. With `steps_per_epoch`, data "
                "goes on from epoch to epoch, so it must begin with the epoch `checkpoint.epoch` of this "
                "callback, as that of `keras_synth.data.token_batches` with `epochs` does, or "
                f"`data.repeat().skip(checkpoint.epoch * {steps})`. Received: steps_per_epoch={steps}"
            )

    def on_epoch_begin(self, epoch, logs=None):
        self.model._initial_epoch = None
        if self._resuming:
            # With these, what Python shuffles at the beginning of an epoch comes in the same order.
            set_python_random(self._resumed["random"])
        else:
            self._position = epoch, 0
        self._random = get_python_random()

    def on_train_batch_begin(self, batch, logs=None):
        if self._resuming:
            if batch < self._position[1]:
                self._train_function, self.model.train_function = self.model.train_function, self._skip
            else:
                self._restore()
        elif self._is_due(batch):
            self.save()

    def on_train_batch_end(self, batch, logs=None):
        if self._resuming:
            self.model.train_function = self._train_function
            return
        epoch, done = self._position
        # The last of several steps at once may be beyond the end of the epoch.
        now = min(batch + 1, self.params.get("steps") or batch + 1)
        first, self._steps = self._steps + 1, self._steps + now - done
        self._position = epoch, now
        loss = (logs or {}).get("loss", 0.0)
        if not np.isfinite(loss):
            steps = f"step {first}" if first == self._steps else f"steps {first} to {self._steps}"
            raise FloatingPointError(
                f"The loss is {loss} at {steps} (epoch {epoch + 1}). {self._what_is_left()}"
            )

    def on_epoch_end(self, epoch, logs=None):
        if self._resuming and not self.model.stop_training:
            raise ValueError(
                f"{self._source} was saved after {self._position[1]} steps of epoch {epoch + 1}, which now "
                "has fewer. Training goes on with the same data only."
            )
        # Unless it was cut short, as by a `TimeLimit`.
        if not self._resuming and self._position[1] >= (self.params.get("steps") or 0):
            self._position = epoch + 1, 0

    def on_train_end(self, logs=None):
        self.model._initial_epoch = None
        if self._resuming:  # there was nothing left to train
            self._restore()
        elif self._steps > self._saved_steps:
            if self._position[1] == 0:
                self._random = get_python_random()
            self.save()

    def _is_due(self, batch):
        new = self._steps - self._saved_steps
        return new > 0 and (
            batch == 0
            or (self.every_steps is not None and new >= self.every_steps)
            or (
                self.every_minutes is not None
                and time.monotonic() - self._saved_at >= 60 * self.every_minutes
            )
        )

    def save(self):
        """Saves a checkpoint, and removes the oldest one."""
        if self._is_chief:
            self._write()
        self._saved_at, self._saved_steps = time.monotonic(), self._steps

    def _write(self):
        for variable in self.model.trainable_variables:
            if not np.all(np.isfinite(ops.convert_to_numpy(variable))):
                raise FloatingPointError(
                    f"{variable.path} is not finite after step {self._steps} "
                    f"(epoch {self._position[0] + 1}). {self._what_is_left()}"
                )
        epoch, batch = self._position
        state = {
            "epoch": epoch,
            "batch": batch,
            "steps": self._steps,
            **capture_state(self.model, self.also, self._random),
        }

        def write(partial):
            self.model.save(partial)
            with zipfile.ZipFile(partial, "a") as archive:
                archive.writestr(STATE, dump_state(state))

        try:
            replace_file(self.folder / f"step-{self._steps:08d}.keras", write)
        except OSError as error:
            raise OSError(
                error.errno or errno.EIO,
                f"{error.strerror or error}: the checkpoint of step {self._steps} could not be written to "
                f"{self.folder}. {self._what_is_left()}",
            ) from error
        # Those with later steps are of a run before this one, and damaged.
        paths = [path for path in self.paths if _step(path) <= self._steps]
        for path in set(self.paths) - set(paths[-self.keep :]):
            path.unlink(missing_ok=True)

    def _what_is_left(self):
        paths = self.paths
        return f"The newest checkpoint is {paths[-1]}." if paths else "There is no checkpoint before it."

    def _skip(self, *arguments):
        """What Keras calls instead of its training step: it reads the batches, and trains nothing."""
        *state, iterator = arguments
        for _ in range(self.model.steps_per_execution):
            next(iterator)
        return ({}, *state) if state else {}  # on JAX the state of training goes in, and comes out again

    def _restore(self):
        model, state = self.model, self._resumed
        if not model.built:
            raise ValueError(
                "A model must be built before training goes on: call it on a batch of data, or begin it "
                f"with `keras.Input`. Received: model={model.name}"
            )
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        check_state(model, self.also, state, self._source)
        model.load_weights(self._source)
        restore_state(model, self.also, state)
        self._resuming = False


def save_model(model: keras.Model, path: str | os.PathLike):
    """Saves a model as `.keras`; whatever happens, `path` is the old file or the new one, whole.

    Args:
        model: keras.Model. The model.
        path: string or path. The file, `<name>.keras`.
    """
    replace_file(path, model.save)


def _steps_of_data_that_goes_on():
    """The `steps_per_epoch` of the `fit` that calls; `None` if it reads its data anew in each epoch."""
    frame = inspect.currentframe()
    while frame is not None:
        data = frame.f_locals.get("epoch_iterator")  # Keras tells callbacks nothing of the data
        if data is not None:
            return None if data.steps_per_epoch == data._num_batches else data.steps_per_epoch
        frame = frame.f_back
    return None


def _step(path):
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdecimal() else None


def _read_state(path):
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        if damaged:
            raise zipfile.BadZipFile(f"Bad checksum of {damaged}")
        return load_state(archive.read(STATE))
