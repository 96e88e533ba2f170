"""Attention weights that are computed once for a graph: the same answers, and nothing left behind."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import BATCH, LENGTH, PADDING, SHARED, WIDTH, attention, close, inputs, randomize

from keras_synth import alignments, layers
from keras_synth.export.precompute import precomputed

CAUSAL_PADDING = {"use_causal_mask": True, "query_mask": PADDING, "value_mask": PADDING}
MASKS = {
    "none": {},
    "padding": {"query_mask": PADDING, "value_mask": PADDING},
    "causal": {"use_causal_mask": True},
    "causal, padding": CAUSAL_PADDING,
    "(T, S)": {"attention_mask": np.eye(LENGTH) > 0},
    "(B, T, S)": {"attention_mask": np.repeat(np.eye(LENGTH)[None] > 0, BATCH, axis=0)},
}


def trace(layer, x, **arguments):
    """A graph of a call, and the variables that it reads."""
    graph = tf.function(lambda x: layer(x, **arguments)).get_concrete_function(tf.constant(x))
    return graph, {id(variable) for variable in graph.graph.variables}


def change(layer, seed=1):
    for weight in layer.alignment.weights:
        weight.assign(weight + keras.random.normal(weight.shape, seed=seed))


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", SHARED)
def test_outputs_and_scores_are_those_of_the_layer(name, masks):
    layer, x = attention(name, dtype="float32", dropout=0.5), inputs(dtype="float32")
    expected = layer(x, return_attention_scores=True, **masks)
    with precomputed():
        outputs = layer(x, return_attention_scores=True, **masks)
        short = layer(x[:1, :1])
    for output, expected_output in zip(outputs, expected, strict=True):
        close(output, expected_output, 2e-5)
    close(short, layer(x[:1, :1]), 2e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kind", ["mixed", "beside"])
@pytest.mark.parametrize("pattern", alignments.PATTERNS)
def test_patterns_know_the_length_and_the_padding_of_the_text(pattern, kind, padded, causal):
    fixed, table = alignments.FixedPatternAlignment(1, [pattern]), alignments.RandomAlignment(1, 16)
    compound = alignments.MixtureAlignment if kind == "mixed" else alignments.HeadwiseAlignment
    alignment = compound([fixed, table])
    layer = layers.SyntheticAttention(alignment.num_heads, 4, alignment)
    layer.build((None, None, WIDTH))
    randomize(layer)
    x, masks = inputs(dtype="float32"), {"use_causal_mask": causal}
    if padded:
        masks |= {"query_mask": PADDING, "value_mask": PADDING}
    expected = layer(x, **masks)
    with precomputed():
        close(layer(x, **masks), expected, 2e-5)


def test_a_window_and_a_gate():
    layer = attention("random", dtype="float32", sliding_window=2, use_gate=True)
    x = inputs(dtype="float32")
    expected = layer(x, **CAUSAL_PADDING)
    with precomputed():
        close(layer(x, **CAUSAL_PADDING), expected, 2e-5)


@pytest.mark.parametrize("name", SHARED)
def test_tables_are_not_read_inside(name):
    layer, x = attention(name, dtype="float32"), inputs(dtype="float32")
    tables = {id(weight.value) for weight in layer.alignment.weights}
    assert tables <= trace(layer, x)[1]
    with precomputed():
        graph, read = trace(layer, x, **CAUSAL_PADDING)
    assert not tables & read
    close(graph(tf.constant(x)), layer(x, **CAUSAL_PADDING), 2e-5)


def test_nothing_is_left_in_a_layer():
    layer, x = attention("random", dtype="float32"), inputs(dtype="float32")
    with precomputed():
        before = layer(x)
        with precomputed():
            close(layer(x), before)
    change(layer)
    assert np.abs(layer(x) - before).max() > 1e-2
    with precomputed():
        close(layer(x), layer(x, attention_mask=np.ones((BATCH, LENGTH, LENGTH))), 2e-5)


def test_other_threads_see_nothing_of_it():
    """A function that another thread traces meanwhile follows the weights for ever after."""
    layer, x, found = attention("random", dtype="float32"), inputs(dtype="float32"), []
    with precomputed():
        layer(x)
        thread = threading.Thread(target=lambda: found.append(trace(layer, x)))
        thread.start()
        thread.join()
    ((graph, read),) = found
    assert {id(weight.value) for weight in layer.alignment.weights} <= read
    change(layer)
    close(graph(tf.constant(x)), layer(x), 1e-6)


@pytest.mark.parametrize("dtype, tolerance", [("mixed_float16", 0.02), ("mixed_bfloat16", 0.1)])
def test_low_precision(dtype, tolerance):
    layer, x = attention("random", dtype=dtype), inputs(dtype="float32")
    expected = layer(x, **CAUSAL_PADDING)
    with precomputed():
        close(layer(x, **CAUSAL_PADDING), expected, tolerance)


@pytest.mark.parametrize("spread", [50.0, 200.0])
def test_padding_may_hide_nearly_all_the_weight_of_a_row(spread):
    layer, x = layers.RandomSynthesizer(1, 4, LENGTH), inputs(dtype="float32")
    layer(x)
    layer.alignment.table.assign(np.where(np.eye(LENGTH) > 0, 0.0, -spread)[None])
    mask = ~np.eye(BATCH, LENGTH, dtype=bool)
    expected = layer(x, value_mask=mask)
    with precomputed():
        close(layer(x, value_mask=mask), expected, 1e-4)


def test_what_depends_on_the_input_is_left_alone():
    layer, x = attention("random+dot_product", dtype="float32"), inputs(dtype="float32")
    _, read = trace(layer, x)
    with precomputed():
        assert trace(layer, x)[1] == read


def test_a_causal_mask_in_blocks():
    block = layers.SynthesizerDecoder(11, 2, "random", max_length=300, seed=1)
    x = inputs(2, 290, 6, dtype="float32")  # more than one block of a causal mask
    expected = block(x)
    with precomputed():
        close(block(x), expected, 1e-4)
