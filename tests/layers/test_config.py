"""The configuration of every public class: complete, JSON, and enough to make an equal one."""

import copy
import inspect
import json
import pickle

import keras
import pytest
from classes import find_classes
from helpers import HEADS, KEY_DIM, LENGTH, WIDTH, inputs

from keras_synth import alignments, core, layers
from keras_synth.core import initializers
from keras_synth.core.projections import PROJECTION_ARGUMENTS, TokenDense
from keras_synth.core.recomputation import Dropout
from keras_synth.core.serialization import to_plain
from keras_synth.layers import baselines
from keras_synth.layers.feedforward import FeedForward
from keras_synth.layers.gate import AttentionGate
from keras_synth.layers.residual import Residual

PROJECTIONS = {
    "use_bias": False,
    "kernel_initializer": keras.initializers.HeNormal(seed=3),
    "bias_initializer": "ones",
    "kernel_regularizer": keras.regularizers.L2(0.1),
    "bias_regularizer": keras.regularizers.L1(0.2),
    "kernel_constraint": keras.constraints.MaxNorm(3),
    "bias_constraint": "non_neg",
}
LAYER = {"name": "a_name", "dtype": "mixed_bfloat16", "trainable": False}
DENSE = {"num_heads": 2, "key_dim": 3, "max_length": 6, "activation": "tanh", **PROJECTIONS, **LAYER}
TABLE = {
    "trainable_alignment": False,
    "alignment_initializer": keras.initializers.RandomUniform(seed=3),
    "alignment_regularizer": keras.regularizers.L2(0.1),
}
ATTENTION = {
    "value_dim": 13,
    "dropout": 0.1,
    "output_shape": (3, 5),
    "seed": 7,
    "sliding_window": 3,
    "use_gate": True,
    "activity_regularizer": keras.regularizers.L2(0.3),
    **PROJECTIONS,
    **LAYER,
}
BLOCK = {
    "attention": "dense+dot_product",
    "dropout": 0.1,
    "attention_dropout": 0.2,
    "activation": "tanh",
    "layer_norm_epsilon": 1e-3,
    "kernel_initializer": keras.initializers.HeNormal(seed=3),
    "bias_initializer": "ones",
    "normalize_first": True,
    "seed": 7,
    "feedforward_dropout": 0.3,
    "use_gated_activation": True,
    "use_attention_gate": True,
    "normalization": "rms_norm",
    "use_bias": False,
    "relative_bias": alignments.RelativeBiasAlignment(2, num_buckets=6),
    **LAYER,
}


def parts():
    return [alignments.RandomAlignment(2, 6), alignments.DotProductAlignment(2, 3, use_bias=False)]


#: class: the arguments that it needs, and other values for all of its arguments.
CASES = {
    alignments.RandomAlignment: ((1, 4), {"num_heads": 2, "max_length": 6, **TABLE, **LAYER}),
    alignments.FactorizedRandomAlignment: (
        (1, 4),
        {"num_heads": 2, "max_length": 6, "rank": 3, **TABLE, **LAYER},
    ),
    alignments.RoutedRandomAlignment: (
        (1, 4),
        {"num_heads": 2, "max_length": 6, "num_tables": 3, **TABLE, **PROJECTIONS, **LAYER},
    ),
    alignments.RelativeAlignment: (
        (1,),
        {
            "num_heads": 2,
            "max_distance": 9,
            "alignment_initializer": keras.initializers.RandomUniform(seed=3),
            "alignment_regularizer": keras.regularizers.L2(0.1),
            **LAYER,
        },
    ),
    alignments.RelativeKernelAlignment: ((1,), {"num_heads": 2, "num_kernels": 3, **LAYER}),
    alignments.DecayAlignment: ((1,), {"num_heads": 2, "trainable_alignment": False, **LAYER}),
    alignments.AverageAlignment: ((1,), {"num_heads": 2, **LAYER}),
    alignments.GaussianAlignment: (
        (1,),
        {
            "num_heads": 2,
            "offsets": [-2, 0.5],
            "stddev": 2.0,
            "window": 5,
            "trainable_alignment": True,
            **LAYER,
        },
    ),
    alignments.LocalDenseAlignment: (
        (1, 2),
        {
            "num_heads": 2,
            "key_dim": 3,
            "window": 5,
            "activation": "tanh",
            **PROJECTIONS,
            **LAYER,
        },
    ),
    alignments.DenseAlignment: (
        (1, 2, 4),
        DENSE,
    ),
    alignments.FactorizedDenseAlignment: (
        (1, 2, 4),
        {**DENSE, "factors": (6, 1), "activation": keras.activations.gelu},
    ),
    alignments.BottleneckAlignment: ((1, 2, 4), {**DENSE, "bottleneck_dim": 5}),
    alignments.ConvolutionAlignment: ((1, 2, 4), {**DENSE, "kernel_size": 5}),
    alignments.ConvolutionalBottleneckAlignment: (
        (1, 2, 4),
        {**DENSE, "kernel_size": 5, "bottleneck_dim": 7},
    ),
    alignments.GatedLinearAlignment: ((1, 2, 4), DENSE),
    alignments.FixedPatternAlignment: ((1,), {"num_heads": 2, "patterns": ["next", "first"], **LAYER}),
    alignments.HeadwiseAlignment: (
        ([alignments.RandomAlignment(1, 4), alignments.RandomAlignment(1, 4)],),
        {"alignments": parts(), **LAYER},
    ),
    alignments.DotProductAlignment: ((1, 2), {"num_heads": 2, "key_dim": 3, **PROJECTIONS, **LAYER}),
    alignments.MixtureAlignment: (
        ([alignments.RandomAlignment(1, 4), alignments.RandomAlignment(1, 4)],),
        {"alignments": parts(), **LAYER},
    ),
    alignments.SumAlignment: (
        ([alignments.RandomAlignment(1, 4), alignments.RandomAlignment(1, 4)],),
        {"alignments": parts(), **LAYER},
    ),
    alignments.RelativeBiasAlignment: (
        (1,),
        {"num_heads": 2, "num_buckets": 6, "max_distance": 17, **LAYER},
    ),
    layers.SyntheticAttention: (
        (1, 2, "dot_product"),
        {"num_heads": 2, "key_dim": 3, "alignment": alignments.RandomAlignment(2, 6), **ATTENTION},
    ),
    layers.RandomSynthesizer: (
        (1, 2, 4),
        {"num_heads": 2, "key_dim": 3, "max_length": 6, **TABLE, **ATTENTION},
    ),
    layers.FactorizedRandomSynthesizer: (
        (1, 2, 4),
        {"num_heads": 2, "key_dim": 3, "max_length": 6, "rank": 3, **TABLE, **ATTENTION},
    ),
    layers.DenseSynthesizer: (
        (1, 2, 4),
        {"num_heads": 2, "key_dim": 3, "max_length": 6, "activation": "tanh", **ATTENTION},
    ),
    layers.FactorizedDenseSynthesizer: (
        (1, 2, 4),
        {
            "num_heads": 2,
            "key_dim": 3,
            "max_length": 6,
            "factors": (6, 1),
            "activation": "tanh",
            **ATTENTION,
        },
    ),
    layers.DotProductAttention: ((1, 2), {"num_heads": 2, "key_dim": 3, **ATTENTION}),
    layers.FixedPatternAttention: (
        (1, 2),
        {"num_heads": 3, "key_dim": 3, "patterns": ["next", "first"], **ATTENTION},
    ),
    layers.MixtureSynthesizer: (
        (1, 2, ["dot_product", "dot_product"]),
        {"num_heads": 2, "key_dim": 3, "alignments": parts(), **ATTENTION},
    ),
    layers.SynthesizerEncoder: (
        (5, 1, "dot_product"),
        {"intermediate_dim": 7, "num_heads": 2, "max_length": 6, **BLOCK},
    ),
    layers.SynthesizerDecoder: (
        (5, 1, "dot_product"),
        {"intermediate_dim": 7, "num_heads": 2, "max_length": 6, **BLOCK},
    ),
    AttentionGate: ((), {**PROJECTIONS, **LAYER}),
    FeedForward: (
        (5, "relu"),
        {
            "intermediate_dim": 7,
            "activation": "tanh",
            "use_gate": True,
            "dropout": 0.1,
            "seed": 7,
            **PROJECTIONS,
            **LAYER,
        },
    ),
    Residual: (
        (False, 0.0, 1e-5),
        {
            "normalize_first": True,
            "dropout": 0.1,
            "layer_norm_epsilon": 1e-3,
            "normalization": "rms_norm",
            "seed": 7,
            **LAYER,
        },
    ),
    Dropout: (
        (0.0,),
        {"rate": 0.1, "noise_shape": (None, 1), "seed": 7, **LAYER},
    ),
    TokenDense: (
        ("btd,dhk->bthk", (None, 1, 1)),
        {
            "equation": "btd,dk->btk",
            "output_shape": (None, 3),
            "activation": "tanh",
            "bias_axes": "k",
            **{name: value for name, value in PROJECTIONS.items() if name != "use_bias"},
            **LAYER,
        },
    ),
    initializers.ProjectionInitializer: (
        ("zeros",),
        {"initializer": keras.initializers.HeNormal(seed=3), "input_rank": 2},
    ),
    initializers.PerHeadInitializer: (
        ("zeros",),
        {"initializer": keras.initializers.HeNormal(seed=3)},
    ),
}
#: The attention layers need `max_length` to make an alignment from a name; then the alignment holds it.
HELD_BY_THE_ALIGNMENT = {
    layers.SyntheticAttention: {"max_length"},
    layers.MixtureSynthesizer: {"max_length"},
}
cases = pytest.mark.parametrize(
    "cls, required, arguments",
    [(cls, *case) for cls, case in CASES.items()],
    ids=[cls.__name__ for cls in CASES],
)


def argument_names(cls):
    """The names of the arguments of `cls`, with those that it hands on by `**kwargs`."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self"}
    if issubclass(cls, layers.SyntheticAttention) and cls is not layers.SyntheticAttention:
        names |= argument_names(layers.SyntheticAttention) - {"alignment", "max_length"}
    if issubclass(cls, layers.SyntheticAttention) or hasattr(cls, "add_head_weights"):
        names |= set(PROJECTION_ARGUMENTS)
    return names - HELD_BY_THE_ALIGNMENT.get(cls, set())


def test_every_class_has_a_case():
    kinds = (keras.layers.Layer, keras.initializers.Initializer)
    registered = {
        cls
        for room in (alignments, core, layers)
        for cls in find_classes(room, kinds)
        if keras.saving.get_registered_name(cls) != cls.__name__
    }
    tested_by_themselves = {getattr(baselines, name) for name in baselines.__all__}
    assert registered - tested_by_themselves == set(CASES)


@cases
def test_config_holds_every_argument(cls, required, arguments):
    assert argument_names(cls) <= set(arguments)
    config, default = cls(**arguments).get_config(), cls(*required).get_config()
    for name, value in arguments.items():
        if isinstance(value, (bool, int, float, str)) and not isinstance(config[name], dict):
            assert config[name] == value, name
        assert config[name] != default.get(name), name


@cases
def test_config_is_plain_and_round_trips_to_an_equal_object(cls, required, arguments):
    first = keras.saving.serialize_keras_object(cls(**arguments))
    assert first["registered_name"] == f"keras_synth>{cls.__name__}"
    config = cls(**arguments).get_config()
    if cls in (Dropout, TokenDense):  # Keras's own have tuples
        config = to_plain(config)
    for module in (json, pickle):
        assert module.loads(module.dumps(config)) == config
    assert copy.deepcopy(config) == config
    text = json.dumps(first)
    for _ in range(2):
        again = keras.saving.deserialize_keras_object(json.loads(text))
        assert type(again) is cls
        text_again = json.dumps(keras.saving.serialize_keras_object(again))
        assert json.loads(text_again) == json.loads(text)
        text = text_again


@cases
def test_from_config_makes_an_equal_object(cls, required, arguments):
    config = cls(**arguments).get_config()
    snapshot = copy.deepcopy(config)
    assert cls.from_config(config).get_config() == snapshot
    assert config == snapshot


@cases
def test_the_callers_objects_stay_as_they_are(cls, required, arguments):
    def state():
        return {
            name: [keras.saving.serialize_keras_object(item) for item in keras.tree.flatten(value)]
            for name, value in arguments.items()
        }

    before = state()
    made = cls(**arguments)
    if isinstance(made, keras.layers.Layer):
        made.build((None, None, 14))
    else:
        made((3, 4, 5))
    built = dict.fromkeys(("alignments", "alignment", "relative_bias"))  # which the layer takes over
    assert {**state(), **built} == {**before, **built}


@pytest.mark.parametrize(
    "identifier",
    [
        "random+dot_product",
        alignments.RandomAlignment(HEADS, 9, alignment_initializer="ones"),
        keras.saving.serialize_keras_object(alignments.DenseAlignment(HEADS, 3, 9, activation="tanh")),
    ],
    ids=["name", "layer", "config"],
)
@pytest.mark.parametrize("make", ["attention", "encoder", "decoder"])
def test_an_alignment_may_be_a_name_a_layer_or_a_config(make, identifier):
    makers = {
        "attention": lambda: layers.SyntheticAttention(HEADS, KEY_DIM, identifier, max_length=9),
        "encoder": lambda: layers.SynthesizerEncoder(11, HEADS, identifier, max_length=9),
        "decoder": lambda: layers.SynthesizerDecoder(11, HEADS, identifier, max_length=9),
    }
    snapshot = copy.deepcopy(identifier) if isinstance(identifier, dict) else identifier
    layer = makers[make]()
    layer(inputs(width=14))
    again = type(layer).from_config(layer.get_config())
    again(inputs(width=14))
    assert again.get_config() == layer.get_config()
    assert [w.shape for w in again.weights] == [w.shape for w in layer.weights]
    assert identifier == snapshot


def test_a_block_copies_the_alignment_layer_that_it_is_given():
    pattern = alignments.RandomAlignment(HEADS, 9)
    blocks = [layers.SynthesizerEncoder(11, HEADS, pattern) for _ in range(2)]
    for block in blocks:
        block.build((None, None, 14))
    made = [block.self_attention.alignment for block in blocks]
    assert made[0] is not made[1] and pattern not in made
    assert not pattern.built


def test_a_list_of_alignments_is_not_changed():
    names = ["random", alignments.DotProductAlignment(HEADS, 3)]
    given = list(names)
    layers.MixtureSynthesizer(HEADS, KEY_DIM, given, max_length=LENGTH).build((None, None, WIDTH))
    assert given == names


def test_serialize_is_the_inverse_of_get():
    layer = alignments.RandomAlignment(HEADS, 9)
    config = alignments.serialize(layer)
    assert alignments.serialize("random") == "random"
    assert alignments.serialize(config) == config
    assert alignments.get(config, HEADS, KEY_DIM).get_config() == layer.get_config()
