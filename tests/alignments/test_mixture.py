"""Mixtures: weights that sum to one for each head, whatever is mixed."""

import keras
import numpy as np
import pytest
from helpers import HEADS, KEY_DIM, WIDTH, close, inputs, normal

from keras_synth import alignments

VALUES = (2.0, -3.0, 5.0, 7.0)


def constant(value):
    """An alignment whose logits are all `value`."""
    initializer = keras.initializers.Constant(value)
    return alignments.RandomAlignment(HEADS, 9, alignment_initializer=initializer, dtype="float64")


def mixture(*parts):
    layer = alignments.MixtureAlignment(parts, dtype="float64")
    layer.build((None, None, WIDTH))
    return layer


@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_start_with_equal_weights(count):
    layer = mixture(*(constant(value) for value in VALUES[:count]))
    close(layer(inputs()), np.full((HEADS, 5, 5), np.mean(VALUES[:count])))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_weights_sum_to_one_for_each_head(count):
    layer = mixture(*(constant(1.0) for _ in range(count)))
    layer.mixture_logits.assign(3 * normal(*layer.mixture_logits.shape))
    close(layer(inputs()), np.ones((HEADS, 5, 5)))


def test_weights_of_nested_mixtures_sum_to_one_for_each_head():
    layer = mixture(mixture(constant(1.0), constant(1.0), constant(1.0)), constant(1.0))
    for each in (layer, layer.alignments[0]):
        each.mixture_logits.assign(3 * normal(*each.mixture_logits.shape))
    close(layer(inputs()), np.ones((HEADS, 5, 5)))


def test_each_head_has_weights_of_its_own():
    layer = mixture(constant(1.0), constant(-1.0))
    layer.mixture_logits.assign(np.reshape([[0.0, 50.0], [0.0, -50.0]], layer.mixture_logits.shape))
    close(layer(inputs())[:, 0, 0], [0.0, 1.0])


def test_names_joined_by_plus_are_the_parts():
    layer = alignments.get("random + factorized_dense+dot_product", HEADS, KEY_DIM, 9)
    assert [type(part) for part in layer.alignments] == [
        alignments.RandomAlignment,
        alignments.FactorizedDenseAlignment,
        alignments.DotProductAlignment,
    ]


def test_max_length_is_that_of_the_shortest_part():
    parts = [alignments.RandomAlignment(HEADS, length) for length in (9, 4, 6)]
    assert alignments.MixtureAlignment([*parts, alignments.DotProductAlignment(HEADS, 3)]).max_length == 4


@pytest.mark.parametrize("dtype", ["float32", "float64", "mixed_float16"])
def test_mixture_weights_are_not_rounded_to_the_compute_dtype(dtype):
    layer = alignments.MixtureAlignment([constant(1.0), constant(2.0)], dtype=dtype)
    assert layer(inputs()).dtype == layer.variable_dtype
