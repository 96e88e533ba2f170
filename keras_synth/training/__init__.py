"""What long training needs beside `model.fit`: schedules, time limits, checkpoints."""

from keras_synth.training.callbacks import Checkpoint, TimeLimit, save_model
from keras_synth.training.schedules import InverseSquareRoot

__all__ = ["Checkpoint", "InverseSquareRoot", "TimeLimit", "save_model"]
