"""What long training needs beside `model.fit`: strategies, schedules, time limits, checkpoints."""

from keras_synth.training.callbacks import Checkpoint, TimeLimit, save_model
from keras_synth.training.schedules import InverseSquareRoot
from keras_synth.training.strategy import any_worker, is_chief, num_workers, strategy

__all__ = [
    "Checkpoint",
    "InverseSquareRoot",
    "TimeLimit",
    "any_worker",
    "is_chief",
    "num_workers",
    "save_model",
    "strategy",
]
