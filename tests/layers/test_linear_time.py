"""Windows and running sums: as by logits, nothing as large as logits, caches that do not grow."""

import keras
import numpy as np
import pytest
from helpers import (
    BATCH,
    HEADS,
    KEY_DIM,
    TOLERANCE,
    VALUE_DIM,
    WIDTH,
    close,
    inputs,
    outputs_and_gradients,
    random_mask,
    randomize,
)

from keras_synth import alignments, layers

#: More than two blocks, the last of which is not full.
LONG = 150
WINDOW = 4
MAKE = {
    "decay": alignments.DecayAlignment,
    "average": alignments.AverageAlignment,
    "gaussian": lambda heads, **kw: alignments.GaussianAlignment(
        heads, window=5, trainable_alignment=True, **kw
    ),
    "local_dense": lambda heads, **kw: alignments.LocalDenseAlignment(heads, KEY_DIM, WINDOW, **kw),
    "window of one": lambda heads, **kw: alignments.LocalDenseAlignment(heads, KEY_DIM, 1, **kw),
    "wide window": lambda heads, **kw: alignments.LocalDenseAlignment(heads, KEY_DIM, 45, **kw),
}
names = pytest.mark.parametrize("name", MAKE)
compiled_names = pytest.mark.parametrize("name", ["decay", "local_dense"])


def attention(name, dtype="float64", heads=HEADS, **kwargs):
    alignment = MAKE[name](heads, dtype=dtype)
    layer = layers.SyntheticAttention(heads, KEY_DIM, alignment, value_dim=VALUE_DIM, dtype=dtype, **kwargs)
    layer.build((None, None, WIDTH))
    return randomize(layer)


@pytest.fixture(scope="module")
def attentions():
    return {name: attention(name) for name in MAKE}


MASKS = {
    "none": {},
    "causal": {"use_causal_mask": True},
    "padding": {"value_mask": np.arange(LONG) < np.array([[LONG], [140], [0]])},
    "holes": {
        "value_mask": random_mask(BATCH, LONG),
        "query_mask": random_mask(BATCH, LONG, seed=1),
        "use_causal_mask": True,
    },
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("name", [name for name in MAKE if name != "window of one"])
def test_outputs_and_gradients_are_those_of_logits(attentions, name, masks):
    layer, x = attentions[name], inputs(length=LONG)
    output, gradients = outputs_and_gradients(layer, x, **masks)
    # A mask of pairs, although it hides nothing, needs the logits.
    everything = np.ones((LONG, LONG), bool)
    expected, expected_gradients = outputs_and_gradients(layer, x, attention_mask=everything, **masks)
    close(output, expected, max(1e-7, TOLERANCE))
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        close(gradient, expected_gradient, max(1e-6, 10 * TOLERANCE))


@pytest.mark.tensorflow
@pytest.mark.parametrize("masks", ["none", "causal"])
@compiled_names
def test_nothing_has_the_size_of_the_logits(name, masks):
    import tensorflow as tf

    length = 1024
    layer = attention(name, "float32", heads=1)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, use_causal_mask=masks == "causal") ** 2)
        return tape.gradient(loss, layer.trainable_weights)

    graph = tf.function(step).get_concrete_function(tf.TensorSpec((1, length, WIDTH))).graph
    sizes = [tensor.shape.num_elements() or 0 for op in graph.get_operations() for tensor in op.outputs]
    assert max(sizes) < length**2 / 4


@pytest.mark.tensorflow
@compiled_names
def test_an_unknown_length_and_xla_give_the_same(attentions, name):
    import tensorflow as tf

    layer = attentions[name]

    def call(x):
        return layer(x, use_causal_mask=True)

    traced = tf.function(call, input_signature=[tf.TensorSpec((None, None, WIDTH), "float64")])
    compiled = tf.function(call, jit_compile=True)
    for length in (1, 7, LONG):
        x = tf.constant(inputs(length=length))
        close(traced(x), layer(x, use_causal_mask=True))
    close(compiled(x), layer(x, use_causal_mask=True))


def decode(layer, x, pieces, call=None, **masks):
    """The outputs for pieces of these lengths, one after the other."""
    cache, outputs, start = layer.init_cache(len(x), 5), [], 0
    for piece in pieces:
        output, cache = (call or layer)(
            x[:, start : start + piece],
            cache=cache,
            cache_update_index=start,
            use_causal_mask=True,
            **masks,
        )
        outputs.append(output)
        start += piece
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("pieces", [[1] * 15, [2, 7, 1, 5], [15]], ids=str)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", ["decay", "average", "gaussian", "local_dense"])
def test_pieces_with_a_cache_equal_the_whole(attentions, name, pieces, padded):
    """Over more than three times the window."""
    layer, x = attentions[name], inputs(length=15)
    masks = {"value_mask": random_mask(BATCH, 15)} if padded else {}
    close(decode(layer, x, pieces, **masks), layer(x, use_causal_mask=True, **masks))
    if padded:
        columns = {"attention_mask": masks["value_mask"][:, None]}
        close(decode(layer, x, pieces, **columns), layer(x, use_causal_mask=True, **masks))


@pytest.mark.parametrize("length", [0, 1, 6, 9])
@names
def test_tokens_that_come_again_do_not_enter_the_cache(attentions, name, length):
    layer, x = attentions[name], inputs(length=15)
    arguments = {"use_causal_mask": True, "cache_update_index": 0}
    _, expected = (
        layer(x[:, :length], cache=layer.init_cache(BATCH, 1), **arguments)
        if length
        else (
            None,
            layer.init_cache(BATCH, 1),
        )
    )
    for size in (length, keras.ops.convert_to_tensor(length)):
        output, cache = layer(x, cache=layer.init_cache(BATCH, 1), cache_update_length=size, **arguments)
        close(output, layer(x, use_causal_mask=True))
        keras.tree.map_structure(close, cache, expected)


@pytest.mark.tensorflow
@compiled_names
def test_steps_compile_with_an_index_that_is_a_tensor(attentions, name):
    import tensorflow as tf

    layer, x = attentions[name], inputs(length=9)
    mask = random_mask(BATCH, 9)

    @tf.function(jit_compile=True)
    def step(token, cache_update_index, **arguments):
        return layer(token, cache_update_index=tf.convert_to_tensor(cache_update_index), **arguments)

    arguments = {"value_mask": tf.constant(mask)}
    cache, outputs = layer.init_cache(BATCH, 9), []
    for index in range(9):
        output, cache = step(
            tf.constant(x[:, index : index + 1]),
            tf.constant(index),
            cache=cache,
            use_causal_mask=True,
            **arguments,
        )
        outputs.append(output)
    assert step.experimental_get_tracing_count() == 1
    close(np.concatenate(outputs, axis=1), layer(x, value_mask=mask, use_causal_mask=True))


@names
def test_a_cache_has_the_same_size_for_any_length(attentions, name):
    layer = attentions[name]
    shapes = [
        keras.tree.map_structure(lambda x: x.shape, layer.init_cache(BATCH, length)) for length in (1, 1000)
    ]
    assert shapes[0] == shapes[1]


@names
def test_the_future_changes_nothing(attentions, name):
    layer, x = attentions[name], inputs(length=70)
    changed = np.concatenate([x[:, :40], inputs(length=30, seed=9)], axis=1)
    before, after = (np.asarray(layer(y, use_causal_mask=True))[:, :40] for y in (x, changed))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("name", ["decay", "average"])
def test_dropout_of_weights_takes_the_logits(name):
    layer, x = attention(name, dropout=0.5, seed=1), inputs(length=9)
    outputs = np.asarray(layer(np.repeat(x[:1], 2, axis=0), training=True))
    assert np.abs(outputs - layer(x[:1])).max() > 0.1
    close(outputs[0], outputs[1])


@pytest.mark.parametrize("padded", [False, True])
def test_examples_share_the_dropout_of_windows_that_they_share(padded):
    layer, x = attention("gaussian", dropout=0.5, seed=1), np.repeat(inputs(1), 2, axis=0)
    masks = {"value_mask": np.ones((2, x.shape[1]))} if padded else {}
    outputs = np.asarray(layer(x, training=True, **masks))
    assert np.abs(outputs - layer(x)).max() > 0.1
    close(outputs[0], outputs[1])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["average", "local_dense"])
def test_half_precision_is_good_for_long_texts(name, policy):
    layer, exact = attention(name, policy), attention(name, "float32")
    x = inputs(length=2000, batch=1) + 3.0
    expected = np.asarray(exact(x, use_causal_mask=True))
    error = np.abs(np.asarray(layer(x, use_causal_mask=True), "float32") - expected).max()
    assert error < 0.03 * np.abs(expected).max()


def test_far_from_any_token_that_is_shown_outputs_and_gradients_are_finite():
    layer, x = attention("decay", "float32"), inputs(length=LONG, dtype="float32")
    layer.alignment.log_rate.assign([2.0, -9.0])
    mask = np.arange(LONG) < np.array([[2], [1], [0]])
    output, gradients = outputs_and_gradients(layer, x, value_mask=mask, use_causal_mask=True)
    assert all(np.isfinite(tensor).all() for tensor in (output, *gradients))


@pytest.mark.parametrize(
    "arguments",
    [
        {"use_causal_mask": False, "cache_update_index": 0},
        {"cache_update_index": None},
        {"cache_update_index": 0, "return_attention_scores": True},
        {"cache_update_index": 0, "attention_mask": np.ones((5, 9))},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["decay", "local_dense"])
def test_what_a_cache_of_constant_size_cannot_do_is_an_error(attentions, name, arguments):
    layer = attentions[name]
    with pytest.raises(ValueError, match="The cache of SyntheticAttention .* holds no single tokens"):
        layer(inputs(), cache=layer.init_cache(BATCH, 9), **{"use_causal_mask": True, **arguments})
