"""The former place of `keras_synth.training.ReplicaTraining`."""

from keras_synth.training.step import ReplicaTraining

__all__ = ["ReplicaTraining"]
