"""Models with our layers, saved and loaded."""

import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest
from helpers import ALL, BATCH, HEADS, KEY_DIM, LENGTH, MAX_LENGTH, alignment, close, randomize

from keras_synth import alignments, layers

WIDTH = 14
IDS = np.random.default_rng(1).integers(0, 4, size=(BATCH, LENGTH))
LAYERS = {
    **{
        name: lambda name=name: layers.SyntheticAttention(
            HEADS, KEY_DIM, alignment(name, "float32", built=False)
        )
        for name in ALL
    },
    "RandomSynthesizer": lambda: layers.RandomSynthesizer(
        HEADS, KEY_DIM, MAX_LENGTH, alignment_initializer="glorot_uniform"
    ),
    "FactorizedRandomSynthesizer": lambda: layers.FactorizedRandomSynthesizer(HEADS, 3, MAX_LENGTH, rank=3),
    "DenseSynthesizer": lambda: layers.DenseSynthesizer(HEADS, KEY_DIM, MAX_LENGTH, activation="gelu"),
    "FactorizedDenseSynthesizer": lambda: layers.FactorizedDenseSynthesizer(
        HEADS, KEY_DIM, MAX_LENGTH, factors=(17, 2), use_bias=False
    ),
    "DotProductAttention": lambda: layers.DotProductAttention(HEADS, KEY_DIM, value_dim=13),
    "MixtureSynthesizer": lambda: layers.MixtureSynthesizer(
        HEADS, KEY_DIM, ["random", alignments.DotProductAlignment(HEADS, 3)], max_length=MAX_LENGTH
    ),
    "SynthesizerEncoder": lambda: layers.SynthesizerEncoder(11, HEADS, max_length=MAX_LENGTH),
    "SynthesizerDecoder": lambda: layers.SynthesizerDecoder(
        11, HEADS, "dense", max_length=MAX_LENGTH, normalize_first=True
    ),
}


def model(layer):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(4, WIDTH, mask_zero=True)(ids)
    return randomize(keras.Model(ids, layer(x)))


def two_sequence_model():
    ids, source_ids = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(4, WIDTH, mask_zero=True)
    encoded = layers.SynthesizerEncoder(11, HEADS, "dense", max_length=MAX_LENGTH)(embedding(source_ids))
    decoder = layers.SynthesizerDecoder(11, HEADS, "random", max_length=MAX_LENGTH)
    return randomize(keras.Model([ids, source_ids], decoder(embedding(ids), encoded)))


def variables_in(path):
    found = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_a_model_comes_back_equal(make, tmp_path):
    original = model(make())
    original.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras")(IDS), original(IDS), 0)

    original.save_weights(tmp_path / "model.weights.h5")
    assert len(variables_in(tmp_path / "model.weights.h5")) == len(original.weights)
    copy = randomize(keras.Model.from_config(original.get_config()), seed=9)
    copy.load_weights(tmp_path / "model.weights.h5")
    close(copy(IDS), original(IDS), 0)

    copy = keras.Model.from_config(original.get_config())
    copy.set_weights(original.get_weights())
    close(copy(IDS), original(IDS), 0)


def test_a_model_of_two_sequences_comes_back_equal(tmp_path):
    original, inputs = two_sequence_model(), [IDS, IDS[:, :3]]
    original.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras")(inputs), original(inputs), 0)
    original.save_weights(tmp_path / "model.weights.h5")
    assert len(variables_in(tmp_path / "model.weights.h5")) == len(original.weights)


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_what_is_frozen_before_it_is_built_stays_frozen(make):
    config = make().get_config()
    frozen, free = (
        type(make()).from_config({**config, "trainable": trainable}) for trainable in (False, True)
    )
    assert len(model(frozen).trainable_weights) == 1  # the embedding
    expected = len(model(free).trainable_weights)
    assert expected > 3
    frozen.trainable = True
    assert 1 + len(frozen.trainable_weights) == expected


def test_a_frozen_block_comes_back_frozen(tmp_path):
    block = layers.SynthesizerEncoder(11, HEADS, "dense", max_length=MAX_LENGTH)
    original = model(block)
    block.trainable = False
    original.save(tmp_path / "model.keras")
    for again in (keras.models.load_model(tmp_path / "model.keras"), keras.models.clone_model(original)):
        assert [weight.name for weight in again.trainable_weights] == ["embeddings"]


def test_weights_of_another_max_length_are_refused(tmp_path):
    model(layers.RandomSynthesizer(HEADS, KEY_DIM, 16)).save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="shape"):
        model(layers.RandomSynthesizer(HEADS, KEY_DIM, 32)).load_weights(tmp_path / "model.weights.h5")


def test_a_clone_of_a_model_computes_the_same():
    original = two_sequence_model()
    clone = keras.models.clone_model(original)
    clone.set_weights(original.get_weights())
    close(clone([IDS, IDS]), original([IDS, IDS]), 0)


LOAD = """
import sys
import keras
import numpy as np

path, ids, expected = sys.argv[1:]
try:
    keras.saving.load_model(path)
except TypeError as error:
    assert "keras_synth" in str(error) or "SynthesizerEncoder" in str(error), error
else:
    raise AssertionError("a model was loaded without its classes")

import keras_synth

outputs = keras.saving.load_model(path)(np.load(ids))
np.testing.assert_allclose(outputs, np.load(expected), rtol=1e-6, atol=1e-6)
"""


def test_a_new_process_needs_keras_synth_to_load_a_model(tmp_path):
    original = model(layers.SynthesizerEncoder(11, HEADS, "random+dense", max_length=MAX_LENGTH))
    original.save(tmp_path / "model.keras")
    np.save(tmp_path / "ids.npy", IDS)
    np.save(tmp_path / "expected.npy", original(IDS))
    paths = [str(tmp_path / name) for name in ("model.keras", "ids.npy", "expected.npy")]
    subprocess.run([sys.executable, "-c", LOAD, *paths], check=True)


@pytest.mark.parametrize("kind", ["relative bias", "alignment", "part of a mixture"])
def test_what_layers_share_they_share_after_loading(kind, tmp_path):
    table = alignments.RandomAlignment(HEADS, MAX_LENGTH)
    bias = alignments.RelativeBiasAlignment(HEADS)

    def make():
        if kind == "relative bias":
            return layers.SynthesizerEncoder(11, HEADS, "dense", MAX_LENGTH, relative_bias=bias)
        if kind == "alignment":
            return layers.SyntheticAttention(HEADS, KEY_DIM, table)
        dot_product = alignments.DotProductAlignment(HEADS, KEY_DIM)
        return layers.SyntheticAttention(HEADS, KEY_DIM, alignments.MixtureAlignment([table, dot_product]))

    x = keras.Input((None, WIDTH))
    first = randomize(keras.Model(x, make()(make()(x))))
    first.save(tmp_path / "model.keras")
    second = keras.models.load_model(tmp_path / "model.keras")
    assert len(second.weights) == len(first.weights)
    tokens = np.random.default_rng(1).normal(size=(BATCH, LENGTH, WIDTH))
    close(second(tokens), first(tokens), 1e-6)
    shared = next(w for w in second.weights if w.path.endswith("table"))
    before = second(tokens)
    shared.assign(shared + keras.random.normal(shared.shape, seed=1))
    assert np.abs(second(tokens) - before).max() > 1e-3
