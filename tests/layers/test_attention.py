"""What `attention` of a block may be: the names, what they need, and the check that builds nothing."""

import keras
import pytest
from helpers import HEADS, KEY_DIM

from keras_synth import alignments, layers
from keras_synth.layers.baselines import DynamicConvolution

LENGTH = 12


def heads_of_two_kinds():
    return alignments.HeadwiseAlignment(
        [alignments.FixedPatternAlignment(1), alignments.RandomAlignment(1, LENGTH)]
    )


def given_as(form, layer):
    return keras.saving.serialize_keras_object(layer) if form == "config" else layer


def test_the_names_are_those_of_the_alignments_and_of_the_baselines():
    baselines = ("lightweight_convolution", "dynamic_convolution", "linear")
    assert layers.ATTENTIONS == (*alignments.NAMES, *baselines)


@pytest.mark.parametrize("attention", [*layers.ATTENTIONS, "+".join(alignments.NAMES), "random + dense"])
def test_names_pass_the_check_and_make_a_block(attention):
    layers.check_attention(attention, HEADS, LENGTH)
    block = layers.SynthesizerEncoder(11, HEADS, attention, max_length=LENGTH)
    block.build((None, None, 14))
    assert block.self_attention.num_heads == HEADS


@pytest.mark.parametrize("form", ["layer", "config"])
@pytest.mark.parametrize(
    "layer", [heads_of_two_kinds(), DynamicConvolution(HEADS, KEY_DIM)], ids=lambda layer: layer.name
)
def test_a_layer_must_have_the_heads_of_the_block(layer, form):
    layers.check_attention(given_as(form, layer), HEADS)
    assert not layer.built
    with pytest.raises(ValueError, match=f"num_heads={HEADS}, but the attention has num_heads=3"):
        layers.check_attention(given_as(form, layer), 3)


@pytest.mark.parametrize(
    "attention", ["", "randon", "random+", "random+linear", None, 3, ["random"], {}, keras.layers.Dense(1)]
)
def test_what_stands_for_no_attention_is_refused_with_the_names_that_there_are(attention):
    with pytest.raises(ValueError, match="Received: ") as error:
        layers.check_attention(attention, HEADS, LENGTH)
    assert all(f"'{name}'" in str(error.value) for name in layers.ATTENTIONS)


#: Those that have no weights for positions.
ANY_LENGTH = {
    "dot_product",
    "fixed_pattern",
    "local_dense",
    "relative",
    "decay",
    "average",
    "gaussian",
    "lightweight_convolution",
    "dynamic_convolution",
}


@pytest.mark.parametrize("name", layers.ATTENTIONS)
def test_max_length_is_needed_where_there_are_weights_for_positions(name):
    if name in ANY_LENGTH:
        layers.check_attention(name, HEADS)
        return
    with pytest.raises(ValueError, match=f"'{name}' needs `max_length`.*max_length=None"):
        layers.check_attention(name, HEADS)
    with pytest.raises(ValueError, match="`max_length` of .* must be a positive integer.*max_length=0"):
        layers.check_attention(name, HEADS, 0)


@pytest.mark.parametrize("num_heads", [0, 2.0, "2", None, True])
def test_num_heads_must_be_a_positive_integer(num_heads):
    with pytest.raises(ValueError, match=f"`num_heads` .* positive integer.*num_heads={num_heads!r}"):
        layers.check_attention("random", num_heads, LENGTH)


def test_a_relative_bias_needs_logits_and_the_same_heads():
    with pytest.raises(ValueError, match="must be an Alignment layer.*Received: 'linear'"):
        layers.SynthesizerEncoder(
            11, HEADS, "linear", LENGTH, relative_bias=alignments.RelativeBiasAlignment(HEADS)
        )
    with pytest.raises(ValueError, match="num_heads=3, but the attention has num_heads=2"):
        layers.SynthesizerEncoder(
            11, HEADS, "random", LENGTH, relative_bias=alignments.RelativeBiasAlignment(3)
        )
    with pytest.raises(ValueError, match="`relative_bias` must be an alignment layer.*'random'"):
        layers.SynthesizerEncoder(11, HEADS, "random", LENGTH, relative_bias="random")


def test_an_alignment_gets_those_arguments_that_it_takes():
    both = alignments.get("factorized_random+dense", HEADS, KEY_DIM, LENGTH, rank=3, use_bias=False)
    assert (both.alignments[0].rank, both.alignments[1].use_bias) == (3, False)
    with pytest.raises(ValueError, match="'use_bais'"):
        alignments.get("dense", HEADS, KEY_DIM, LENGTH, use_bais=False)


@pytest.mark.parametrize("parts", ["random+dot_product", ["random", "dot_product"]])
def test_a_mixture_takes_names_in_a_list_or_joined(parts):
    layer = layers.MixtureSynthesizer(HEADS, KEY_DIM, parts, max_length=LENGTH)
    names = [type(part).__name__ for part in layer.alignment.alignments]
    assert names == ["RandomAlignment", "DotProductAlignment"]


@pytest.mark.parametrize("parts", ["random", 3, None])
def test_a_mixture_of_less_than_two_parts_is_refused(parts):
    with pytest.raises(ValueError, match="at least two alignment layers"):
        layers.MixtureSynthesizer(HEADS, KEY_DIM, parts, max_length=LENGTH)
