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
    outputs_and_gradients,
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


@settings(max_examples=60, deadline=None)
@given(logits_tables, padding_masks, padding_masks, st.booleans())
@example(extremes, ~np.eye(BATCH, LENGTH, dtype=bool), np.ones((BATCH, LENGTH), dtype=bool), False)
@example(extremes, ~np.eye(BATCH, LENGTH, dtype=bool), np.ones((BATCH, LENGTH), dtype=bool), True)
def test_shared_path_equals_the_path_per_example(one_head, table, value_mask, query_mask, causal):
    one_head.alignment.table.assign(table)
    arguments = {"value_mask": value_mask, "query_mask": query_mask, "use_causal_mask": causal}

    def run(**more):
        x = inputs(dtype="float32")
        return outputs_and_gradients(one_head, x, return_attention_scores=True, **arguments, **more)

    (output, scores), gradients = run()
    (expected, expected_scores), expected_gradients = run(attention_mask=FULL)
    close(output, expected, 1e-5)
    close(scores, expected_scores, 1e-5)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        # Of size 10 and more, so that what cancels leaves this much in float32.
        close(gradient, expected_gradient, 2e-3)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", SHARED)
def test_both_paths_have_the_same_gradients_in_float64(name, causal):
    layer, x = attention(name), inputs()
    masks = {"query_mask": PADDING, "value_mask": PADDING, "use_causal_mask": causal}
    _, gradients = outputs_and_gradients(layer, x, **masks)
    _, expected_gradients = outputs_and_gradients(layer, x, attention_mask=FULL, **masks)
    for shared, per_example in zip(gradients, expected_gradients, strict=True):
        close(shared, per_example)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("spread", [20.0, 100.0, 160.0, 400.0])
def test_padding_may_hide_any_share_of_the_weight_of_a_row(spread, scale, dtype, tolerance):
    layer = layers.RandomSynthesizer(1, 4, max_length=LENGTH, dtype=dtype)
    layer.build((None, None, WIDTH))
    randomize(layer)
    layer.alignment.table.assign(np.where(np.eye(LENGTH) > 0, 0.0, -spread)[None] + spread / 3)
    mask = ~np.eye(BATCH, LENGTH, dtype=bool)  # which hides the largest logit of a row
    mask[-1] = True  # and nothing of an example beside
    x = scale * inputs(dtype=dtype)
    output, gradients = outputs_and_gradients(layer, x, value_mask=mask)
    expected, expected_gradients = outputs_and_gradients(layer, x, value_mask=mask, attention_mask=FULL)
    for actual, desired in zip([output, *gradients], [expected, *expected_gradients], strict=True):
        size = np.abs(np.asarray(desired)).max()
        assert np.isfinite(size)
        np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance * size)


@pytest.mark.parametrize("name", ["random", "dense"])
@pytest.mark.parametrize("length", [256, 257, 300, 512])
@pytest.mark.parametrize("padded", [False, True])
def test_long_causal_sequences_are_worked_off_in_blocks(name, length, padded):
    layer = layers.SyntheticAttention(2, 3, name, max_length=length + 5, dtype="float64")
    layer.build((None, None, 4))
    randomize(layer)
    x = inputs(2, length, 4)
    mask = np.arange(length) < np.array([[length], [length // 3]])
    masks = {"query_mask": mask, "value_mask": mask} if padded else {}
    output, gradients = outputs_and_gradients(layer, x, use_causal_mask=True, **masks)
    # A mask for each example is not known to be causal, so that nothing is cut.
    triangle = np.tril(np.ones((2, length, length), dtype=bool))
    expected, expected_gradients = outputs_and_gradients(layer, x, attention_mask=triangle, **masks)
    for actual, desired in zip([output, *gradients], [expected, *expected_gradients], strict=True):
        close(actual, desired)


# Size. Of all tensors here, only attention weights for each example have this many elements.

SIZES = {"batch": 5, "length": 272, "width": 3}  # long enough for a causal mask to be cut into blocks
PER_EXAMPLE = SIZES["batch"] * HEADS * SIZES["length"] ** 2


def executed_nodes(nodes, functions):
    """The nodes of a graph and of the functions it calls; of two branches the first, the usual one."""
    for node in nodes:
        yield node
        for name, attribute in node.attr.items():
            if name != "else_branch" and attribute.func.name in functions:
                yield from executed_nodes(functions[attribute.func.name].node_def, functions)


def largest_tensor(function, *arguments):
    """The number of elements of the largest tensor in a traced function and the functions it calls."""
    graph = tf.function(function).get_concrete_function(*arguments).graph.as_graph_def(add_shapes=True)
    functions = {called.signature.name: called for called in graph.library.function}
    # `BroadcastGradientArgs` returns lists of axes, of a length that is known only at run time.
    nodes = [node for node in executed_nodes(graph.node, functions) if node.op != "BroadcastGradientArgs"]
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


@pytest.mark.tensorflow
@pytest.mark.parametrize("masks", CHEAP.values(), ids=CHEAP)
@pytest.mark.parametrize("name", SHARED)
def test_nothing_of_the_size_of_attention_for_each_example_is_made(name, masks):
    assert largest_tensor(*train_step(name, **masks)) < PER_EXAMPLE


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "name, masks", [("dot_product", {}), *(("random", masks) for masks in DEAR.values())]
)
def test_the_check_of_sizes_sees_what_is_of_that_size(name, masks):
    assert largest_tensor(*train_step(name, **masks)) >= PER_EXAMPLE
