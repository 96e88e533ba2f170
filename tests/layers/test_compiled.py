"""Unknown sizes, tf.function and XLA."""

import random

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
from helpers import ALL, BATCH, HEADS, LENGTH, MAX_LENGTH, PADDING, WIDTH, attention, close, inputs

from keras_synth import alignments, layers

COMPILED = ["random", "factorized_random", "dense", "factorized_dense", "dot_product", "nested"]


@pytest.mark.parametrize("name", ALL)
def test_batch_and_length_may_be_unknown(name):
    layer, x = attention(name), keras.Input((None, WIDTH), dtype="float64")
    output, scores = layer(x, return_attention_scores=True, use_causal_mask=True)
    assert output.shape == (None, None, WIDTH)
    assert scores.shape == (None, HEADS, None, None)
    model = keras.Model(x, [output, scores])
    for batch, length in [(1, 16), (4, 5), (2, 9)]:
        x = inputs(batch, length)
        for actual, expected in zip(
            model(x), oracle.attention(layer, x, use_causal_mask=True), strict=True
        ):
            close(actual, expected)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ALL)
def test_one_traced_function_serves_every_length(name):
    layer, traces = attention(name), []

    @tf.function(input_signature=[tf.TensorSpec((None, None, WIDTH), "float64")])
    def function(x):
        traces.append(x)
        return layer(x, use_causal_mask=True)

    for length in (16, 5, 9):
        x = inputs(length=length)
        expected, _ = oracle.attention(layer, x, use_causal_mask=True)
        close(function(x), expected)
        close(layer(x, use_causal_mask=True), expected)
    assert len(traces) == 1


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", [name for name in ALL if name != "dot_product"])
def test_a_traced_function_refuses_a_sequence_longer_than_max_length(name):
    layer = attention(name)
    function = tf.function(layer, input_signature=[tf.TensorSpec((None, None, WIDTH), "float64")])
    with pytest.raises(tf.errors.InvalidArgumentError):
        function(inputs(length=MAX_LENGTH + 1))


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", COMPILED)
def test_xla_computes_the_same_outputs_and_gradients(name):
    layer, x = attention(name, dtype="float32"), inputs(dtype="float32")

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, query_mask=PADDING, value_mask=PADDING, use_causal_mask=True)
            loss = tf.reduce_sum(output**2)
        return output, tape.gradient(loss, [x, *layer.trainable_weights])

    expected = tf.nest.flatten(step(tf.constant(x)))
    actual = tf.nest.flatten(tf.function(step, jit_compile=True)(tf.constant(x)))
    for result, expected_result in zip(actual, expected, strict=True):
        close(result, expected_result, 1e-4)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("name", COMPILED)
def test_cached_steps_compile_with_an_index_that_is_a_tensor(name, jit_compile):
    layer, x = attention(name), tf.constant(inputs())

    @tf.function(jit_compile=jit_compile)
    def step(token, cache, index):
        return layer(token, cache=cache, cache_update_index=index, use_causal_mask=True)

    cache, expected = layer.init_cache(BATCH, LENGTH), layer(x, use_causal_mask=True)
    for index in range(LENGTH):
        output, cache = step(x[:, index : index + 1], cache, tf.constant(index))
        close(output, expected[:, index : index + 1])
    assert step.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("masks", [{}, {"value_mask": PADDING[:0]}, {"attention_mask": np.ones((0, 5, 5))}])
@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_gives_an_empty_output(name, masks):
    assert attention(name)(inputs(batch=0), **masks).shape == (0, LENGTH, WIDTH)


def test_a_model_with_xla_and_dropout_fits_batches_of_different_lengths():
    random.seed(1)
    x = keras.Input((None, 14))
    y = layers.SynthesizerDecoder(13, HEADS, "random+dense+dot_product", max_length=16, dropout=0.1)(x)
    model = keras.Model(x, keras.layers.Dense(1)(y))
    model.compile("sgd", "mse", jit_compile=True)
    assert model.jit_compile
    for length in (5, 16):
        data = inputs(length=length, width=14, dtype="float32")
        assert np.isfinite(model.train_on_batch(data, np.zeros((BATCH, length, 1))))
        close(model.predict_on_batch(data), model(data), 1e-4)


@pytest.mark.parametrize("block", [layers.SynthesizerEncoder, layers.SynthesizerDecoder])
def test_blocks_keep_what_is_known_of_a_shape(block):
    layer = block(11, HEADS, max_length=MAX_LENGTH)
    assert layer(keras.Input((None, 14))).shape == (None, None, 14)


@pytest.mark.parametrize("shape", [(None, None, 14), (BATCH, LENGTH, 14)])
@pytest.mark.parametrize(
    "layer, width",
    [
        (layers.RandomSynthesizer(HEADS, 11, MAX_LENGTH), 14),
        (layers.DenseSynthesizer(HEADS, 11, MAX_LENGTH, output_shape=23), 23),
        (layers.SynthesizerEncoder(11, HEADS, max_length=MAX_LENGTH), 14),
        (layers.SynthesizerDecoder(11, HEADS, max_length=MAX_LENGTH), 14),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_compute_output_shape_agrees_with_the_output(layer, width, shape):
    assert layer.compute_output_shape(shape) == (*shape[:2], width)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", [name for name in alignments.NAMES if "pattern" not in name])
def test_xla_refuses_a_sequence_longer_than_max_length(name):
    x = keras.Input((None, WIDTH))
    layer = layers.SyntheticAttention(HEADS, 3, name, max_length=12)
    model = keras.Model(x, layer(x))
    model.compile(jit_compile=True)
    for length in (8, 11):
        assert model.predict(inputs(length=length), verbose=0).shape == (BATCH, length, WIDTH)
    if layer.max_length is not None:
        with pytest.raises(tf.errors.InvalidArgumentError, match="12"):
            model.predict(inputs(length=13), verbose=0)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", [*alignments.NAMES, "random+dot_product"])
@pytest.mark.parametrize("causal", [False, True])
def test_an_empty_batch_has_gradients(name, causal):
    layer, x = attention(name), tf.constant(inputs(batch=0))

    def compute(**masks):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, use_causal_mask=causal, **masks))
        return tape.gradient(loss, [weight.value for weight in layer.trainable_weights])

    padding = {"query_mask": np.ones((0, LENGTH), bool), "value_mask": np.ones((0, LENGTH), bool)}
    for masks in ({}, padding):
        for gradient in [*compute(**masks), *tf.function(compute)(**masks)]:
            assert not np.any(gradient)
