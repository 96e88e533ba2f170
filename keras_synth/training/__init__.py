"""What training needs beside `model.fit`: strategies, optimizers, schedules, scores, checkpoints."""

from keras_synth.training.averaging import average_weights
from keras_synth.training.callbacks import TimeLimit
from keras_synth.training.checkpoint import Checkpoint, save_model
from keras_synth.training.evaluation import GenerationScore
from keras_synth.training.losses import SmoothedCrossentropy
from keras_synth.training.metrics import sparse_categorical_accuracy
from keras_synth.training.optimizers import Adafactor, AdamW, decays
from keras_synth.training.schedules import InverseSquareRoot
from keras_synth.training.step import ReplicaTraining
from keras_synth.training.strategies import any_worker, is_chief, num_workers, strategy

__all__ = [
    "Adafactor",
    "AdamW",
    "Checkpoint",
    "GenerationScore",
    "InverseSquareRoot",
    "ReplicaTraining",
    "SmoothedCrossentropy",
    "TimeLimit",
    "any_worker",
    "average_weights",
    "decays",
    "is_chief",
    "num_workers",
    "save_model",
    "sparse_categorical_accuracy",
    "strategy",
]
