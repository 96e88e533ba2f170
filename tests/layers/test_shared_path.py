"""Logits that are the same for all examples: computed once, and equal to attention for each example."""

import math

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    BATCH,
    HEADS,
    LENGTH,
    PADDING,
    SHARED,
    WIDTH,
    attention,
    close,
    inputs,
    normal,
    randomize,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from keras_synth import layers

LARGEST = 80.0
FULL = np.ones((BATCH, LENGTH, LENGTH), dtype=bool)  # hides nothing, and forces the path per example

logits_tables = arrays(
    "float32",
    (1, LENGTH, LENGTH),
    elements=st.one_of(st.sampled_from([-LARGEST, 0.0, LARGEST]), st.floats(-LARGEST, LARGEST, width=32)),
)
padding_masks = arrays("bool", (BATCH, LENGTH))
extremes = np.where(np.eye(LENGTH) > 0, LARGEST, -LARGEST)[None].astype("float32")


@pytest.fixture(scope="module")
def one_head():
    layer = layers.RandomSynthesizer(1, 4, max_length=LENGTH)
    layer.build((None, None, WIDTH))
    return randomize(layer)


def output_scores_and_gradients(layer, x, **masks):
    """Of a loss whose gradient is of size one in every output."""
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output, scores = layer(x, return_attention_scores=True, **masks)
        loss = tf.reduce_sum(output * normal(*output.shape, seed=7, dtype="float32"))
    return output, scores, tape.gradient(loss, [x, *layer.trainable_weights])


@settings(max_examples=60, deadline=None)
@given(logits_tables, padding_masks, padding_masks, st.booleans())
@example(extremes, ~np.eye(BATCH, LENGTH, dtype=bool), np.ones((BATCH, LENGTH), dtype=bool), False)
@example(extremes, ~np.eye(BATCH, LENGTH, dtype=bool), np.ones((BATCH, LENGTH), dtype=bool), True)
def test_shared_path_equals_the_path_per_example(one_head, table, value_mask, query_mask, causal):
    one_head.alignment.table.assign(table)
    x = inputs(dtype="float32")
    masks = {"value_mask": value_mask, "query_mask": query_mask, "use_causal_mask": causal}
    output, scores, gradients = output_scores_and_gradients(one_head, x, **masks)
    expected = output_scores_and_gradients(one_head, x, attention_mask=FULL, **masks)
    close(output, expected[0], 1e-5)
    close(scores, expected[1], 1e-5)
    for gradient, expected_gradient in zip(gradients, expected[2], strict=True):
        close(gradient, expected_gradient, 1e-4)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", SHARED)
def test_both_paths_have_the_same_gradients_in_float64(name, causal):
    layer, x = attention(name), inputs()
    masks = {"query_mask": PADDING, "value_mask": PADDING, "use_causal_mask": causal}

    def gradients(**more):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, **masks, **more) * inputs(seed=8))
        return tape.gradient(loss, layer.trainable_weights)

    for shared, per_example in zip(gradients(), gradients(attention_mask=FULL), strict=True):
        close(shared, per_example)


# Size. Of all tensors here, only attention weights for each example have this many elements.

SIZES = {"batch": 5, "length": 64, "width": 3}
PER_EXAMPLE = SIZES["batch"] * HEADS * SIZES["length"] ** 2


def largest_tensor(function, *arguments):
    """The number of elements of the largest tensor in a traced function and the functions it calls."""
    graph = tf.function(function).get_concrete_function(*arguments).graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    # `BroadcastGradientArgs` returns lists of axes, of a length that is known only at run time.
    nodes = [node for node in nodes if node.op != "BroadcastGradientArgs"]
    shapes = [shape for node in nodes for shape in node.attr["_output_shapes"].list.shape]
    sizes = [[axis.size for axis in shape.dim] for shape in shapes]
    assert all(axis >= 0 for size in sizes for axis in size)
    return max(math.prod(size) for size in sizes)


def train_step(name, **call_arguments):
    layer = layers.SyntheticAttention(HEADS, 3, name, max_length=SIZES["length"] + 3, dropout=0.1)
    layer.build((None, None, SIZES["width"]))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=True, **call_arguments)
            loss = sum(tf.reduce_sum(output) for output in tf.nest.flatten(outputs))
        return tape.gradient(loss, [x, *layer.trainable_weights])

    return step, tf.zeros((SIZES["batch"], SIZES["length"], SIZES["width"]))


padding = np.ones((SIZES["batch"], SIZES["length"]), dtype=bool)
positions = np.ones((SIZES["length"], SIZES["length"]), dtype=bool)
CHEAP = {
    "no mask": {},
    "padding": {"query_mask": padding, "value_mask": padding},
    "causal": {"use_causal_mask": True},
    "padding, causal": {"query_mask": padding, "key_mask": padding, "use_causal_mask": True},
    "(T, S)": {"attention_mask": positions, "value_mask": padding},
    "(1, T, S)": {"attention_mask": positions[None]},
    "(B, 1, S)": {"attention_mask": padding[:, None]},
    "(B, 1, 1, S)": {"attention_mask": padding[:, None, None]},
}
DEAR = {
    "scores": {"return_attention_scores": True},
    "(B, T, S)": {"attention_mask": np.ones((SIZES["batch"], SIZES["length"], SIZES["length"]), bool)},
}


@pytest.mark.parametrize("masks", CHEAP.values(), ids=CHEAP)
@pytest.mark.parametrize("name", SHARED)
def test_nothing_of_the_size_of_attention_for_each_example_is_made(name, masks):
    assert largest_tensor(*train_step(name, **masks)) < PER_EXAMPLE


@pytest.mark.parametrize(
    "name, masks", [("dot_product", {}), *(("random", masks) for masks in DEAR.values())]
)
def test_the_check_of_sizes_sees_what_is_of_that_size(name, masks):
    assert largest_tensor(*train_step(name, **masks)) >= PER_EXAMPLE
