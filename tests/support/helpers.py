"""Sizes, all different primes where they can be, and layers of these sizes with weights drawn at random."""

import keras
import numpy as np
from keras import ops

from keras_synth import alignments, layers

BATCH, LENGTH, WIDTH, HEADS, KEY_DIM, VALUE_DIM = 3, 5, 7, 2, 11, 13
MAX_LENGTH = 34  # 2 * 17, for the factors of the factorized dense alignment

SHARED = ("random", "fixed_random", "factorized_random", "random+factorized_random")
ALL = (
    "random",
    "fixed_random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "dot_product",
    "random+factorized_random",
    "random+dot_product",
    "factorized_random+dense+dot_product",
    "nested",
)

#: Everything is there; a hole and the end are not; nothing is.
PADDING = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], dtype=bool)

#: On JAX, the result type of float64 and float32 in Keras is float32.
TOLERANCE = 1e-10 if keras.backend.backend() == "tensorflow" else 1e-5


def normal(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def inputs(batch=BATCH, length=LENGTH, width=WIDTH, seed=1, dtype="float64"):
    return normal(batch, length, width, seed=seed, dtype=dtype)


def random_mask(*shape, seed=0):
    return np.random.default_rng(seed).random(shape) < 0.6


def randomize(layer, seed=2, scale=0.5):
    """Gives every weight new numbers, so that no bias or mixture weight stays at its neutral start."""
    for number, weight in enumerate(layer.weights):
        weight.assign(scale * normal(*weight.shape, seed=(seed, number)))
    return layer


def alignment(name, dtype="float64", max_length=MAX_LENGTH, built=True):
    if name == "nested":
        parts = ("factorized_dense+random", "dot_product", "factorized_random")
        layer = alignments.MixtureAlignment(
            [alignment(part, dtype, max_length, built=False) for part in parts], dtype=dtype
        )
    else:
        layer = alignments.get(name, HEADS, KEY_DIM, max_length, dtype=dtype)
    if built:
        layer.build((None, None, WIDTH))
        randomize(layer)
    return layer


def attention(name, dtype="float64", max_length=MAX_LENGTH, **kwargs):
    layer = layers.SyntheticAttention(
        HEADS,
        KEY_DIM,
        alignment(name, dtype, max_length, built=False),
        **{"value_dim": VALUE_DIM, "dtype": dtype, **kwargs},
    )
    layer.build((None, None, WIDTH))
    return randomize(layer)


def outputs_and_gradients(layer, x, **arguments):
    """What a layer makes of `x`, and gradients of a loss whose own is of size one in every output.

    The gradients are those of `x` and of `layer.trainable_weights`.
    """
    x = ops.convert_to_tensor(x, layer.compute_dtype)

    def call(x):
        outputs = layer(x, **arguments)
        output = ops.cast(outputs[0] if isinstance(outputs, tuple) else outputs, "float64")
        factors = ops.convert_to_tensor(normal(*output.shape, seed=8))
        return ops.sum(output * factors), outputs

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            loss, outputs = call(x)
        return outputs, tape.gradient(loss, [x, *layer.trainable_weights])

    if keras.backend.backend() == "torch":
        import torch

        with torch.enable_grad():
            loss, outputs = call(x.requires_grad_(True))
        weights = [weight.value for weight in layer.trainable_weights]
        gradients = torch.autograd.grad(loss, [x, *weights], allow_unused=True)
        return keras.tree.map_structure(torch.Tensor.detach, outputs), list(gradients)

    import jax

    def call_with(x, weights):
        with keras.StatelessScope(list(zip(layer.trainable_weights, weights, strict=True))):
            return call(x)

    weights = [weight.value for weight in layer.trainable_weights]
    gradients, outputs = jax.grad(call_with, argnums=(0, 1), has_aux=True)(x, weights)
    return outputs, [gradients[0], *gradients[1]]


def check_causality(layer, x):
    """That no output of a layer changes with the tokens after it."""
    whole = layer(x, use_causal_mask=True)
    for length in range(1, x.shape[1]):
        other = normal(x.shape[0], 4, x.shape[2], seed=5)
        changed = np.concatenate([x[:, :length], other], axis=1)
        close(layer(changed, use_causal_mask=True)[:, :length], whole[:, :length])


def close(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), tolerance, tolerance)
