"""Every wrong argument or input is an error that names the layer, what was given and what is allowed."""

import keras
import numpy as np
import pytest
from helpers import ALL, BATCH, HEADS, KEY_DIM, LENGTH, MAX_LENGTH, WIDTH, attention, inputs

from keras_synth import alignments, layers

T = S = LENGTH
N = MAX_LENGTH


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: layers.SyntheticAttention(2, 3, "randon", max_length=9), "'randon'"),
        (lambda: layers.SyntheticAttention(2, 3, "random+denze", max_length=9), "'random\\+denze'"),
        (lambda: layers.SyntheticAttention(2, 3, "", max_length=9), "''"),
        (lambda: layers.SyntheticAttention(2, 3, None, max_length=9), "None"),
        (lambda: layers.SyntheticAttention(2, 3, keras.layers.Dense(1)), "Dense"),
    ],
)
def test_an_unknown_alignment_names_those_that_there_are(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    for name in alignments.NAMES:
        assert f"'{name}'" in str(error.value)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("dot_product", "nested")])
def test_max_length_is_needed_by_name(name):
    with pytest.raises(ValueError, match="needs `max_length`") as error:
        layers.SyntheticAttention(2, 3, name)
    assert name in str(error.value)


def test_the_dot_product_needs_no_max_length():
    layers.SyntheticAttention(2, 3, "dot_product+dot_product")(inputs())


def test_the_alignment_must_have_the_heads_of_the_attention():
    with pytest.raises(ValueError, match="num_heads=3, but the attention has num_heads=2"):
        layers.SyntheticAttention(2, 3, alignments.RandomAlignment(3, 9))


@pytest.mark.parametrize("factors", [(3, 5), (2, 3, 6), (36,), (-6, -6), (36, 1, 1), (7.2, 5)])
def test_factors_must_be_two_integers_with_the_product_max_length(factors):
    with pytest.raises(ValueError, match="`factors` .*max_length=36") as error:
        layers.FactorizedDenseSynthesizer(2, 3, 36, factors=factors)
    assert f"factors={factors}" in str(error.value)


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True, None])
@pytest.mark.parametrize(
    "cls, right, name",
    [
        (layers.DotProductAttention, {"num_heads": 2, "key_dim": 3}, "num_heads"),
        (layers.DotProductAttention, {"num_heads": 2, "key_dim": 3}, "key_dim"),
        (layers.RandomSynthesizer, {"num_heads": 2, "key_dim": 3, "max_length": 9}, "max_length"),
        (alignments.RandomAlignment, {"num_heads": 2, "max_length": 9}, "num_heads"),
        (alignments.RandomAlignment, {"num_heads": 2, "max_length": 9}, "max_length"),
        (alignments.DenseAlignment, {"num_heads": 2, "key_dim": 3, "max_length": 9}, "key_dim"),
        (
            alignments.FactorizedDenseAlignment,
            {"num_heads": 2, "key_dim": 3, "max_length": 9},
            "max_length",
        ),
        (alignments.FactorizedRandomAlignment, {"num_heads": 2, "max_length": 9, "rank": 3}, "rank"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_sizes_must_be_positive_integers(cls, right, name, value):
    with pytest.raises(ValueError, match=f"`{name}` of .* must be a positive integer.*{name}={value!r}"):
        cls(**{**right, name: value})


def test_value_dim_must_be_a_positive_integer():
    with pytest.raises(ValueError, match="`value_dim` of .* must be a positive integer.*value_dim=0"):
        layers.DotProductAttention(2, 3, value_dim=0)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5])
def test_dropout_must_be_a_rate(dropout):
    with pytest.raises(ValueError, match=f"`dropout` of .*dropout={dropout}"):
        layers.DotProductAttention(2, 3, dropout=dropout)


@pytest.mark.parametrize("parts", [[], ["random"], [alignments.RandomAlignment(2, 9)]])
def test_a_mixture_needs_two_parts(parts):
    with pytest.raises(ValueError, match="at least two"):
        layers.MixtureSynthesizer(2, 3, parts, max_length=9)


def test_parts_of_a_mixture_must_have_the_same_heads():
    parts = [alignments.RandomAlignment(2, 9), alignments.RandomAlignment(3, 9)]
    with pytest.raises(ValueError, match=r"same number of heads.*num_heads=\[2, 3\]"):
        alignments.MixtureAlignment(parts)


def test_parts_of_a_mixture_must_be_alignments():
    with pytest.raises(ValueError, match="alignment layers"):
        alignments.MixtureAlignment([alignments.RandomAlignment(2, 9), keras.layers.Dense(1)])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "mask, shape",
    [
        ("query_mask", (BATCH, T + 1)),
        ("query_mask", (BATCH + 1, T)),
        ("query_mask", (BATCH, T, 1)),
        ("query_mask", (T,)),
        ("value_mask", (BATCH, S + 1)),
        ("value_mask", (BATCH, 1, S)),
        ("key_mask", (BATCH, S - 1)),
        ("key_mask", (1, S)),
        ("attention_mask", (S,)),
        ("attention_mask", (T, S + 1)),
        ("attention_mask", (T + 1, S)),
        ("attention_mask", (BATCH, T, 1)),
        ("attention_mask", (BATCH + 1, T, S)),
        ("attention_mask", (BATCH, HEADS + 1, T, S)),
        ("attention_mask", (BATCH, HEADS, S)),
        ("attention_mask", (BATCH, 1, HEADS, T, S)),
    ],
)
def test_a_mask_of_the_wrong_shape_is_named(name, mask, shape):
    layer = attention(name)
    with pytest.raises(ValueError, match=f"`{mask}` of SyntheticAttention.* must have shape") as error:
        layer(inputs(), **{mask: np.ones(shape)})
    assert f"{mask} of shape {shape}" in str(error.value)


@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_a_value_of_another_length_is_an_error(name):
    with pytest.raises(ValueError, match="query of length 5, value of length 6"):
        attention(name)(inputs(), inputs(length=6))


@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_a_sequence_longer_than_max_length_is_an_error(name):
    with pytest.raises(ValueError, match=f"max_length={N} .* length {N + 1}"):
        attention(name)(inputs(length=N + 1))


@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_a_symbolic_sequence_longer_than_max_length_is_an_error(name):
    with pytest.raises(ValueError, match=f"max_length={N} .* length {N + 1}"):
        attention(name)(keras.Input((N + 1, WIDTH)))


@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_a_cache_longer_than_max_length_is_an_error(name):
    layer = attention(name)
    with pytest.raises(ValueError, match=f"max_length={N} .* length {N + 1}"):
        layer(inputs(length=1), cache=layer.init_cache(BATCH, N + 1), cache_update_index=0)


@pytest.mark.parametrize("name", ["random", "dense", "dot_product"])
def test_writing_past_the_end_of_a_cache_is_an_error(name):
    layer = attention(name)
    with pytest.raises(ValueError, match="cache"):
        layer(inputs(length=2), cache=layer.init_cache(BATCH, LENGTH), cache_update_index=LENGTH - 1)


def test_errors_name_the_layer():
    layer = layers.RandomSynthesizer(HEADS, KEY_DIM, N, name="my_layer")
    with pytest.raises(ValueError, match="RandomSynthesizer 'my_layer'"):
        layer(inputs(), query_mask=np.ones((1, 1, 1)))


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5, WIDTH)])
def test_inputs_have_three_axes(shape):
    message = r"`query` of DotProductAttention 'mine' .*\(batch, tokens, width\)"
    for x in (np.ones(shape), keras.Input(shape[1:])):
        with pytest.raises(ValueError, match=message):
            layers.DotProductAttention(2, 4, name="mine")(x)


def test_a_list_is_no_input():
    with pytest.raises(ValueError, match="`query` of DotProductAttention 'mine' .*type list"):
        layers.DotProductAttention(2, 4, name="mine")([inputs(), inputs()])


@pytest.mark.parametrize("length", [LENGTH - 1, LENGTH + 1])
def test_a_key_has_the_length_of_the_value(length):
    for x, key in [
        (inputs(), inputs(length=length)),
        (keras.Input((LENGTH, WIDTH)), keras.Input((length, WIDTH))),
    ]:
        with pytest.raises(ValueError, match=f"`key` of .* length {length}, value of length {LENGTH}"):
            layers.DotProductAttention(2, 4)(x, x, key=key)


@pytest.mark.parametrize("output_shape", [0, -1, 2.5, "3", (3, 0)])
def test_output_shape_is_made_of_positive_integers(output_shape):
    with pytest.raises(ValueError, match="`output_shape` of DotProductAttention 'mine'"):
        layers.DotProductAttention(2, 4, output_shape=output_shape, name="mine")


def test_a_convolution_says_that_its_cache_needs_the_width_of_the_tokens():
    with pytest.raises(ValueError, match="must be built before `init_cache`"):
        layers.SyntheticAttention(2, 3, "convolution", max_length=9).init_cache(2, 3)


@pytest.mark.parametrize("index", [-1, 8, 30])
@pytest.mark.parametrize("name", ["random", "dot_product"])
def test_an_index_in_a_tensor_is_checked_where_it_is_known(name, index):
    layer = attention(name)
    with pytest.raises(ValueError, match=f"`cache_update_index` must be from 0 to 7. .*={index}"):
        layer(
            inputs(length=1),
            cache=layer.init_cache(BATCH, 8),
            cache_update_index=keras.ops.convert_to_tensor(index),
        )


def test_an_index_needs_a_cache():
    with pytest.raises(ValueError, match="`cache_update_index` of .* needs a `cache`"):
        attention("random")(inputs(), cache_update_index=0)


@pytest.mark.parametrize("window", [0, -1, 2.0, True])
def test_a_sliding_window_is_a_positive_integer(window):
    with pytest.raises(ValueError, match=f"`sliding_window` of .* positive integer.*={window}"):
        layers.DotProductAttention(2, 3, sliding_window=window)
