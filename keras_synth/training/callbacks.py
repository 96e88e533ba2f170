"""Callbacks for training that takes long."""

import time

import keras

from keras_synth.training.strategies import any_worker


class TimeLimit(keras.callbacks.Callback):
    """Stops training after a time.

    Args:
        minutes: float. The time, counted from the beginning of `fit`. With several workers, the first
            whose clock says so stops all.
    """

    def __init__(self, minutes: float):
        super().__init__()
        self.minutes = minutes

    def on_train_begin(self, logs=None):
        self._end = time.monotonic() + 60 * self.minutes

    def on_train_batch_end(self, batch, logs=None):
        strategy = getattr(self.model, "distribute_strategy", None)
        if any_worker(strategy, time.monotonic() > self._end):
            self.model.stop_training = True
