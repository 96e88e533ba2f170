"""What long training needs beside `model.fit`: schedules, time limits, checkpoints."""

from keras_synth.training.callbacks import Checkpoint, TimeLimit
from keras_synth.training.schedules import InverseSquareRoot

__all__ = ["Checkpoint", "InverseSquareRoot", "TimeLimit"]
