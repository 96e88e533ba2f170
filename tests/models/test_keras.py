"""What of Keras works with layers, backbones and tasks: the table of `docs/keras.md`, tried anew."""

import copy
import importlib.util
import json
import pathlib
import pickle
import re

import keras
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs

from keras_synth import alignments, layers, models
from keras_synth.layers import baselines

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "keras.md"


def make_layers():
    """One model of all layers, behind each other."""
    sizes = {"num_heads": 2, "key_dim": 4}
    mixture = [alignments.RandomAlignment(2, 12), alignments.DotProductAlignment(2, 4)]
    stack = [
        *(layers.SyntheticAttention(**sizes, alignment=name, max_length=12) for name in alignments.NAMES),
        layers.RandomSynthesizer(**sizes, max_length=12),
        layers.FactorizedRandomSynthesizer(**sizes, max_length=12),
        layers.DenseSynthesizer(**sizes, max_length=12),
        layers.FactorizedDenseSynthesizer(**sizes, max_length=12, factors=(2, 6)),
        layers.DotProductAttention(**sizes, use_gate=True, sliding_window=3),
        layers.FixedPatternAttention(**sizes, patterns=["previous"]),
        layers.MixtureSynthesizer(**sizes, alignments=mixture),
        baselines.LightweightConvolution(**sizes),
        baselines.DynamicConvolution(**sizes),
        baselines.LinearAttention(**sizes, max_length=12),
        layers.SynthesizerEncoder(11, 2, "dense", 12, relative_bias=alignments.RelativeBiasAlignment(2)),
        layers.SynthesizerDecoder(
            11, 2, max_length=12, use_gated_activation=True, normalization="rms_norm"
        ),
    ]
    x = tokens = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(29, 8, mask_zero=True)(x)
    for layer in stack:
        x = layer(x)
    return [(keras.Model(tokens, x), inputs(ENCODER, [5, 3])["token_ids"])]


def make_backbones():
    return [(cls(**SIZES), inputs(cls, [5, 3])) for cls in (ENCODER, DECODER, BOTH)]


def make_tasks():
    masked = {**inputs(ENCODER, [5, 3]), "mask_positions": np.array([[0, 3], [1, 2]])}
    return [
        (models.SynthesizerTextClassifier(ENCODER(**SIZES), 3), inputs(ENCODER, [5, 3])),
        (models.SynthesizerMaskedLM(ENCODER(**SIZES)), masked),
        (models.SynthesizerCausalLM(DECODER(**SIZES)), inputs(DECODER, [5, 3])),
        (models.SynthesizerSeq2SeqLM(BOTH(**SIZES)), inputs(BOTH, [5, 3])),
    ]


KINDS = {"layers": make_layers, "backbones": make_backbones, "tasks": make_tasks}


@pytest.fixture(scope="module")
def made():
    return {kind: make() for kind, make in KINDS.items()}


def check_equal(first, second, x):
    outputs = [keras.tree.flatten(model(x)) for model in (first, second)]
    for pair in zip(*outputs, strict=True):
        np.testing.assert_allclose(*pair, 1e-6, 1e-6)


def try_config(model, x, folder):
    ours = [layer for layer in (model, *model.layers) if type(layer).__module__.startswith("keras_synth.")]
    for config in (layer.get_config() for layer in ours):
        for module in (json, pickle):
            assert module.loads(module.dumps(config)) == config
        assert copy.deepcopy(config) == config


def try_file(suffix):
    def save_and_load(model, x, folder):
        model.save(folder / f"model.{suffix}")
        check_equal(model, keras.models.load_model(folder / f"model.{suffix}"), x)

    return save_and_load


def try_weights(model, x, folder):
    model.save_weights(folder / "model.weights.h5")
    other = type(model).from_config(model.get_config())
    other.load_weights(folder / "model.weights.h5")
    check_equal(model, other, x)


def try_clone(model, x, folder):
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    check_equal(model, clone, x)


def try_summary(model, x, folder):
    lines = []
    model.summary(print_fn=lambda line, **kwargs: lines.append(line), expand_nested=True)
    assert f"{model.count_params():,}" in "\n".join(lines)


def try_dot(model, x, folder):
    if importlib.util.find_spec("pydot") is None:
        pytest.skip("needs pydot")
    assert len(keras.utils.model_to_dot(model, show_shapes=True).get_nodes()) >= len(model.layers)


TRIES = {
    "configs through `json`, `pickle` and `copy.deepcopy`": try_config,
    "`model.save` and `load_model`, `.keras`": try_file("keras"),
    "the same, `.h5`": try_file("h5"),
    "`save_weights` and `load_weights`": try_weights,
    "`keras.models.clone_model`": try_clone,
    "`model.summary(expand_nested=True)`": try_summary,
    "`keras.utils.plot_model`": try_dot,
}


def read_table():
    """The cells of the first table of the docs, by row and column."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    columns = rows[0][1:]
    return {row[0]: dict(zip(columns, row[1:], strict=False)) for row in rows[2 : 2 + len(TRIES)]}


def test_the_table_has_a_row_for_each_thing_that_is_tried():
    assert list(read_table()) == list(TRIES)


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # of what was not trained yet
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TRIES)
def test_the_table_says_what_works(made, name, kind, tmp_path):
    found, reason = "yes", None
    for model, x in made[kind]:
        try:
            TRIES[name](model, x, tmp_path)
        except Exception as error:
            found = f"no: {type(error).__name__}"
            reason = error
            break
    assert read_table()[name][kind] == found, reason
