"""The weights of every alignment: how many, which are trained, how they start."""

import random

import keras
import numpy as np
import pytest
from helpers import (
    ALL,
    BATCH,
    HEADS,
    KEY_DIM,
    LENGTH,
    MAX_LENGTH,
    WIDTH,
    alignment,
    attention,
    close,
    inputs,
    outputs_and_gradients,
)

from keras_synth import alignments, layers

D, N, RANK = HEADS * KEY_DIM, MAX_LENGTH, 8
COUNTS = {
    "random": HEADS * N**2,
    "fixed_random": HEADS * N**2,
    "factorized_random": 2 * HEADS * N * RANK,
    "dense": WIDTH * D + D * N + D + HEADS * N,
    "factorized_dense": WIDTH * D + D * (2 + 17) + D + HEADS * (2 + 17),
    "dot_product": 2 * WIDTH * D + 2 * D,
}
COUNTS["random+factorized_random"] = COUNTS["random"] + COUNTS["factorized_random"] + 2 * HEADS
COUNTS["random+dot_product"] = COUNTS["random"] + COUNTS["dot_product"] + 2 * HEADS
COUNTS["factorized_random+dense+dot_product"] = (
    COUNTS["factorized_random"] + COUNTS["dense"] + COUNTS["dot_product"] + 3 * HEADS
)
COUNTS["nested"] = (
    COUNTS["factorized_dense"]
    + COUNTS["random"]
    + 2 * HEADS
    + COUNTS["dot_product"]
    + COUNTS["factorized_random"]
    + 3 * HEADS
)


@pytest.mark.parametrize("name", ALL)
def test_parameter_count(name):
    assert alignment(name).count_params() == COUNTS[name]


def test_parameter_count_of_the_paper_without_biases():
    width = HEADS * KEY_DIM
    for name, count in [
        ("dot_product", 2 * width**2),
        ("dense", width**2 + width * N),
        ("factorized_dense", width**2 + width * (2 + 17)),
    ]:
        layer = alignments.get(name, HEADS, KEY_DIM, N, use_bias=False)
        layer.build((None, None, width))
        assert layer.count_params() == count


@pytest.mark.parametrize("name", ALL)
def test_build_makes_every_weight_and_none_has_a_batch_axis(name):
    layer = alignment(name, built=False)
    layer.build((23, LENGTH, WIDTH))
    before = [weight.path for weight in layer.weights]
    layer(inputs(batch=BATCH))
    layer(inputs(batch=BATCH + 2))
    assert [weight.path for weight in layer.weights] == before
    assert all(23 not in weight.shape for weight in layer.weights)


@pytest.mark.parametrize("name", ALL)
def test_every_trained_weight_gets_a_gradient(name):
    layer = attention(name)
    _, (_, *gradients) = outputs_and_gradients(layer, inputs())
    for weight, gradient in zip(layer.trainable_weights, gradients, strict=True):
        if not weight.path.endswith("key/bias"):  # softmax does not see what all keys have in common
            assert np.abs(gradient).max() > 1e-6, weight.path


FIXED = {
    "random": lambda: layers.RandomSynthesizer(HEADS, KEY_DIM, N, trainable_alignment=False),
    "factorized_random": lambda: layers.FactorizedRandomSynthesizer(
        HEADS, KEY_DIM, N, trainable_alignment=False
    ),
    "name": lambda: layers.SyntheticAttention(HEADS, KEY_DIM, "fixed_random", max_length=N),
}


@pytest.mark.parametrize("make", FIXED.values(), ids=FIXED)
def test_fixed_tables_stay_fixed_through_training_and_freezing(make):
    x = keras.Input((LENGTH, WIDTH))
    layer = make()
    model = keras.Model(x, layer(x))
    layer.trainable = False
    layer.trainable = True
    assert layer.alignment.trainable_weights == []
    before = layer.alignment.get_weights()
    kernel = layer.value_dense.kernel.numpy()
    model.compile("sgd", "mse", jit_compile=False)
    model.train_on_batch(inputs(), inputs(seed=8))
    assert np.abs(layer.value_dense.kernel - kernel).max() > 0
    for weight, expected in zip(layer.alignment.weights, before, strict=True):
        np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize("make", FIXED.values(), ids=FIXED)
def test_fixed_tables_are_saved_and_restored(make, tmp_path):
    path, x = tmp_path / "model.keras", keras.Input((LENGTH, WIDTH))
    model = keras.Model(x, make()(x))
    model.save(path)
    restored = keras.saving.load_model(path)
    close(restored(inputs()), model(inputs()), 0)
    assert restored.layers[1].alignment.trainable_weights == []


@pytest.mark.parametrize("trainable", [True, False])
def test_only_trained_tables_are_regularized(trainable):
    layer = alignments.RandomAlignment(
        HEADS, 3, trainable, alignment_regularizer=keras.regularizers.L2(0.5)
    )
    layer.build((None, None, WIDTH))
    expected = [0.5 * np.sum(np.square(layer.table))] if trainable else []
    np.testing.assert_allclose(layer.losses, expected, rtol=1e-5)


# How weights start.

SEEDS = {"no seed": lambda: None, "int": lambda: 7, "generator": lambda: keras.random.SeedGenerator(7)}
seeds = pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)


def different(*weights):
    weights = [np.asarray(weight).ravel() for weight in weights]
    return all(np.abs(a - b).max() > 1e-3 for i, a in enumerate(weights) for b in weights[:i])


@seeds
def test_factors_and_heads_start_different(seed):
    initializer = keras.initializers.RandomNormal(seed=seed())
    layer = alignments.FactorizedRandomAlignment(3, 5, rank=4, alignment_initializer=initializer)
    layer.build((None, None, WIDTH))
    assert different(layer.query_factor, layer.key_factor)
    assert different(*np.asarray(layer.query_factor), *np.asarray(layer.key_factor))


@seeds
def test_heads_of_a_table_start_different(seed):
    initializer = keras.initializers.RandomNormal(seed=seed())
    layer = alignments.RandomAlignment(3, 5, alignment_initializer=initializer)
    layer.build((None, None, WIDTH))
    assert different(*np.asarray(layer.table))


def test_tables_start_different_by_default():
    layer = alignments.FactorizedRandomAlignment(3, 5)
    layer.build((None, None, WIDTH))
    assert different(*np.asarray(layer.query_factor), *np.asarray(layer.key_factor))


@seeds
def test_queries_keys_and_values_start_different(seed):
    initializer = keras.initializers.GlorotUniform(seed=seed())
    layer = layers.DotProductAttention(HEADS, KEY_DIM, kernel_initializer=initializer)
    layer.build((None, None, WIDTH))
    kernels = (
        layer.alignment.query_dense.kernel,
        layer.alignment.key_dense.kernel,
        layer.value_dense.kernel,
    )
    assert different(*kernels)
    for kernel in kernels:
        assert different(*np.moveaxis(np.asarray(kernel), 1, 0))


@seeds
def test_parts_of_a_mixture_start_different(seed):
    initializer = keras.initializers.GlorotUniform(seed=seed())
    layer = layers.SyntheticAttention(
        HEADS, KEY_DIM, "dot_product+dot_product", kernel_initializer=initializer
    )
    layer.build((None, None, WIDTH))
    assert different(*(part.query_dense.kernel for part in layer.alignment.alignments))


def test_the_same_integer_seed_draws_the_same_layer_again():
    def weights():
        layer = layers.SyntheticAttention(
            HEADS, KEY_DIM, "dense", max_length=N, kernel_initializer=keras.initializers.HeNormal(seed=7)
        )
        layer.build((None, None, WIDTH))
        return layer.get_weights()

    for first, second in zip(weights(), weights(), strict=True):
        np.testing.assert_array_equal(first, second)


WIDE, WIDE_HEADS, WIDE_DIM, WIDE_LENGTH = 96, 4, 32, 64


def wide(name, **kwargs):
    random.seed(1)
    layer = layers.SyntheticAttention(WIDE_HEADS, WIDE_DIM, name, max_length=WIDE_LENGTH, **kwargs)
    layer.build((None, None, WIDE))
    return layer


def assert_glorot(kernel, fan_in, fan_out):
    np.testing.assert_allclose(np.std(kernel), np.sqrt(2 / (fan_in + fan_out)), rtol=0.05)


def test_projections_have_the_glorot_scale_of_the_matrix_they_are():
    layer, inner = wide("dot_product"), WIDE_HEADS * WIDE_DIM
    assert_glorot(layer.alignment.query_dense.kernel, WIDE, inner)
    assert_glorot(layer.alignment.key_dense.kernel, WIDE, inner)
    assert_glorot(layer.value_dense.kernel, WIDE, inner)
    assert_glorot(layer.output_dense.kernel, inner, WIDE)


def test_dense_alignments_have_the_glorot_scale_of_each_head():
    assert_glorot(wide("dense").alignment.logits_kernel, WIDE_DIM, WIDE_LENGTH)
    assert_glorot(wide("dense").alignment.hidden_dense.kernel, WIDE, WIDE_HEADS * WIDE_DIM)
    assert_glorot(wide("factorized_dense").alignment.tiled_kernel, WIDE_DIM, 8)


def test_tables_have_the_scale_of_each_head():
    layer = alignments.RandomAlignment(8, WIDE_LENGTH, alignment_initializer="glorot_uniform")
    layer.build((None, None, WIDE))
    assert_glorot(layer.table, WIDE_LENGTH, WIDE_LENGTH)


@pytest.mark.parametrize(
    "name, stddev", [("random", 0.1), ("factorized_random", 0.1), ("fixed_random", 1.0)]
)
def test_logits_of_tables_start_with_the_measured_standard_deviation(name, stddev):
    logits = wide(name).alignment(inputs(length=WIDE_LENGTH, width=WIDE))
    np.testing.assert_allclose(np.std(logits), stddev, rtol=0.05)
