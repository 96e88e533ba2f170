"""Dtype policies, and gradients where there is nothing to attend to."""

import random
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import ALL, BATCH, LENGTH, PADDING, WIDTH, attention, inputs, normal, outputs_and_gradients
from keras import ops

from keras_synth import alignments, layers

MASKS = {
    "padding, causal": {"query_mask": PADDING, "value_mask": PADDING, "use_causal_mask": True},
    "(B, T, S)": {"attention_mask": np.broadcast_to(PADDING[:, None], (BATCH, LENGTH, LENGTH))},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize(
    "policy, tolerance", [("mixed_float16", 0.02), ("mixed_bfloat16", 0.1), ("float16", 0.02)]
)
@pytest.mark.parametrize("name", ALL)
def test_low_precision_is_finite_and_near_float32(name, policy, tolerance, masks):
    layer = attention(name, dtype=policy)
    masks = {**masks, "return_attention_scores": True}
    (output, scores), gradients = outputs_and_gradients(layer, inputs(), **masks)
    assert output.dtype == scores.dtype == layer.compute_dtype
    assert all(np.all(np.isfinite(np.asarray(g, "float32"))) for g in gradients)
    expected, expected_scores = attention(name, dtype="float32")(inputs(), **masks)
    np.testing.assert_allclose(np.asarray(output, "float32"), expected, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(np.asarray(scores, "float32"), expected_scores, atol=tolerance)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("name", ["random", "dot_product"])
def test_large_logits_under_a_mask_are_finite_in_low_precision(name, policy):
    layer = attention(name, dtype=policy)
    for weight in layer.alignment.weights:
        weight.assign(weight * (60 if name == "random" else 4))
    masks = {"query_mask": PADDING, "value_mask": PADDING}
    output, scores = layer(inputs(), return_attention_scores=True, **masks)
    assert np.all(np.isfinite(np.asarray(output, "float32")))
    sums = np.asarray(scores, "float32").sum(axis=-1)
    np.testing.assert_allclose(sums, np.broadcast_to(PADDING[:, None], sums.shape), atol=0.02)


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", ALL)
def test_gradients_are_finite_with_an_example_of_padding_alone(name, masks):
    masks = {**masks, "return_attention_scores": True}
    _, gradients = outputs_and_gradients(attention(name), inputs(), **masks)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    np.testing.assert_array_equal(gradients[0][2], np.zeros((LENGTH, WIDTH)))


@pytest.mark.parametrize("name", ALL)
def test_an_alignment_keeps_a_dtype_policy_of_its_own(name):
    pattern = attention(name, dtype="float32").alignment
    layer = layers.SyntheticAttention(
        pattern.num_heads, 5, keras.saving.serialize_keras_object(pattern), dtype="mixed_float16"
    )
    assert layer(inputs(dtype="float32"), value_mask=PADDING).dtype == "float16"
    assert layer.alignment.compute_dtype == "float32"


@pytest.mark.parametrize("block", [layers.SynthesizerEncoder, layers.SynthesizerDecoder])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "float64"])
def test_blocks_hand_their_policy_to_every_sublayer(block, policy):
    layer = block(11, 2, attention="random+dense+dot_product", max_length=LENGTH, dtype=policy)
    output = layer(inputs(width=14, dtype=layer.compute_dtype))
    assert output.dtype == layer.compute_dtype
    assert {sublayer.dtype_policy.name for sublayer in layer._flatten_layers()} == {policy}


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_model_trains_in_low_precision(policy):
    random.seed(2)  # the first loss is not small by chance
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(11, 14, mask_zero=True, dtype=policy)(ids)
    x = layers.SynthesizerEncoder(13, 2, max_length=LENGTH, dropout=0.1, dtype=policy)(x)
    x = keras.layers.GlobalAveragePooling1D(dtype=policy)(x)
    model = keras.Model(ids, keras.layers.Dense(1, dtype="float32")(x))
    model.compile("sgd", "mse", jit_compile=False)
    data = np.random.default_rng(1).integers(0, 3, size=(BATCH, LENGTH))
    history = model.fit(data, np.ones((BATCH, 1)), epochs=5, verbose=0).history["loss"]
    assert np.all(np.isfinite(history)) and history[-1] < history[0]


def gradients_by_weight(layer, x, upstream, **arguments):
    """The gradients of a layer's weights, by the ends of their paths."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(x, x, **arguments), "float64") * upstream)
    weights = {weight.path.split("/", 1)[1]: weight.value for weight in layer.trainable_weights}
    weights = {re.sub(r"_\d+/", "/", path): value for path, value in weights.items()}
    return tape.gradient(loss, weights)


@pytest.mark.tensorflow
@pytest.mark.parametrize("key_bias", [0.1, 1.0])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["dot_product", "random", "dense", "random+dot_product"])
def test_gradients_in_bfloat16_add_up_exactly(name, padded, key_bias):
    """As many tokens as bfloat16 cannot count, values that have most in common, and so have keys."""
    batch, length, width = 8, 128, 16
    x, upstream = normal(batch, length, width, seed=1), normal(batch, length, width, seed=2)
    mask = np.arange(length) < np.linspace(40, length, batch)[:, None]
    arguments = {"query_mask": mask, "value_mask": mask} if padded else {}
    found = []
    for dtype in ("float64", "mixed_bfloat16"):
        layer = layers.SyntheticAttention(2, 8, name, max_length=length, dtype=dtype, name="attention")
        layer.build((None, None, width))
        for number, weight in enumerate(layer.weights):
            weight.assign(0.2 * normal(*weight.shape, seed=(3, number)))
        layer.value_dense.bias.assign(ops.full_like(layer.value_dense.bias, 3.0))
        for part in getattr(layer.alignment, "alignments", [layer.alignment]):
            if hasattr(part, "key_dense"):
                part.key_dense.bias.assign(ops.full_like(part.key_dense.bias, key_bias))
        x = tf.cast(x, "float64" if dtype == "float64" else "float32")
        found.append(gradients_by_weight(layer, x, upstream, **arguments))
    exact, rounded = ({name: np.asarray(g, "float64") for name, g in each.items()} for each in found)
    for name in exact:
        if not name.endswith("key/bias"):  # which changes nothing: its gradient is zero
            error = np.linalg.norm(rounded[name] - exact[name]) / np.linalg.norm(exact[name])
            assert error < (0.07 if "hidden" in name else 0.04), name


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "policy, large", [("mixed_float16", 3e3), ("mixed_bfloat16", 1e15), ("float32", 1e25)]
)
@pytest.mark.parametrize("name", [*ALL, "factorized_dense+random"])
def test_large_values_in_padding_change_nothing(name, policy, large):
    """Logits of what is hidden may be infinite, and not a number where two such are added."""
    layer, mask = (
        attention(name, dtype=policy),
        np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]),
    )
    x = inputs(dtype="float32")
    arguments = {"query_mask": mask, "value_mask": mask}
    expected, expected_gradients = outputs_and_gradients(layer, x * mask[..., None], **arguments)
    x[mask == 0] = large * np.sign(x[mask == 0])
    output, gradients = outputs_and_gradients(layer, x, **arguments)
    np.testing.assert_array_equal(output, expected)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(
            np.asarray(gradient, "float32"), np.asarray(expected_gradient, "float32"), rtol=0.05, atol=0.05
        )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float32"])
@pytest.mark.parametrize("name", [*alignments.NAMES, "random+dense+dot_product"])
def test_the_spec_of_outputs_is_that_of_a_call(name, policy):
    x = inputs(dtype="float32")
    alignment = alignments.get(name, 2, 3, 9, dtype=policy)
    attention = layers.SyntheticAttention(2, 3, alignments.get(name, 2, 3, 9, dtype=policy), dtype=policy)
    for layer in (alignment, attention):
        layer.build(x.shape)
        output = layer(x)
        spec = layer.compute_output_spec(keras.KerasTensor(x.shape, layer.compute_dtype))
        assert (spec.shape, spec.dtype) == (output.shape, keras.backend.standardize_dtype(output.dtype))
