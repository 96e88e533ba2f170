"""The paper's Table 2: parameters of the WMT model, in millions, by the alignment of its self-attention."""

import math

import pytest

from keras_synth.layers import SyntheticAttention

WIDTH, HEADS, LAYERS, LENGTH = 512, 8, 6 + 6, 256


def trained(alignment):
    """The trained parameters of the alignments of all layers, without biases."""
    layer = SyntheticAttention(HEADS, WIDTH // HEADS, alignment, max_length=LENGTH, use_bias=False)
    layer.build((None, None, WIDTH))
    return LAYERS * sum(math.prod(weight.shape) for weight in layer.alignment.trainable_weights)


@pytest.mark.parametrize(
    "alignment, millions",
    [
        ("fixed_random", 61),
        ("random", 67),
        ("factorized_random", 61),
        ("random+dot_product", 73),
    ],
)
def test_differences_to_the_vanilla_model_are_those_of_the_paper(alignment, millions):
    difference = (trained(alignment) - trained("dot_product")) / 1e6
    assert round(67.0 + difference) == millions


def test_random_tables_cost_what_query_and_key_projections_did():
    assert trained("random") == trained("dot_product") == LAYERS * 2 * WIDTH**2


@pytest.mark.parametrize(
    "alignment, formula",
    [
        ("dense", WIDTH**2 + WIDTH * LENGTH),
        ("factorized_dense", WIDTH**2 + WIDTH * (16 + 16)),
        ("factorized_random", 2 * HEADS * LENGTH * 8),
    ],
)
def test_parameters_are_those_of_table_1(alignment, formula):
    assert trained(alignment) == LAYERS * formula
