"""Patterns made by hand, against NumPy, alone and beside learned heads."""

import keras
import numpy as np
import pytest
from helpers import BATCH, KEY_DIM, LENGTH, WIDTH, close, normal, outputs_and_gradients

from keras_synth import alignments, layers

PATTERNS = alignments.PATTERNS


def pattern(name, length, tokens=None, causal=False):
    """The weights of one head, `(length, length)`, for a sequence whose first `tokens` are no padding."""
    tokens = length if tokens is None else tokens
    weights = np.zeros((length, length))
    for i, j in np.ndindex(length, length):
        end = i + 1 if causal else tokens
        weights[i, j] = {
            "current": j == i,
            "previous": j == i - 1,
            "next": j == i + 1,
            "left": (j + 1) ** 3 * (j <= i - 2),
            "right": max(end - j, 0) ** 3 * (j >= i + 2),
            "last": (j + 1) ** 3,
            "first": max(end - j, 0) ** 3,
        }[name]
        weights[i, j] *= j < tokens and (j <= i or not causal)
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def attention(**kwargs):
    layer = layers.FixedPatternAttention(7, KEY_DIM, dtype="float64", **kwargs)
    layer.build((None, None, WIDTH))
    return layer


def scores(layer, x, **kwargs):
    return np.asarray(layer(x, return_attention_scores=True, **kwargs)[1])


def test_softmax_of_the_logits_is_the_pattern_wherever_it_has_a_place_to_go():
    layer = alignments.FixedPatternAlignment(7)
    weights = np.asarray(keras.ops.softmax(layer(normal(1, LENGTH, WIDTH))))
    assert weights.shape == (7, LENGTH, LENGTH)
    for head, name in enumerate(PATTERNS):
        expected = pattern(name, LENGTH)
        somewhere = expected.sum(-1) > 0
        close(weights[head][somewhere], expected[somewhere], 1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, LENGTH, 17])
def test_scores_equal_the_formula(length, causal):
    actual = scores(attention(), normal(BATCH, length, WIDTH), use_causal_mask=causal)
    for head, name in enumerate(PATTERNS):
        for example in actual:
            close(example[head], pattern(name, length, causal=causal))


@pytest.mark.parametrize("causal", [False, True])
def test_a_sequence_ends_where_its_padding_begins(causal):
    lengths = (5, 3, 1, 0)
    mask = np.arange(LENGTH) < np.array(lengths)[:, None]
    actual = scores(attention(), normal(4, LENGTH, WIDTH), value_mask=mask, use_causal_mask=causal)
    for head, name in enumerate(PATTERNS):
        for example, tokens in zip(actual, lengths, strict=True):
            close(example[head], pattern(name, LENGTH, tokens, causal))


def test_only_patterns_that_count_from_the_end_have_a_batch_axis_and_only_under_padding():
    x, mask = normal(BATCH, LENGTH, WIDTH), np.ones((BATCH, LENGTH), bool)
    counted = alignments.FixedPatternAlignment(2, ["first", "next"])
    assert counted(x).shape == counted(x, key_mask=mask, causal=True).shape == (2, LENGTH, LENGTH)
    assert counted(x, key_mask=mask).shape == (BATCH, 2, LENGTH, LENGTH)
    others = alignments.FixedPatternAlignment(5, [p for p in PATTERNS if p not in ("first", "right")])
    assert others(x, key_mask=mask).shape == (5, LENGTH, LENGTH)


def test_patterns_start_over_where_there_are_more_heads():
    layer = alignments.FixedPatternAlignment(9)
    assert layer.patterns == [*PATTERNS, "current", "previous"]
    assert not layer.depends_on_input and layer.max_length is None and layer.weights == []


def test_decoding_with_a_cache_equals_the_full_pass():
    layer, x = attention(), normal(BATCH, LENGTH, WIDTH)
    expected, cache = layer(x, use_causal_mask=True), layer.init_cache(BATCH, LENGTH + 2)
    assert cache["keys"] == ()
    for t in range(LENGTH):
        row, cache = layer(x[:, t : t + 1], use_causal_mask=True, cache=cache, cache_update_index=t)
        close(row, expected[:, t : t + 1])


def test_filling_a_longer_cache_at_once_changes_nothing():
    layer, x = attention(), normal(BATCH, LENGTH, WIDTH)
    close(layer(x, cache=layer.init_cache(BATCH, 8), cache_update_index=0)[0], layer(x))


@pytest.mark.parametrize("patterns", [["current"], ["sideways"] * 2, [], ["next"] * 3])
def test_wrong_patterns_are_an_error(patterns):
    with pytest.raises(ValueError, match="`patterns` of .* 'current', 'previous'.* num_heads=2 .*Received"):
        alignments.FixedPatternAlignment(2, patterns)


@pytest.mark.parametrize("patterns", [["sideways"], ["next"] * 8])
def test_wrong_patterns_of_the_layer_are_an_error(patterns):
    with pytest.raises(ValueError, match="`patterns` of .*Received"):
        layers.FixedPatternAttention(7, KEY_DIM, patterns)


@pytest.mark.parametrize("masked", [False, True])
def test_heads_that_are_left_over_are_dot_products(masked):
    layer = layers.FixedPatternAttention(8, KEY_DIM, PATTERNS, dtype="float64")
    x = normal(BATCH, LENGTH, WIDTH)
    mask = np.arange(LENGTH) < np.array([[5], [3], [1]]) if masked else None
    actual = scores(layer, x, value_mask=mask)
    dot_product = layers.SyntheticAttention(1, KEY_DIM, layer.alignment.alignments[1], dtype="float64")
    close(actual[:, 7:], scores(dot_product, x, value_mask=mask))
    fixed = layers.SyntheticAttention(7, KEY_DIM, layer.alignment.alignments[0], dtype="float64")
    close(actual[:, :7], scores(fixed, x, value_mask=mask))


def test_heads_of_different_kinds_decode_with_a_cache():
    parts = [
        alignments.get("fixed_pattern", 3, KEY_DIM, dtype="float64"),
        alignments.get("convolution", 1, KEY_DIM, 13, dtype="float64"),
        alignments.get("random+dot_product", 2, KEY_DIM, 13, dtype="float64"),
    ]
    layer = layers.SyntheticAttention(
        6, KEY_DIM, alignments.HeadwiseAlignment(parts, dtype="float64"), dtype="float64"
    )
    x = normal(BATCH, LENGTH, WIDTH)
    expected, cache = layer(x, use_causal_mask=True), layer.init_cache(BATCH, LENGTH)
    for t in range(LENGTH):
        row, cache = layer(x[:, t : t + 1], use_causal_mask=True, cache=cache, cache_update_index=t)
        close(row, expected[:, t : t + 1])
    assert layer.alignment.max_length == 13 and layer.alignment.depends_on_input


def test_heads_that_do_not_look_at_the_input_stay_without_a_batch_axis():
    heads = alignments.HeadwiseAlignment(
        [alignments.RandomAlignment(2, 13), alignments.FixedPatternAlignment(1)]
    )
    assert heads(normal(BATCH, LENGTH, WIDTH)).shape == (3, LENGTH, LENGTH)
    assert not heads.depends_on_input


def test_fewer_than_two_kinds_of_heads_are_an_error():
    with pytest.raises(ValueError, match="HeadwiseAlignment must be a list of at least two"):
        alignments.HeadwiseAlignment([alignments.FixedPatternAlignment(1)])


def test_a_mixture_can_learn_to_look_past_a_pattern():
    layer = layers.SyntheticAttention(2, KEY_DIM, "fixed_pattern+random", max_length=13)
    x = normal(BATCH, LENGTH, WIDTH).astype("float32")
    layer(x)
    layer.alignment.mixture_logits.assign([[[[-30.0]], [[-30.0]]], [[[30.0]], [[30.0]]]])
    random = layers.SyntheticAttention(2, KEY_DIM, layer.alignment.alignments[1])
    close(scores(layer, x), scores(random, x), 1e-5)


@pytest.mark.parametrize("patterns", [None, ["next", "left"], ["right"]])
def test_the_layer_saves_and_comes_back_equal(patterns, tmp_path):
    inputs = keras.Input((None, WIDTH))
    model = keras.Model(inputs, layers.FixedPatternAttention(2, KEY_DIM, patterns)(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x = normal(BATCH, LENGTH, WIDTH).astype("float32")
    close(loaded(x), model(x), 1e-6)
    assert loaded.layers[1].get_config()["patterns"] == patterns


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_logits_stay_in_float32_under_mixed_precision(policy):
    layer = layers.FixedPatternAttention(7, KEY_DIM, dtype=policy)
    assert layer.alignment(normal(1, LENGTH, WIDTH)).dtype == "float32"
    assert layer(normal(1, LENGTH, WIDTH)).dtype == policy.removeprefix("mixed_")


@pytest.mark.tensorflow
def test_xla_gives_the_same():
    import tensorflow as tf

    layer, x = attention(), normal(BATCH, LENGTH, WIDTH)
    mask = np.arange(LENGTH) < np.array([[5], [3], [1]])
    for causal in (False, True):
        call = tf.function(
            lambda x, causal=causal: layer(x, value_mask=mask, use_causal_mask=causal), jit_compile=True
        )
        close(call(tf.constant(x)), layer(x, value_mask=mask, use_causal_mask=causal))


def test_rows_with_nowhere_to_go_have_finite_gradients():
    mask = np.arange(LENGTH) < np.array([[5], [3], [0]])
    _, gradients = outputs_and_gradients(attention(), normal(BATCH, LENGTH, WIDTH), value_mask=mask)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
