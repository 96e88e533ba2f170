"""The bottleneck, convolutional and gated alignments, against NumPy."""

import keras
import numpy as np
import pytest
from helpers import BATCH, HEADS, KEY_DIM, LENGTH, WIDTH, check_causality, close, normal, randomize
from oracle import relu, sigmoid, weights_of

from keras_synth import alignments, layers

MAX_LENGTH = 13
NAMES = ("bottleneck", "convolution", "convolutional_bottleneck", "gated_linear")
CONVOLUTIONS = ("convolution", "convolutional_bottleneck")
CLASSES = {
    "bottleneck": (alignments.BottleneckAlignment, {"bottleneck_dim": 3}),
    "convolution": (alignments.ConvolutionAlignment, {"kernel_size": 4}),
    "convolutional_bottleneck": (
        alignments.ConvolutionalBottleneckAlignment,
        {"kernel_size": 4, "bottleneck_dim": 3},
    ),
    "gated_linear": (alignments.GatedLinearAlignment, {}),
}


def make(name, dtype="float64", **kwargs):
    cls, arguments = CLASSES[name]
    layer = cls(HEADS, KEY_DIM, MAX_LENGTH, dtype=dtype, **{**arguments, **kwargs})
    layer.build((None, None, WIDTH))
    return randomize(layer, seed=7)


def attention(name, dtype="float64"):
    layer = layers.SyntheticAttention(HEADS, KEY_DIM, make(name, dtype), dtype=dtype)
    layer.build((None, None, WIDTH))
    for weight in (layer.value_dense.kernel, layer.output_dense.kernel):
        weight.assign(normal(*weight.shape))
    return layer


def expected_logits(name, layer, x, mask=None, causal=False):
    """The formulas of the docstrings, token by token and head by head."""
    weights = weights_of(layer)
    batch, length, width = x.shape
    if mask is not None:
        x = x * mask[..., None]
    logits = np.zeros((batch, HEADS, length, length))
    for b, h, t in np.ndindex(batch, HEADS, length):
        token = x[b, t]
        if name in CONVOLUTIONS:
            left = layer.kernel_size - 1 if causal else (layer.kernel_size - 1) // 2
            places = [t - left + tap for tap in range(layer.kernel_size)]
            inside = [0 <= place < length for place in places]
            token = np.concatenate(
                [x[b, p] if ok else np.zeros(width) for p, ok in zip(places, inside, strict=True)]
            )
        hidden = token @ weights["hidden/kernel"][:, h] + weights["hidden/bias"][h]
        if name == "gated_linear":
            gate = token @ weights["gate/kernel"][:, h] + weights["gate/bias"][h]
            hidden = hidden * sigmoid(gate)
        else:
            hidden = relu(hidden)
        if "bottleneck" in name:
            hidden = relu(hidden @ weights["bottleneck_kernel"][h] + weights["bottleneck_bias"][h, 0])
        row = hidden @ weights["logits_kernel"][h] + weights["logits_bias"][h, 0]
        logits[b, h, t] = row[:length]
    return logits


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, LENGTH, MAX_LENGTH])
@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_the_formula(name, length, causal):
    layer, x = make(name), normal(BATCH, length, WIDTH)
    close(layer(x, causal=causal), expected_logits(name, layer, x, causal=causal))


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 7])
def test_any_window_fits(kernel_size):
    layer, x = make("convolution", kernel_size=kernel_size), normal(BATCH, LENGTH, WIDTH)
    for causal in (False, True):
        close(layer(x, causal=causal), expected_logits("convolution", layer, x, causal=causal))


@pytest.mark.parametrize(
    "name, kernels, biases",
    [
        ("bottleneck", 7 * 22 + 22 * 3 + 2 * 3 * 13, 22 + 2 * 3 + 2 * 13),
        ("convolution", 4 * 7 * 22 + 22 * 13, 22 + 2 * 13),
        ("convolutional_bottleneck", 4 * 7 * 22 + 22 * 3 + 2 * 3 * 13, 22 + 2 * 3 + 2 * 13),
        ("gated_linear", 2 * 7 * 22 + 22 * 13, 2 * 22 + 2 * 13),
    ],
)
def test_parameters_are_as_many_as_documented(name, kernels, biases):
    assert make(name).count_params() == kernels + biases
    assert make(name, use_bias=False).count_params() == kernels


def test_the_bottleneck_is_a_quarter_as_wide_unless_told_otherwise():
    assert alignments.BottleneckAlignment(1, 16, 8).bottleneck_dim == 4
    assert alignments.BottleneckAlignment(1, 3, 8).bottleneck_dim == 1


@pytest.mark.parametrize("argument", ["bottleneck_dim", "kernel_size"])
def test_a_size_that_is_no_positive_integer_is_an_error(argument):
    with pytest.raises(ValueError, match=f"`{argument}` of .* must be a positive integer.*{argument}=0"):
        alignments.ConvolutionalBottleneckAlignment(HEADS, KEY_DIM, MAX_LENGTH, **{argument: 0})


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_content_of_padding_reaches_no_other_token(name):
    layer, x = make(name), normal(BATCH, LENGTH, WIDTH)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1]], bool)
    close(layer(x, key_mask=mask), expected_logits(name, layer, x, mask))

    attend, padded = attention(name), np.where(mask[..., None], x, np.nan)
    for causal in (False, True):
        actual = np.asarray(attend(padded, value=x, value_mask=mask, use_causal_mask=causal))
        expected = np.asarray(attend(x, value_mask=mask, use_causal_mask=causal))
        close(actual[mask], expected[mask])
    longer = np.concatenate([x, normal(BATCH, 3, WIDTH)], axis=1)
    there = np.pad(mask, [(0, 0), (0, 3)])
    close(np.asarray(attend(longer, value_mask=there))[there], np.asarray(attend(x, value_mask=mask))[mask])


@pytest.mark.parametrize("name", NAMES)
def test_causal_attention_does_not_see_the_future(name):
    check_causality(attention(name), normal(BATCH, LENGTH, WIDTH))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_decoding_with_a_cache_equals_the_full_pass(name, mixed):
    layer = attention(name)
    if mixed:
        parts = [make(name), alignments.DotProductAlignment(HEADS, KEY_DIM, dtype="float64")]
        mixture = alignments.MixtureAlignment(parts, dtype="float64")
        layer = layers.SyntheticAttention(HEADS, KEY_DIM, mixture, dtype="float64")
    x = normal(BATCH, LENGTH, WIDTH)
    expected = layer(x, use_causal_mask=True)
    cache = layer.init_cache(BATCH, LENGTH + 2)
    rows = []
    for start, stop in [(0, 2), (2, 3), (3, 5)]:
        row, cache = layer(
            x[:, start:stop], use_causal_mask=True, cache=cache, cache_update_index=np.int32(start)
        )
        rows.append(row)
    close(np.concatenate(rows, axis=1), expected)


def test_a_convolution_looks_at_the_query_also_where_values_are_others():
    layer, x, value = attention("convolution"), normal(BATCH, LENGTH, WIDTH), normal(3, 5, 7, seed=3)
    _, scores = layer(x, value, return_attention_scores=True)
    close(scores, layer(x, return_attention_scores=True)[1])


@pytest.mark.parametrize("name", NAMES)
def test_the_config_brings_back_the_same_layer(name):
    layer, x = make(name, activation="tanh", use_bias=False), normal(BATCH, LENGTH, WIDTH)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    copy.set_weights(layer.get_weights())
    close(copy(x), layer(x))
    assert copy.get_config() == layer.get_config()


@pytest.mark.parametrize("name", NAMES)
def test_names_work_in_attention_mixtures_and_blocks(name, tmp_path):
    x = normal(BATCH, LENGTH, 6).astype("float32")
    inputs = keras.Input((None, 6))
    block = layers.SynthesizerEncoder(9, 2, attention=f"{name}+dot_product", max_length=MAX_LENGTH)
    model = keras.Model(inputs, block(inputs))
    assert model.output.shape == (None, None, 6)
    model.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras")(x), model(x), 1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_dtype_policies_are_honoured(name, policy):
    layer = attention(name, policy)
    x = normal(BATCH, LENGTH, WIDTH)
    output, cache = layer(x, use_causal_mask=True, cache=layer.init_cache(BATCH, 8), cache_update_index=0)
    assert output.dtype == keras.DTypePolicy(policy).compute_dtype
    expected = attention(name)(x, use_causal_mask=True)
    scale = np.abs(np.asarray(expected)).max()
    close(np.asarray(output, "float32"), expected, 0.05 * scale)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_xla_gives_the_same(name):
    import tensorflow as tf

    layer, x = attention(name), normal(BATCH, LENGTH, WIDTH)
    mask = np.arange(LENGTH) < np.array([[5], [3], [1]])
    compiled = tf.function(lambda x: layer(x, value_mask=mask, use_causal_mask=True), jit_compile=True)
    close(compiled(tf.constant(x)), layer(x, value_mask=mask, use_causal_mask=True))


def test_describe_lists_the_alignments_of_a_model():
    x = keras.Input((None, 6))
    y = layers.SynthesizerEncoder(9, 2, "fixed_random", 13, name="a")(x)
    y = layers.SynthesizerEncoder(9, 2, "convolution+random", 13, name="b")(y)
    y = layers.FixedPatternAttention(2, 3, patterns=["next"], name="c")(y)
    table = alignments.describe(keras.Model(x, y))
    fixed, mixture, heads = table
    assert fixed.path.startswith("a/self_attention/random_alignment")
    assert (fixed.trained, fixed.fixed, fixed.reads, fixed.sample) == (0, 2 * 13**2, "nothing", "global")
    assert mixture.formula == "a1 [W2 relu(conv(x))] + a2 [R]"
    assert mixture.trained == (3 * 6 * 6 + 6 + 6 * 13 + 2 * 13) + 2 * 13**2 + 2 * 2
    assert (mixture.reads, mixture.sample, mixture.interacts) == ("neighbours", "local", True)
    assert (heads.alignment, heads.trained) == ("HeadwiseAlignment", 2 * (6 * 3 + 3))
    assert heads.reads == "all tokens"
    values, tokens = 4 * 2 * 3, 4 * 6
    assert [row.cache for row in table] == [
        f"{values} a token",
        f"{values + tokens} a token",
        f"{values + 4 * 3} a token",  # one of the heads has keys
    ]
    head, rule, *rows = str(table).splitlines()
    assert head.split() == "path alignment formula trained fixed reads sample interacts cache".split()
    assert set(rule) == {"-", " "} and len(rows) == 3 and "  global  no  " in rows[0]


def test_describe_shows_caches_that_do_not_grow():
    x = y = keras.Input((None, 6))
    for attention in ("decay", "average", "local_dense", "random"):
        y = layers.SynthesizerDecoder(9, 2, attention, max_length=13)(y)
    caches = [row.cache for row in alignments.describe(keras.Model(x, y))]
    # A vector and a number for each head; fourteen values, and whether each is there.
    assert caches == [str(4 * 2 * 4), str(4 * 2 * 4), str(14 * (4 * 6 + 1)), f"{4 * 6} a token"]


def test_describe_needs_weights():
    with pytest.raises(ValueError, match="RandomAlignment 'r' has no weights yet"):
        alignments.describe(alignments.RandomAlignment(2, 5, name="r"))
    assert str(alignments.describe(keras.layers.Dense(3))) == "no alignments"
