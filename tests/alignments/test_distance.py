"""The alignments without a longest sequence, and the routed tables, against NumPy."""

import keras
import numpy as np
import pytest
from helpers import BATCH, HEADS, KEY_DIM, LENGTH, WIDTH, close, inputs, randomize
from oracle import head_rows, hidden_rows, softmax, weights_of, whole_mask

from keras_synth import alignments, layers

OUTSIDE = -30.0


def relative(w, distance, causal):
    return w["table"][:, np.clip(distance, -3, 3) + 3]


def kernels(w, distance, causal):
    apart = distance - w["offsets"][..., None, None]
    kernel = np.exp(-np.abs(w["sharpness"])[..., None, None] * apart**2)
    return (w["amplitudes"][..., None, None] * kernel).sum(axis=1)


def decay(w, distance, causal):
    return -np.exp(w["log_rate"])[:, None, None] * np.abs(distance)


def average(w, distance, causal):
    return np.zeros((HEADS, *distance.shape))


def inside(distance, size, causal):
    before = size - 1 if causal else (size - 1) // 2
    return (-before <= distance) & (distance < size - before)


def gaussian(w, distance, causal):
    logits = -((distance - w["offsets"][:, None, None]) ** 2) / (2 * 1.5**2)
    return np.where(inside(distance, 4, causal), logits, OUTSIDE)


DISTANCES = {
    "relative": (lambda **kw: alignments.RelativeAlignment(HEADS, max_distance=3, **kw), relative),
    "kernels": (lambda **kw: alignments.RelativeKernelAlignment(HEADS, num_kernels=3, **kw), kernels),
    "decay": (lambda **kw: alignments.DecayAlignment(HEADS, **kw), decay),
    "average": (lambda **kw: alignments.AverageAlignment(HEADS, **kw), average),
    "gaussian": (
        lambda **kw: alignments.GaussianAlignment(HEADS, stddev=1.5, window=4, **kw),
        gaussian,
    ),
}
LOCAL_DENSE = {
    "local_dense": lambda **kw: alignments.LocalDenseAlignment(HEADS, KEY_DIM, window=3, **kw),
    "even window": lambda **kw: alignments.LocalDenseAlignment(HEADS, KEY_DIM, window=4, **kw),
    "longer than the text": lambda **kw: alignments.LocalDenseAlignment(HEADS, KEY_DIM, window=23, **kw),
}
MAKE = {name: make for name, (make, _) in DISTANCES.items()} | LOCAL_DENSE


def build(name, dtype="float64"):
    layer = MAKE[name](dtype=dtype)
    layer.build((None, None, WIDTH))
    return randomize(layer)


def expected_logits(name, layer, x, causal=False, columns=None):
    """The formulas of the docstrings, for all positions, `(batch, H, T, S)`."""
    batch, length, _ = x.shape
    distance = np.arange(length) - np.arange(length)[:, None]
    if name in DISTANCES:
        logits = DISTANCES[name][1](weights_of(layer), distance, causal)
        return np.broadcast_to(logits, (batch, HEADS, length, length))
    rows = head_rows(hidden_rows(layer, x), layer.logits_kernel, layer.logits_bias)
    before = layer.window - 1 if causal else (layer.window - 1) // 2
    logits = np.full((batch, HEADS, length, length), OUTSIDE)
    for t, s in np.ndindex(length, length):
        if 0 <= s - t + before < layer.window:
            logits[:, :, t, s] = rows[:, :, t, s - t + before]
    return logits


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAKE)
def test_logits_equal_the_formula_for_any_length_and_part(name, causal):
    layer = build(name)
    for length in (1, 2, LENGTH, 17):
        x = inputs(length=length)
        whole = expected_logits(name, layer, x, causal)
        close(np.broadcast_to(layer(x, causal=causal), whole.shape), whole)
        start = length // 2
        for index in (start, keras.ops.convert_to_tensor(start)):
            part = layer(x[:, start:], start_index=index, key_length=length, causal=causal)
            close(np.broadcast_to(part, whole[:, :, start:].shape), whole[:, :, start:])


def test_bias_in_buckets_of_a_part_is_its_part_of_the_whole():
    layer = alignments.RelativeBiasAlignment(HEADS, num_buckets=6, max_distance=9)
    layer.build((None, None, WIDTH))
    randomize(layer)
    x = inputs(length=17)
    close(layer(x[:, 7:9], start_index=7, key_length=17), layer(x)[:, 7:9])


def test_routed_tables_equal_the_formula():
    layer = alignments.get("routed_random", HEADS, KEY_DIM, 17, num_tables=3, dtype="float64")
    layer.build((None, None, WIDTH))
    x, weights = inputs(), weights_of(randomize(layer))
    tables = np.stack([weights[f"table_{k}"] for k in range(3)])[..., :LENGTH, :LENGTH]
    routes = np.einsum("btd,dhk->bhtk", x, weights["router/kernel"])
    routes = softmax(routes + weights["router/bias"][:, None])
    expected = np.einsum("bhtk,khts->bhts", routes, tables)
    close(layer(x), expected)
    close(layer(x[:, 2:4], start_index=2, key_length=LENGTH), expected[:, :, 2:4])
    assert layer.count_params() == HEADS * (3 * 17**2 + 3 * (WIDTH + 1))
    assert layer.resize(9).max_length == 9


def test_parameters_are_as_many_as_documented():
    counts = {name: build(name).count_params() for name in MAKE}
    inner = HEADS * KEY_DIM
    assert counts == {
        "relative": HEADS * 7,
        "kernels": HEADS * 9,
        "decay": HEADS,
        "average": 0,
        "gaussian": HEADS,
        "local_dense": (WIDTH + 1) * inner + HEADS * (KEY_DIM + 1) * 3,
        "even window": (WIDTH + 1) * inner + HEADS * (KEY_DIM + 1) * 4,
        "longer than the text": (WIDTH + 1) * inner + HEADS * (KEY_DIM + 1) * 23,
    }
    assert build("gaussian").trainable_weights == []
    assert alignments.GaussianAlignment(HEADS, trainable_alignment=True).trainable_alignment


def test_decay_starts_with_slopes_that_halve_and_gaussians_around_their_offsets():
    decay, gaussian = alignments.DecayAlignment(8), alignments.GaussianAlignment(4, offsets=[-2, 0, 0.5, 9])
    for layer in (decay, gaussian):
        layer.build((None, None, WIDTH))
    close(decay.decay_rates(), 0.5 ** np.arange(1, 9), 1e-6)
    close(gaussian.offsets, [-2, 0, 0.5, 9], 0)
    assert alignments.GaussianAlignment(4).get_config()["offsets"] == [-1, 0, 1, -1]


@pytest.mark.parametrize("name", MAKE)
def test_the_config_brings_back_the_same_layer(name):
    layer, x = build(name), inputs()
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer.resize(7)))
    copy.build((None, None, WIDTH))
    copy.set_weights(layer.get_weights())
    close(copy(x), layer(x))
    assert copy.max_length is None and {**copy.get_config(), "name": layer.name} == layer.get_config()


MASKS = {
    "none": {},
    "causal": {"use_causal_mask": True},
    "padding": {"value_mask": [[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]]},
    "both": {"value_mask": [[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0]], "use_causal_mask": True},
    "columns": {"attention_mask": [[1, 0, 1, 1, 0]]},
    "queries": {"query_mask": [[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]]},
    "pairs": {"attention_mask": np.random.default_rng(0).random((BATCH, LENGTH, LENGTH)) < 0.6},
}


def attention(name, **kwargs):
    alignment = MAKE[name](dtype="float64")
    layer = layers.SyntheticAttention(HEADS, KEY_DIM, alignment, dtype="float64", **kwargs)
    layer.build((None, None, WIDTH))
    return randomize(layer)


def expected_output(name, layer, x, **masks):
    """`softmax(B) G(X)` and the scores, where a window hides what is outside of it."""
    causal = masks.get("use_causal_mask", False)
    logits = expected_logits(name, layer.alignment, x, causal)
    scores = softmax(logits, whole_mask(logits.shape, **masks) & (logits != OUTSIDE))
    weights = weights_of(layer)
    value = np.einsum("btd,dhv->bthv", x, weights["value/kernel"]) + weights["value/bias"]
    mixed = np.einsum("bhts,bshv->bthv", scores, value)
    kernel, bias = weights["attention_output/kernel"], weights["attention_output/bias"]
    return np.einsum("bthv,hvd->btd", mixed, kernel) + bias, scores


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", MAKE)
def test_attention_equals_the_formula_with_every_mask(name, masks):
    layer, x = attention(name), inputs()
    output, scores = expected_output(name, layer, x, **masks)
    close(layer(x, **masks), output)
    close(layer(x, return_attention_scores=True, **masks)[1], scores)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["relative", "decay", "gaussian", "local_dense"])
def test_dtype_policies_are_honoured(name, policy):
    layer = layers.SyntheticAttention(HEADS, KEY_DIM, MAKE[name](dtype=policy), dtype=policy)
    layer.build((None, None, WIDTH))
    randomize(layer)
    output = layer(inputs(), use_causal_mask=True)
    assert output.dtype == policy.removeprefix("mixed_")
    expected = attention(name)(inputs(), use_causal_mask=True)
    close(np.asarray(output, "float32"), expected, 0.05 * np.abs(expected).max())


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: alignments.GaussianAlignment(2, offsets=[1]),
            "`offsets` of .*num_heads=2 .*offsets=",
        ),
        (lambda: alignments.GaussianAlignment(2, stddev=0), "`stddev` of .* positive number.*stddev=0"),
        (lambda: alignments.GaussianAlignment(2, window=0), "`window` of .* positive integer.*window=0"),
        (lambda: alignments.LocalDenseAlignment(2, 3, window=0), "`window` of .*window=0"),
        (lambda: alignments.RelativeAlignment(2, max_distance=0), "`max_distance` of .*max_distance=0"),
        (lambda: alignments.RelativeKernelAlignment(2, num_kernels=0), "`num_kernels` of .*num_kernels=0"),
        (lambda: alignments.RoutedRandomAlignment(2, 9, num_tables=0), "`num_tables` of .*num_tables=0"),
    ],
)
def test_wrong_arguments_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
