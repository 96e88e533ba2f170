"""The logits of every alignment, against NumPy."""

import numpy as np
import oracle
import pytest
from helpers import (
    ALL,
    BATCH,
    HEADS,
    KEY_DIM,
    LENGTH,
    MAX_LENGTH,
    SHARED,
    WIDTH,
    alignment,
    close,
    inputs,
    randomize,
)

from keras_synth import alignments


@pytest.mark.parametrize("length", [1, LENGTH, MAX_LENGTH])
@pytest.mark.parametrize("name", ALL)
def test_logits_equal_the_formula(name, length):
    layer, x = alignment(name), inputs(length=length)
    logits = layer(x)
    assert layer.depends_on_input == (name not in SHARED)
    assert logits.shape == (BATCH,) * layer.depends_on_input + (HEADS, length, length)
    close(np.broadcast_to(logits, (BATCH, HEADS, length, length)), oracle.logits(layer, x))


@pytest.mark.parametrize("factors", [(2, 17), (17, 2), (1, 34), (34, 1)])
def test_factorized_dense_gives_every_column_its_own_pair_of_entries(factors):
    layer = alignments.FactorizedDenseAlignment(HEADS, KEY_DIM, MAX_LENGTH, factors, dtype="float64")
    layer.build((None, None, WIDTH))
    randomize(layer)
    for length in (1, LENGTH, MAX_LENGTH):
        x = inputs(length=length)
        close(layer(x), oracle.logits(layer, x))
    assert len(np.unique(np.round(layer(inputs())[0, 0, 0], 12))) == LENGTH


@pytest.mark.parametrize(
    "length, factors", [(34, (2, 17)), (36, (6, 6)), (24, (4, 6)), (7, (1, 7)), (1, (1, 1))]
)
def test_factors_default_to_the_pair_closest_to_a_square(length, factors):
    assert alignments.FactorizedDenseAlignment(HEADS, KEY_DIM, length).factors == factors


@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_a_sequence_longer_than_max_length_is_an_error(name):
    with pytest.raises(ValueError, match=f"max_length={MAX_LENGTH} .* length {MAX_LENGTH + 1}"):
        alignment(name)(inputs(length=MAX_LENGTH + 1))


def test_the_dot_product_takes_any_length():
    layer, x = alignment("dot_product"), inputs(length=MAX_LENGTH + 1)
    close(layer(x), oracle.logits(layer, x))


@pytest.mark.parametrize("name", ALL)
def test_a_part_of_the_queries_gets_its_rows_of_the_whole(name):
    layer, x = alignment(name), inputs()
    whole, keys = layer(x), layer.project_key(x)
    for start, stop in [(0, 1), (1, 4), (4, 5)]:
        part = layer(x[:, start:stop], keys=keys, start_index=start, key_length=LENGTH)
        close(part, whole[..., start:stop, :])


@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_key_length_is_checked_too(name):
    layer, x = alignment(name), inputs()
    with pytest.raises(ValueError, match=f"max_length={MAX_LENGTH} .* length {MAX_LENGTH + 1}"):
        layer(x, keys=layer.project_key(x), key_length=MAX_LENGTH + 1)


def test_the_dot_product_compares_two_sequences():
    layer, x, y = alignment("dot_product"), inputs(), inputs(length=17, seed=5)
    close(layer(x, keys=layer.project_key(y), key_length=17), oracle.logits(layer, x, y))


@pytest.mark.parametrize("name", SHARED)
def test_logits_that_do_not_look_at_the_input_are_the_same_for_any_batch(name):
    layer = alignment(name)
    close(layer(inputs(batch=1, seed=3)), layer(inputs(batch=4, seed=4)))


def test_a_mixture_of_shared_parts_and_others_adds_up_without_a_batch_axis_where_it_can():
    assert not alignment("random+factorized_random").depends_on_input
    assert alignment("random+dot_product").depends_on_input


@pytest.mark.parametrize("name", ALL)
def test_an_alignment_builds_itself_when_it_is_called(name):
    layer = alignment(name, built=False)
    assert layer(inputs()).shape[-3:] == (HEADS, LENGTH, LENGTH)
    assert layer.built
