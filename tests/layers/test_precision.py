"""Dtype policies, and gradients where there is nothing to attend to."""

import random

import keras
import numpy as np
import pytest
from helpers import ALL, BATCH, LENGTH, PADDING, WIDTH, attention, inputs, outputs_and_gradients

from keras_synth import layers

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
    random.seed(1)
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(11, 14, mask_zero=True, dtype=policy)(ids)
    x = layers.SynthesizerEncoder(13, 2, max_length=LENGTH, dropout=0.1, dtype=policy)(x)
    x = keras.layers.GlobalAveragePooling1D(dtype=policy)(x)
    model = keras.Model(ids, keras.layers.Dense(1, dtype="float32")(x))
    model.compile("sgd", "mse", jit_compile=False)
    data = np.random.default_rng(1).integers(0, 3, size=(BATCH, LENGTH))
    history = model.fit(data, np.ones((BATCH, 1)), epochs=5, verbose=0).history["loss"]
    assert np.all(np.isfinite(history)) and history[-1] < history[0]
