"""The baselines, against NumPy, and in the places where a synthesizer could stand."""

import json

import keras
import numpy as np
import pytest
from helpers import (
    BATCH,
    HEADS,
    KEY_DIM,
    LENGTH,
    WIDTH,
    check_causality,
    close,
    normal,
    outputs_and_gradients,
    randomize,
)
from helpers import PADDING as MASK
from oracle import sigmoid, softmax, weights_of

from keras_synth import layers
from keras_synth.layers import SynthesizerDecoder, SynthesizerEncoder
from keras_synth.layers.baselines import DynamicConvolution, LightweightConvolution, LinearAttention

MAX_LENGTH = 13
CONVOLUTIONS = ("lightweight_convolution", "dynamic_convolution")
NAMES = (*CONVOLUTIONS, "linear")


def unbuilt(name, dtype="float64", **kwargs):
    cls, arguments = {
        "lightweight_convolution": (LightweightConvolution, {"kernel_size": 4}),
        "dynamic_convolution": (DynamicConvolution, {"kernel_size": 4}),
        "linear": (LinearAttention, {"max_length": MAX_LENGTH, "rank": 3}),
    }[name]
    return cls(HEADS, KEY_DIM, dtype=dtype, **{**arguments, **kwargs})


def make(name, dtype="float64", **kwargs):
    layer = unbuilt(name, dtype, **kwargs)
    layer.build((None, None, WIDTH))
    return randomize(layer, seed=7)


def expected_output(name, layer, x, mask=None, causal=False):
    """The formulas of the docstrings, token by token and head by head; and the weights of the values."""
    w = weights_of(layer)
    batch, length, _ = x.shape
    mask = np.ones((batch, length), bool) if mask is None else mask

    def dense(inputs, name):
        return np.einsum("btd,dhv->bthv", inputs, w[f"{name}/kernel"]) + w[f"{name}/bias"]

    values = dense(x, "value")
    if name in CONVOLUTIONS:
        values = values * sigmoid(dense(x, "gate"))
    values = values * mask[:, :, None, None]
    scores = np.zeros((batch, HEADS, length, length))
    for b, h, t in np.ndindex(batch, HEADS, length):
        if name == "linear":
            keys = (dense(x, "key") * mask[:, :, None, None])[b, :, h]
            keys = w["key_lengths"][h, :length].T @ keys
            query = dense(x, "query")[b, t, h]
            scores[b, h, t] = softmax(keys @ query / np.sqrt(KEY_DIM)) @ w["value_lengths"][h, :length].T
            continue
        kernel = w["kernel"][h]
        if name == "dynamic_convolution":
            kernel = np.einsum("gv,gvk->k", values[b, t], w["kernel"][:, :, h])
        left = layer.kernel_size - 1 if causal else (layer.kernel_size - 1) // 2
        for tap, weight in enumerate(softmax(kernel)):
            if 0 <= t - left + tap < length:
                scores[b, h, t, t - left + tap] = weight
    scores = scores * mask[:, None, None, :] * mask[:, None, :, None]
    mixed = np.einsum("bhts,bshv->bthv", scores, values)
    return np.einsum("bthv,hvd->btd", mixed, w["attention_output/kernel"]) + w[
        "attention_output/bias"
    ], scores


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, LENGTH, MAX_LENGTH])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_scores_equal_the_formula(name, length, causal, masked):
    if name == "linear" and causal:
        return
    layer, x = make(name), normal(BATCH, length, WIDTH)
    mask = np.arange(length) < np.array([[length], [3], [0]]) if masked else None
    output, scores = layer(
        x, query_mask=mask, value_mask=mask, use_causal_mask=causal, return_attention_scores=True
    )
    expected = expected_output(name, layer, x, mask, causal)
    close(output, expected[0])
    close(scores, expected[1])


@pytest.mark.parametrize("kernel_size", [2, 3, 9])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_any_window_fits(name, kernel_size):
    layer, x = make(name, kernel_size=kernel_size), normal(BATCH, LENGTH, WIDTH)
    for causal in (False, True):
        close(layer(x, use_causal_mask=causal), expected_output(name, layer, x, causal=causal)[0])


@pytest.mark.parametrize(
    "name, kernels, biases",
    [
        ("lightweight_convolution", 3 * 7 * 22 + 2 * 4, 2 * 22 + 7),
        ("dynamic_convolution", 3 * 7 * 22 + 22 * 2 * 4, 2 * 22 + 7),
        ("linear", 4 * 7 * 22 + 2 * 2 * 13 * 3, 3 * 22 + 7),
    ],
)
def test_parameters_are_as_many_as_documented(name, kernels, biases):
    assert make(name).count_params() == kernels + biases
    assert make(name, use_bias=False).count_params() == kernels


@pytest.mark.parametrize("name", NAMES)
def test_the_content_of_padding_changes_nothing_however_it_is_masked(name):
    layer, x = make(name), normal(BATCH, LENGTH, WIDTH)
    expected = layer(x, query_mask=MASK, value_mask=MASK)
    changed = np.where(MASK[..., None], x, np.nan)
    close(layer(x, changed, query_mask=MASK, key_mask=MASK), expected)
    for mask in (MASK[:, None], MASK[:, None, None].astype("float32")):
        close(layer(x, changed, query_mask=MASK, attention_mask=mask), expected)

    inputs = keras.Input((None, WIDTH), dtype="float64")
    model = keras.Model(inputs, layer(keras.layers.Masking(dtype="float64")(inputs)))
    close(model(x * MASK[..., None]), expected)


@pytest.mark.parametrize("name", NAMES)
def test_padding_to_a_longer_length_changes_nothing(name):
    layer, x = make(name), normal(BATCH, LENGTH, WIDTH)
    longer = np.concatenate([x, normal(BATCH, 3, WIDTH)], axis=1)
    mask = np.pad(MASK, [(0, 0), (0, 3)])
    close(
        layer(longer, query_mask=mask, value_mask=mask)[:, :LENGTH],
        layer(x, query_mask=MASK, value_mask=MASK),
    )


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_causal_convolutions_do_not_see_the_future(name):
    check_causality(make(name), normal(BATCH, LENGTH, WIDTH))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_decoding_with_a_cache_equals_the_full_pass(name):
    layer, x = make(name), normal(BATCH, LENGTH, WIDTH)
    expected, scores = layer(x, use_causal_mask=True, return_attention_scores=True)
    cache = layer.init_cache(BATCH, LENGTH + 2)
    for start, stop in [(0, 2), (2, 3), (3, 5)]:
        row, row_scores, cache = layer(
            x[:, start:stop],
            use_causal_mask=True,
            return_attention_scores=True,
            cache=cache,
            cache_update_index=np.int32(start),
        )
        close(row, expected[:, start:stop])
        close(row_scores[..., :LENGTH], scores[:, :, start:stop])


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_decoder_blocks_decode_with_a_cache(name):
    block = SynthesizerDecoder(9, HEADS, attention=name, dtype="float64")
    x = normal(BATCH, LENGTH, 6)
    expected, cache = block(x), block.init_cache(BATCH, LENGTH)[0]
    for t in range(LENGTH):
        row, cache = block(x[:, t : t + 1], self_attention_cache=cache, self_attention_cache_update_index=t)
        close(row, expected[:, t : t + 1])


def test_linear_attention_takes_values_of_another_length():
    layer, x = make("linear"), normal(BATCH, LENGTH, WIDTH)
    assert layer(x, normal(BATCH, 11, WIDTH)).shape == (BATCH, LENGTH, WIDTH)


def test_linear_attention_cannot_be_causal():
    with pytest.raises(ValueError, match="LinearAttention .* cannot be causal.* use_causal_mask=True"):
        make("linear")(normal(BATCH, LENGTH, WIDTH), use_causal_mask=True)


def test_linear_attention_cannot_decode_with_a_cache():
    with pytest.raises(ValueError, match="LinearAttention .* cannot decode with a cache"):
        make("linear").init_cache(BATCH, LENGTH)


def test_a_sequence_longer_than_max_length_is_an_error():
    with pytest.raises(ValueError, match="max_length=13 .* length 14"):
        make("linear")(normal(BATCH, 14, WIDTH))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_take_no_values_of_another_length(name):
    x = normal(BATCH, LENGTH, WIDTH)
    with pytest.raises(ValueError, match="query of length 5, value of length 4"):
        make(name)(x, x[:, :4])


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_of_the_wrong_shape_is_an_error(name):
    with pytest.raises(ValueError, match=r"`value_mask` of .* shape \(3, 5\).*shape \(3, 4\)"):
        make(name)(normal(BATCH, LENGTH, WIDTH), value_mask=MASK[:, :4])


@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5), (3, 2, 5, 5)])
@pytest.mark.parametrize("name", NAMES)
def test_an_attention_mask_can_only_hide_padding(name, shape):
    with pytest.raises(ValueError, match=r"can only hide padding: .*\(batch, 1, S\)"):
        make(name)(normal(BATCH, LENGTH, WIDTH), attention_mask=np.ones(shape, bool))


@pytest.mark.parametrize(
    "name, argument, allowed",
    [
        *((name, "dropout", "") for name in NAMES),
        ("linear", "rank", "positive integer.*"),
        ("linear", "max_length", "positive integer.*"),
        *((name, "kernel_size", "positive integer.*") for name in CONVOLUTIONS),
    ],
)
def test_a_wrong_argument_is_an_error(name, argument, allowed):
    value = 1 if argument == "dropout" else 0
    with pytest.raises(ValueError, match=f"`{argument}` of .*{allowed}Received.*{argument}={value}"):
        unbuilt(name, **{argument: value})


def test_by_name_linear_attention_needs_max_length():
    with pytest.raises(ValueError, match="max_length.* must be a positive integer"):
        SynthesizerEncoder(9, 2, attention="linear")


@pytest.mark.parametrize("as_config", [False, True])
def test_a_baseline_must_have_the_heads_of_the_block(as_config):
    layer = unbuilt("dynamic_convolution")
    attention = keras.saving.serialize_keras_object(layer) if as_config else layer
    with pytest.raises(ValueError, match="num_heads=2, but the attention has num_heads=3"):
        SynthesizerEncoder(9, 3, attention=attention)


def test_a_decoder_block_refuses_linear_attention():
    block = SynthesizerDecoder(9, 2, attention="linear", max_length=MAX_LENGTH)
    with pytest.raises(ValueError, match="cannot be causal"):
        block(normal(BATCH, LENGTH, 6))


def linear_as(form):
    layer = unbuilt("linear")
    return {"name": "linear", "layer": layer, "config": keras.saving.serialize_keras_object(layer)}[form]


@pytest.mark.parametrize("form", ["name", "layer", "config"])
def test_the_check_refuses_linear_attention_where_it_would_be_causal(form):
    layers.check_attention(linear_as(form), HEADS, MAX_LENGTH)
    with pytest.raises(ValueError, match="LinearAttention cannot be causal"):
        layers.check_attention(linear_as(form), HEADS, MAX_LENGTH, use_causal_mask=True)


@pytest.mark.parametrize("name", [name for name in layers.ATTENTIONS if name != "linear"])
def test_all_others_can_be_causal(name):
    layers.check_attention(name, HEADS, MAX_LENGTH, use_causal_mask=True)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_drops_weights_only_in_training(name):
    layer, x = make(name, dropout=0.5, seed=3), normal(BATCH, LENGTH, WIDTH)
    once, twice = layer(x, training=True), layer(x, training=True)
    assert not np.allclose(once, twice)
    close(layer(x), expected_output(name, layer, x)[0])
    again = make(name, dropout=0.5, seed=3)
    close(again(x, training=True), once)


@pytest.mark.parametrize("name", NAMES)
def test_the_config_is_complete_and_comes_back(name):
    layer = unbuilt(name, dropout=0.25, seed=5, use_bias=False, kernel_initializer="he_normal")
    config = layer.get_config()
    assert json.loads(json.dumps(config))["dropout"] == 0.25
    assert type(layer).from_config(config).get_config() == config


@pytest.mark.parametrize("spec", [*NAMES, "layer"])
def test_a_comparison_is_one_argument(spec, tmp_path):
    attention = LightweightConvolution(2, 3, kernel_size=3) if spec == "layer" else spec
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(17, 6, mask_zero=True)(inputs)
    for _ in range(2):  # blocks, each with a copy of its own
        x = SynthesizerEncoder(9, 2, attention=attention, max_length=MAX_LENGTH)(x)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x))
    assert model.layers[2].self_attention is not model.layers[3].self_attention
    model.compile("sgd", "mse", jit_compile=False)
    tokens = np.random.default_rng(0).integers(0, 17, (8, 5))
    model.fit(tokens, np.zeros((8, 6)), verbose=0, batch_size=4)
    model.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras")(tokens), model(tokens), 1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_dtype_policies_are_honoured(name, policy):
    layer, x = make(name, policy), normal(BATCH, LENGTH, WIDTH)
    output = layer(x, query_mask=MASK, value_mask=MASK)
    assert output.dtype == keras.DTypePolicy(policy).compute_dtype
    expected, _ = expected_output(name, make(name), x, MASK)
    close(np.asarray(output, "float32"), expected, 0.05 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_all_padding_has_finite_gradients(name):
    layer, x = make(name), normal(BATCH, LENGTH, WIDTH)
    _, gradients = outputs_and_gradients(layer, x, query_mask=MASK, value_mask=MASK)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", NAMES)
def test_xla_gives_the_same(name):
    import tensorflow as tf

    layer, x = make(name), tf.constant(normal(BATCH, LENGTH, WIDTH))

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, value_mask=MASK, use_causal_mask=name != "linear")
            loss = tf.reduce_sum(output**2)
        return output, tape.gradient(loss, x)

    for actual, expected in zip(tf.function(gradient, jit_compile=True)(x), gradient(x), strict=True):
        close(actual, expected, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_could_start_equal_do_not(name):
    layer = unbuilt(name, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
    layer.build((None, None, WIDTH))
    kernels = [np.asarray(w) for w in layer.weights if "bias" not in w.path]
    for i, kernel in enumerate(kernels):
        assert not any(k.shape == kernel.shape and np.allclose(k, kernel) for k in kernels[:i])


def test_baselines_are_no_synthesizers():
    assert not any(isinstance(unbuilt(name), layers.SyntheticAttention) for name in NAMES)
