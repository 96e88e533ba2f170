"""Derivatives of every kind: of second order, forwards, for each example by itself, compiled."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import BATCH, LENGTH, PADDING, WIDTH, attention, close, inputs, normal

pytestmark = pytest.mark.tensorflow

NAMES = ["random", "factorized_random", "random+dot_product", "dense", "factorized_dense", "dot_product"]
MASKS = {
    "padding": {"query_mask": PADDING, "value_mask": PADDING},
    "causal, padding": {"query_mask": PADDING, "value_mask": PADDING, "use_causal_mask": True},
}
masks = pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
COMPILERS = {
    "eager": lambda f: f,
    "function": tf.function,
    "XLA": lambda f: tf.function(f, jit_compile=True),
}


def compute_loss(layer, x, **masks):
    return tf.reduce_sum(tf.sin(layer(x, **masks)) * normal(*x.shape, seed=3))


def compute_gradients(layer, x, **masks):
    weights = [weight.value for weight in layer.trainable_weights]
    with tf.GradientTape() as tape:
        loss = compute_loss(layer, x, **masks)
    return tape.gradient(loss, weights)


@pytest.mark.parametrize(
    "name, compiler",
    [(name, "eager") for name in NAMES]
    + [(name, compiler) for name in ("random", "dense", "convolution") for compiler in ("function", "XLA")],
)
@masks
def test_hessian_vector_products_are_those_of_central_differences(name, compiler, masks):
    layer, x = attention(name), tf.constant(inputs())
    values = [weight.numpy() for weight in layer.trainable_weights]
    directions = [normal(*value.shape, seed=(4, i)) for i, value in enumerate(values)]

    def multiply_by_hessian():
        with tf.GradientTape() as tape:
            gradients = compute_gradients(layer, x, **masks)
            along = sum(tf.reduce_sum(g * d) for g, d in zip(gradients, directions, strict=True))
        return tape.gradient(
            along, [weight.value for weight in layer.trainable_weights], unconnected_gradients="zero"
        )

    def compute_gradients_at(step):
        for weight, value, direction in zip(layer.trainable_weights, values, directions, strict=True):
            weight.assign(value + step * direction)
        return compute_gradients(layer, x, **masks)

    products = COMPILERS[compiler](multiply_by_hessian)()
    ahead, behind = compute_gradients_at(1e-5), compute_gradients_at(-1e-5)
    for product, after, before in zip(products, ahead, behind, strict=True):
        np.testing.assert_allclose(product, (after - before) / 2e-5, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiler", ["function", "XLA"])
@pytest.mark.parametrize("name", ["random", "random+dot_product", "convolution"])
@masks
def test_forward_mode_gives_directional_derivatives(name, compiler, masks):
    layer, x, direction = attention(name), tf.constant(inputs()), tf.constant(inputs(seed=6))

    def differentiate(x, direction):
        with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
            y = layer(x, **masks)
        return accumulator.jvp(y)

    expected = (layer(x + 1e-6 * direction, **masks) - layer(x - 1e-6 * direction, **masks)) / 2e-6
    derivative = COMPILERS[compiler](differentiate)(x, direction)
    np.testing.assert_allclose(derivative, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["random", "random+dot_product", "dense"])
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_each_example_by_a_vectorized_map(name, causal):
    layer, x = attention(name), tf.constant(inputs())

    def compute(example):
        x, mask = example
        masks = {"query_mask": mask[None], "value_mask": mask[None], "use_causal_mask": causal}
        return compute_gradients(layer, x[None], **masks)

    gradients = tf.vectorized_map(compute, (x, tf.constant(PADDING)))
    for i in range(BATCH):
        for gradient, expected in zip(gradients, compute((x[i], PADDING[i])), strict=True):
            close(gradient[i], expected)


@pytest.mark.parametrize("name", ["random", "dense", "dot_product"])
def test_xla_differentiates_a_sequence_of_one_token_of_an_unknown_number(name):
    layer = attention(name)
    signature = [tf.TensorSpec((None, None, WIDTH), "float64"), tf.TensorSpec((None, None), "bool")]

    @tf.function(jit_compile=True, input_signature=signature)
    def compute(x, mask):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(layer(x, query_mask=mask, value_mask=mask)))
        return tape.gradient(loss, [weight.value for weight in layer.trainable_weights])

    for length in (LENGTH, 1):
        x, mask = tf.constant(inputs(length=length)), tf.constant(PADDING[:, :length])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(layer(x, query_mask=mask, value_mask=mask)))
        expected = tape.gradient(loss, [weight.value for weight in layer.trainable_weights])
        for gradient, expected_gradient in zip(compute(x, mask), expected, strict=True):
            close(gradient, expected_gradient)
