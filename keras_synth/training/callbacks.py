"""Callbacks for training that takes long and may be interrupted."""

import os
import pathlib
import time

import keras


class TimeLimit(keras.callbacks.Callback):
    """Stops training after a time.

    Args:
        minutes: float. The time, counted from the beginning of `fit`.
    """

    def __init__(self, minutes):
        super().__init__()
        self.minutes = minutes

    def on_train_begin(self, logs=None):
        self._end = time.monotonic() + 60 * self.minutes

    def on_train_batch_end(self, batch, logs=None):
        if time.monotonic() > self._end:
            self.model.stop_training = True


class Checkpoint(keras.callbacks.Callback):
    """Saves the whole model, with its optimizer, at the end of each epoch and every so often.

    The file is written under another name and then moved into place, so that an interruption leaves
    the checkpoint before it whole. `keras.models.load_model` reads it.

    Args:
        path: string or path. The file, `<name>.keras`.
        every_minutes: float. The time between checkpoints within an epoch. Defaults to `1`.
    """

    def __init__(self, path, every_minutes=1):
        super().__init__()
        self.path = pathlib.Path(path)
        self.every_minutes = every_minutes

    def on_train_begin(self, logs=None):
        self._saved_at = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        if time.monotonic() - self._saved_at > 60 * self.every_minutes:
            self.save()

    def on_epoch_end(self, epoch, logs=None):
        self.save()

    def save(self):
        save_model(self.model, self.path)
        self._saved_at = time.monotonic()


def save_model(model, path):
    """Saves a model as `.keras`; whatever happens, `path` is the old file or the new one, whole.

    Args:
        model: keras.Model. The model.
        path: string or path. The file, `<name>.keras`.
    """
    path = pathlib.Path(path)
    partial = path.with_name(f".{path.stem}.partial.keras")
    try:
        model.save(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
