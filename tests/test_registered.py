"""Every class that can land in a file is registered under the name of the library."""

import keras
import keras_hub
import pytest
from classes import find_classes

import keras_synth

pytestmark = pytest.mark.tensorflow

#: What the classes derive from whose configs files hold.
SERIALIZABLE = (
    keras.constraints.Constraint,
    keras.initializers.Initializer,
    keras.layers.Layer,
    keras.losses.Loss,
    keras.metrics.Metric,
    keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
    keras.regularizers.Regularizer,
    keras_hub.samplers.Sampler,
)
#: Those of them of which nothing is made but subclasses.
BASES = {
    "Alignment",
    "Baseline",
    "CompoundAlignment",
    "DistanceAlignment",
    "Layer",
    "MultiHead",
    "Projecting",
    "Recomputed",
    "RowAlignment",
    "SynthesizerBackbone",
    "SynthesizerBlock",
    "TableAlignment",
    "TokenAlignment",
}
#: What is made only to be exported.
NEVER_SAVED = {"_WithOutputs"}


def test_every_class_that_can_land_in_a_file_is_registered():
    found = {cls.__name__: cls for cls in find_classes(keras_synth, SERIALIZABLE)}
    assert BASES | NEVER_SAVED < set(found)
    for name in set(found) - BASES - NEVER_SAVED:
        assert keras.saving.get_registered_object(f"keras_synth>{name}") is found[name], name
