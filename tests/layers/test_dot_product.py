"""`DotProductAttention` is `keras.layers.MultiHeadAttention`."""

import inspect

import keras
import numpy as np
import pytest
from helpers import (
    BATCH,
    HEADS,
    KEY_DIM,
    LENGTH,
    PADDING,
    VALUE_DIM,
    WIDTH,
    close,
    inputs,
    random_mask,
    randomize,
)

from keras_synth import layers

SOURCE_LENGTH, SOURCE_WIDTH = 17, 19


def pair(value_shape=(BATCH, LENGTH, WIDTH), **kwargs):
    """Both layers, with the same weights."""
    peer = keras.layers.MultiHeadAttention(HEADS, KEY_DIM, **kwargs)
    layer = layers.DotProductAttention(HEADS, KEY_DIM, **kwargs)
    for each in (peer, layer):
        each.build((BATCH, LENGTH, WIDTH), value_shape)
    randomize(peer)
    layer.set_weights(peer.get_weights())
    return peer, layer


def assert_equal(pair, *arguments, rows=None, **kwargs):
    """The same output and scores; of `rows` alone, where the others have nothing to attend to."""
    peer, layer = pair
    outputs = [each(*arguments, return_attention_scores=True, **kwargs) for each in (peer, layer)]
    (expected, expected_scores), (output, scores) = outputs
    rows = np.ones((BATCH, LENGTH), dtype=bool) if rows is None else rows
    close(np.asarray(output)[rows], np.asarray(expected)[rows], 1e-5)
    heads_last = [np.moveaxis(np.asarray(each), 1, -1)[rows] for each in (scores, expected_scores)]
    close(*heads_last, 1e-5)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"value_dim": VALUE_DIM},
        {"output_shape": 23},
        {"output_shape": (23, 29), "value_dim": VALUE_DIM},
        {"use_bias": False},
        {"use_gate": True, "value_dim": VALUE_DIM},
        {"sliding_window": 2},
    ],
)
def test_the_same_arguments_give_the_same_output(kwargs):
    x = inputs(dtype="float32")
    both = pair(**kwargs)
    assert_equal(both, x, x)
    assert both[0].compute_output_shape(x.shape, x.shape) == both[1](x).shape


@pytest.mark.parametrize(
    "masks",
    [
        {"use_causal_mask": True},
        {"attention_mask": random_mask(BATCH, LENGTH, LENGTH)},
        {"attention_mask": random_mask(BATCH, HEADS, LENGTH, LENGTH)},
        {"attention_mask": random_mask(BATCH, LENGTH, LENGTH), "use_causal_mask": True},
        {"query_mask": PADDING, "value_mask": PADDING},
        {"query_mask": PADDING, "key_mask": PADDING, "use_causal_mask": True},
    ],
    ids=str,
)
def test_the_same_masks_give_the_same_output(masks):
    x, both = inputs(dtype="float32"), pair(value_dim=VALUE_DIM)
    _, scores = both[1](x, return_attention_scores=True, **masks)
    rows = np.asarray(scores).sum(axis=(1, 3)) > HEADS - 0.5
    assert rows.sum() >= LENGTH
    assert_equal(both, x, x, rows=rows, **masks)


def test_a_mask_of_rank_two_is_the_same_for_every_example():
    x, (peer, layer), mask = inputs(dtype="float32"), pair(), np.tri(LENGTH, dtype=bool)
    batched = np.broadcast_to(mask, (BATCH, LENGTH, LENGTH))
    close(layer(x, attention_mask=mask), peer(x, x, attention_mask=batched), 1e-5)


def test_cross_attention_gives_the_same_output():
    x = inputs(dtype="float32")
    value = inputs(length=SOURCE_LENGTH, width=SOURCE_WIDTH, seed=5, dtype="float32")
    key = inputs(length=SOURCE_LENGTH, width=SOURCE_WIDTH, seed=6, dtype="float32")
    both = pair(value.shape, value_dim=VALUE_DIM)
    mask = np.arange(SOURCE_LENGTH) < np.array([[17], [11], [1]])
    assert_equal(both, x, value)
    assert_equal(both, x, value, key)
    assert_equal(both, x, value, value_mask=mask)
    assert_equal(both, x, value, attention_mask=np.broadcast_to(mask[:, None], (BATCH, LENGTH, 17)))


@pytest.mark.parametrize("method", ["__init__", "call"])
def test_common_arguments_stand_in_the_same_order(method):
    def names(cls):
        signature = inspect.signature(getattr(cls, method))
        return [n for n, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    ours = [name for name in names(layers.SyntheticAttention) if name != "alignment"]
    theirs = names(keras.layers.MultiHeadAttention)
    common = set(ours) & set(theirs)
    assert [n for n in ours if n in common] == [n for n in theirs if n in common]
    if method == "call":
        assert ours[: len(theirs)] == theirs


def test_every_named_layer_takes_what_multi_head_attention_takes():
    arguments = {
        "value_dim": VALUE_DIM,
        "dropout": 0.1,
        "use_bias": False,
        "output_shape": 23,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "kernel_regularizer": "l2",
        "bias_regularizer": "l2",
        "activity_regularizer": "l2",
        "kernel_constraint": "non_neg",
        "bias_constraint": "non_neg",
        "seed": 1,
        "use_gate": True,
        "sliding_window": 2,
    }
    for cls in (layers.RandomSynthesizer, layers.DenseSynthesizer, layers.FactorizedDenseSynthesizer):
        assert cls(HEADS, KEY_DIM, LENGTH, **arguments)(inputs()).shape == (BATCH, LENGTH, 23)
    assert layers.DotProductAttention(HEADS, KEY_DIM, **arguments)(inputs()).shape == (BATCH, LENGTH, 23)
