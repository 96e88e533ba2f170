"""Weights that are finished once: the same outputs, from tables that are not looked at again."""

import keras
import numpy as np
import pytest
from helpers import BATCH, LENGTH, PADDING, SHARED, attention, close, inputs

from keras_synth import layers
from keras_synth.layers.folding import folded

CAUSAL_PADDING = {"use_causal_mask": True, "query_mask": PADDING, "value_mask": PADDING}
MASKS = {
    "none": {},
    "padding": {"query_mask": PADDING, "value_mask": PADDING},
    "causal": {"use_causal_mask": True},
    "causal, padding": CAUSAL_PADDING,
    "(T, S)": {"attention_mask": np.eye(LENGTH) > 0},
    "(B, T, S)": {"attention_mask": np.repeat(np.eye(LENGTH)[None] > 0, BATCH, axis=0)},
}
foldable = [name for name in SHARED if name != "fixed_pattern"]  # which has no `max_length`


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", foldable)
def test_outputs_and_scores_are_those_of_the_layer(name, masks):
    layer, x = attention(name, dtype="float32", dropout=0.5), inputs(dtype="float32")
    expected = layer(x, return_attention_scores=True, **masks)
    with folded(layer) as weights:
        assert [variable.shape for variable in weights] == [(layer.num_heads, *[layer.max_length] * 2)]
        outputs = layer(x, return_attention_scores=True, **masks)
        short = layer(x[:1, :1])
    for output, expected_output in zip(outputs, expected, strict=True):
        close(output, expected_output, 2e-5)
    close(short, layer(x[:1, :1]), 2e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_the_table_is_read_on_entering_and_not_later(causal):
    layer, x = attention("random", dtype="float32"), inputs(dtype="float32")
    expected, table = layer(x, use_causal_mask=causal), layer.alignment.table
    with folded(layer):
        table.assign(table + keras.random.normal(table.shape, seed=1))
        close(layer(x, use_causal_mask=causal), expected, 2e-5)
        changed = layer(x, use_causal_mask=causal, training=True)
    assert np.abs(changed - expected).max() > 1e-2
    close(layer(x, use_causal_mask=causal), changed)
    with folded(layer), folded(layer):
        close(layer(x, use_causal_mask=causal), changed, 2e-5)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_low_precision(dtype):
    layer, x = attention("random", dtype=dtype), inputs(dtype="float32")
    expected = layer(x, **CAUSAL_PADDING)
    with folded(layer):
        close(layer(x, **CAUSAL_PADDING), expected, 0.1 if dtype == "mixed_bfloat16" else 0.02)


@pytest.mark.parametrize("largest", [80.0, 200.0])
def test_padding_may_hide_nearly_all_the_weight_of_a_row(largest):
    layer, x = layers.RandomSynthesizer(1, 4, LENGTH), inputs(dtype="float32")
    layer(x)
    layer.alignment.table.assign(np.where(np.eye(LENGTH) > 0, 0.0, -largest)[None] + largest / 2)
    mask = ~np.eye(BATCH, LENGTH, dtype=bool)
    expected = layer(x, value_mask=mask, attention_mask=np.ones((BATCH, LENGTH, LENGTH), bool))
    with folded(layer):
        if largest <= 160:
            close(layer(x, value_mask=mask), expected, 1e-4)
        assert np.isfinite(layer(x, value_mask=mask)).all()


def test_what_depends_on_the_input_is_left_alone():
    layer, x = attention("random+dot_product"), inputs()
    expected = layer(x)
    with folded(layer) as weights:
        assert weights == []
        close(layer(x), expected)


@pytest.mark.tensorflow
def test_blocks_with_functions_traced_inside():
    block = layers.SynthesizerDecoder(11, 2, "random", max_length=300, seed=1)
    tokens = keras.Input((None, 6))
    model = keras.Model(tokens, block(tokens))
    model.compile(run_eagerly=False, jit_compile=False)
    x = inputs(2, 290, 6, dtype="float32")  # more than one block of a causal mask
    for _ in range(2):
        expected = model(x)
        with folded(model):
            close(model.predict(x, verbose=0), expected, 1e-4)
        table = block.self_attention.alignment.table
        table.assign(-table)
