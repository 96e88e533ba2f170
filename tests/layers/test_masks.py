"""Attention layers under every mask, against NumPy."""

import keras
import numpy as np
import oracle
import pytest
from helpers import ALL, BATCH, HEADS, LENGTH, PADDING, SHARED, WIDTH, attention, close, inputs, random_mask
from keras import ops

from keras_synth import alignments
from keras_synth.layers import FixedPatternAttention

T = S = LENGTH
MASKS = {
    "none": {},
    "query": {"query_mask": PADDING},
    "value": {"value_mask": PADDING},
    "key": {"key_mask": PADDING},
    "query, value": {"query_mask": PADDING, "value_mask": PADDING},
    "value, key": {"value_mask": PADDING, "key_mask": random_mask(BATCH, S)},
    "causal": {"use_causal_mask": True},
    "causal, value": {"use_causal_mask": True, "value_mask": PADDING},
    "(T, S)": {"attention_mask": random_mask(T, S)},
    "(1, S)": {"attention_mask": random_mask(1, S)},
    "(B, T, S)": {"attention_mask": random_mask(BATCH, T, S)},
    "(1, T, S)": {"attention_mask": random_mask(1, T, S)},
    "(B, 1, S)": {"attention_mask": random_mask(BATCH, 1, S)},
    "(B, H, T, S)": {"attention_mask": random_mask(BATCH, HEADS, T, S)},
    "(1, H, T, S)": {"attention_mask": random_mask(1, HEADS, T, S)},
    "(B, 1, T, S)": {"attention_mask": random_mask(BATCH, 1, T, S)},
    "(B, H, 1, S)": {"attention_mask": random_mask(BATCH, HEADS, 1, S)},
    "(B, 1, 1, S)": {"attention_mask": random_mask(BATCH, 1, 1, S)},
    "(1, 1, 1, S)": {"attention_mask": random_mask(1, 1, 1, S)},
    "(T, S), causal, padding": {
        "attention_mask": random_mask(T, S),
        "use_causal_mask": True,
        "query_mask": PADDING,
        "value_mask": PADDING,
    },
    "(B, T, S), causal, padding": {
        "attention_mask": random_mask(BATCH, T, S),
        "use_causal_mask": True,
        "query_mask": PADDING,
        "key_mask": PADDING,
    },
}


@pytest.fixture(scope="module")
def layers():
    return {name: attention(name) for name in ALL}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", ALL)
def test_output_and_scores_equal_the_formula(layers, name, masks):
    x = inputs()
    output, scores = layers[name](x, return_attention_scores=True, **masks)
    expected_output, expected_scores = oracle.attention(layers[name], x, **masks)
    close(scores, expected_scores)
    close(output, expected_output)
    close(layers[name](x, **masks), expected_output)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("kind", ["(T, S), causal, padding", "(B, T, S), causal, padding"])
@pytest.mark.parametrize("name", ALL)
def test_masks_may_be_numbers(layers, name, kind, dtype):
    masks = dict(MASKS[kind])
    numbers = {key: mask if mask is True else 2 * mask.astype(dtype) for key, mask in masks.items()}
    close(layers[name](inputs(), **numbers), layers[name](inputs(), **masks))


@pytest.mark.parametrize("name", ALL)
def test_self_attention_may_name_its_value_and_key(layers, name):
    x = inputs()
    close(layers[name](x), layers[name](x, x))
    close(layers[name](x), layers[name](x, value=x, key=x))


@pytest.mark.parametrize("name", ALL)
def test_the_value_may_be_another_sequence_of_the_same_length(layers, name):
    x, y, z = inputs(), inputs(seed=5), inputs(seed=6)
    close(layers[name](x, y, z), oracle.attention(layers[name], x, y, z)[0])


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_float32_is_close_to_the_formula(name, use_bias):
    layer, x = attention(name, dtype="float32", use_bias=use_bias), inputs(dtype="float32")
    masks = MASKS["causal, value"]
    close(layer(x, **masks), oracle.attention(layer, x, **masks)[0], 1e-5)


# Causality.


@pytest.mark.parametrize("dropout, training", [(0.0, False), (0.5, False), (0.5, True)])
@pytest.mark.parametrize("return_scores", [True, False])
@pytest.mark.parametrize("extra", ["none", "query, value", "(T, S)", "(B, T, S)"])
@pytest.mark.parametrize("name", ["random", "dense", "dot_product", "random+dot_product"])
def test_no_output_changes_with_the_future(name, dropout, extra, return_scores, training):
    masks = {**MASKS[extra], "use_causal_mask": True, "return_attention_scores": return_scores}
    x, changed, future = inputs(), inputs(), 3
    changed[:, future:] += 1

    def past(x):
        output = attention(name, dropout=dropout, seed=1)(x, training=training, **masks)
        return np.asarray(output[0] if return_scores else output)[:, :future]

    np.testing.assert_array_equal(past(x), past(changed))


# Padding.


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_what_stands_in_padding_changes_nothing(layers, name, causal):
    masks = {"query_mask": PADDING, "value_mask": PADDING, "use_causal_mask": causal}
    x = inputs()
    other = np.where(PADDING[..., None], x, 100.0)
    close(layers[name](other, **masks), layers[name](x, **masks))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_padding_to_a_longer_length_changes_nothing(layers, name, causal):
    x = inputs()
    longer = np.concatenate([x, inputs(length=6, seed=9)], axis=1)
    mask = np.broadcast_to(np.arange(LENGTH + 6) < LENGTH, longer.shape[:2])
    output = layers[name](longer, query_mask=mask, value_mask=mask, use_causal_mask=causal)
    close(output[:, :LENGTH], layers[name](x, use_causal_mask=causal))


@pytest.mark.parametrize("name", ALL)
def test_an_example_of_padding_alone_gives_zeros_and_leaves_the_others_as_they_are(layers, name):
    layer, x = layers[name], inputs()
    masks = {"query_mask": PADDING, "value_mask": PADDING, "return_attention_scores": True}
    output, scores = layer(x, **masks)
    bias = np.broadcast_to(layer.output_dense.bias, (LENGTH, WIDTH))
    close(output[2], bias)
    close(scores[2], np.zeros((HEADS, LENGTH, LENGTH)))
    alone, _ = layer(x[:2], **{**masks, "query_mask": PADDING[:2], "value_mask": PADDING[:2]})
    close(output[:2], alone)


@pytest.mark.parametrize("name", ALL)
def test_left_padding_with_a_causal_mask_is_finite(layers, name):
    mask = np.array([[0, 0, 1, 1, 1]] * BATCH)
    masks = {"value_mask": mask, "use_causal_mask": True}
    output, scores = layers[name](inputs(), return_attention_scores=True, **masks)
    close(output, oracle.attention(layers[name], inputs(), **masks)[0])
    close(scores[:, :, :2], np.zeros((BATCH, HEADS, 2, LENGTH)))


# The masks that Keras carries along.

IDS = np.array([[3, 1, 4, 1, 5], [2, 6, 0, 0, 0], [0, 0, 0, 0, 0]])


def embedding():
    layer = keras.layers.Embedding(8, WIDTH, mask_zero=True, dtype="float64")
    layer.build((None, None))
    return layer


@pytest.mark.parametrize("call", [lambda layer, x: layer(x), lambda layer, x: layer(x, x)])
@pytest.mark.parametrize("name", ["random", "random+factorized_random", "dense", "nested"])
def test_implicit_masks_act_and_leave_with_the_output(layers, name, call):
    x = embedding()(IDS)
    explicit = np.asarray(x)
    output = call(layers[name], x)
    close(output, layers[name](explicit, query_mask=IDS != 0, value_mask=IDS != 0))
    close(output._keras_mask, IDS != 0)


def test_implicit_masks_act_in_a_functional_model(layers):
    embed = embedding()
    ids = keras.Input((None,), dtype="int32")
    outputs = keras.layers.GlobalAveragePooling1D(dtype="float64")(layers["random"](embed(ids)))
    model = keras.Model(ids, outputs)
    unpadded = model(IDS[1:2, :2])
    close(model(IDS[:2])[1:], unpadded)


def test_an_explicit_mask_wins_over_the_implicit_one(layers):
    x, mask = embedding()(IDS), np.ones_like(IDS)
    output = layers["dense"](x, query_mask=mask, value_mask=mask)
    close(output, layers["dense"](np.asarray(x)))


def test_the_mask_leaves_with_the_output_when_scores_are_asked_for(layers):
    output, scores = layers["random"](embedding()(IDS), return_attention_scores=True)
    close(output._keras_mask, IDS != 0)
    assert getattr(scores, "_keras_mask", None) is None


@pytest.mark.parametrize("name", SHARED)
def test_a_mask_for_all_examples_needs_no_batch_axis(layers, name):
    mask = ops.convert_to_tensor(random_mask(T, S))
    batched = ops.broadcast_to(mask, (BATCH, T, S))
    close(layers[name](inputs(), attention_mask=mask), layers[name](inputs(), attention_mask=batched))


@pytest.mark.parametrize("name", ["convolution", "random+convolution", "dot_product"])
def test_an_attention_mask_hides_the_same_whichever_axes_it_has(name):
    layer, x = attention(name), inputs()
    by_column = PADDING[:, None]
    close(
        layer(x, attention_mask=by_column),
        layer(x, attention_mask=by_column.repeat(LENGTH, axis=1)),
    )


def test_fixed_and_learned_heads_take_an_attention_mask_for_all_examples():
    layer, x = FixedPatternAttention(8, 4, patterns=alignments.PATTERNS), inputs()
    mask = np.array([[1, 1, 1, 0, 0]])
    close(layer(x, attention_mask=mask), layer(x, attention_mask=mask.repeat(LENGTH, axis=0)), 1e-5)


def test_masks_may_be_lists():
    layer, x = attention("random"), inputs()
    close(layer(x, value_mask=PADDING.tolist()), layer(x, value_mask=PADDING))
    positions = np.tri(LENGTH).tolist()
    close(layer(x, attention_mask=positions), layer(x, use_causal_mask=True))
    assert layer(keras.Input((LENGTH, WIDTH)), attention_mask=positions).shape == (None, LENGTH, WIDTH)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["random", "dense", "random+dot_product"])
def test_a_sliding_window_is_a_mask(layers, name, padded):
    band = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH)) < 2
    x, masks = inputs(), {"use_causal_mask": True}
    if padded:
        masks |= {"query_mask": PADDING, "value_mask": PADDING}
    windowed = attention(name, sliding_window=2)
    close(windowed(x, **masks), layers[name](x, attention_mask=band, **masks))
