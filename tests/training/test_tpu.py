"""What a TPU asks of a training step, as far as it shows without one."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from tasks import examples, masked_language_model, sequence_to_sequence
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tiny import DECODER, ENCODER, SIZES

from keras_synth import alignments, models

pytestmark = pytest.mark.tensorflow

#: Every alignment, in one mixture because each model takes XLA seconds, and every baseline that is causal.
ATTENTION = ["+".join(alignments.NAMES), "lightweight_convolution", "dynamic_convolution"]


def all_that_is_causal():
    sizes = {**SIZES, "num_layers": len(ATTENTION), "dropout": 0.0}
    model = models.SynthesizerCausalLM(DECODER(**sizes, attention=ATTENTION))
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-2, global_clipnorm=1.0))
    return model, examples(DECODER)


def linear_classifier():
    backbone = ENCODER(**SIZES, attention="linear", dropout=0.0, dtype="mixed_bfloat16")
    model = models.SynthesizerTextClassifier(backbone, 3)
    model.compile(keras.optimizers.SGD(0.1))
    x, y, _ = examples(ENCODER)
    return model, (x, y[:, 0] % 3)


@pytest.fixture(
    scope="module",
    params=[all_that_is_causal, linear_classifier, masked_language_model, sequence_to_sequence],
    ids=lambda make: make.__name__,
)
def training(request):
    """A model, a batch, and the graph of forward pass, backward pass and optimizer, compiled by XLA."""
    random.seed(1)
    model, example = request.param()
    batches = tf.data.Dataset.from_tensor_slices(example).batch(4, drop_remainder=True)
    model.optimizer.build(model.trainable_variables)
    batch = next(iter(batches))
    model.test_step(batch)  # makes the metrics
    step = tf.function(model.train_step, jit_compile=True)
    return model, batch, step.get_concrete_function(batches.element_spec)


def outputs(graph):
    """The tensors of a graph, and of the functions that it calls, each with its operation."""
    functions = [function_def_to_graph(f) for f in graph.as_graph_def().library.function]
    for operation in [op for part in (graph, *functions) for op in part.get_operations()]:
        yield from ((operation, output) for output in operation.outputs)


def test_every_tensor_of_the_step_is_static(training):
    for operation, tensor in outputs(training[2].graph):
        # Resources have no shape. XLA folds the axes along which a gradient is summed, as shapes are known.
        if operation.type != "BroadcastGradientArgs" and tensor.dtype != tf.resource:
            assert tensor.shape.is_fully_defined(), operation


def test_no_strings_and_no_wide_numbers(training):
    for operation, tensor in outputs(training[2].graph):
        assert tensor.dtype not in (tf.string, tf.float64), operation
        # Keras has them in optimizers, for the number of the step, in the cross-entropy of integers, and
        # where it takes along an axis, as in KerasHub's head of masked language models.
        assert tensor.dtype != tf.int64 or "backbone" not in operation.name, operation


def test_xla_compiles_the_whole_step_which_does_what_it_does_without(training):
    model, batch, step = training
    state = [*model.weights, *model.optimizer.variables]
    before = [variable.numpy() for variable in state]

    def results(function):
        for variable, value in zip(state, before, strict=True):
            variable.assign(value)
        model.reset_metrics()
        return [float(function(batch)["loss"]), *model.get_weights()]

    without, within = results(model.train_step), results(step)
    assert all(np.isfinite(value).all() for value in within)
    assert sum(np.any(old != new) for old, new in zip(before, within[1:], strict=False)) > len(within) / 2
    tolerance = 1e-2 if model.dtype_policy.name == "mixed_bfloat16" else 1e-4
    for actual, expected in zip(within, without, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance / 10)
