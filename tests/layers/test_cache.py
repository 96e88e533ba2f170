"""Decoding with a cache, token by token, against one pass over the whole sequence."""

import keras
import numpy as np
import pytest
from helpers import ALL, BATCH, HEADS, KEY_DIM, LENGTH, VALUE_DIM, attention, close, inputs
from keras import ops

from keras_synth import layers


def decode(layer, x, pieces, length=LENGTH, call=None, **masks):
    """The outputs for pieces of these lengths, one after the other."""
    call = layer if call is None else call
    cache, outputs, start = layer.init_cache(BATCH, length), [], 0
    for piece in pieces:
        part = x[:, start : start + piece]
        output, cache = call(part, cache=cache, cache_update_index=start, use_causal_mask=True, **masks)
        outputs.append(output)
        start += piece
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (3, 1, 1), (2, 3), (5,)])
@pytest.mark.parametrize("name", ALL)
def test_cached_steps_equal_the_whole_pass(name, pieces):
    layer, x = attention(name), inputs()
    close(decode(layer, x, pieces), layer(x, use_causal_mask=True))


@pytest.mark.parametrize("name", ALL)
def test_a_cache_may_be_longer_than_what_is_decoded(name):
    layer, x = attention(name), inputs()
    close(decode(layer, x, (2, 1, 1, 1), length=17), layer(x, use_causal_mask=True))


@pytest.mark.parametrize("name", ["random", "dot_product"])
def test_a_step_sees_its_window_and_has_its_gate(name):
    layer, x = attention(name, sliding_window=2, use_gate=True), inputs()
    close(decode(layer, x, (2, 1, 1, 1), length=7), layer(x, use_causal_mask=True))


@pytest.mark.parametrize(
    "index",
    [1, np.int32(1), np.int64(1), ops.convert_to_tensor(1, "int64")],
    ids=lambda i: type(i).__name__,
)
@pytest.mark.parametrize("name", ["random", "dot_product"])
def test_the_index_may_be_an_integer_of_any_type(name, index):
    layer, x = attention(name), inputs()
    arguments = {"cache": layer.init_cache(BATCH, LENGTH), "use_causal_mask": True}
    output, _ = layer(x[:, :2], cache_update_index=index, **arguments)
    close(output, layer(x[:, :2], cache_update_index=1, **arguments)[0])


@pytest.mark.parametrize("name", ALL)
def test_a_mask_hides_left_padding_of_a_prompt_from_every_step(name):
    layer, x = attention(name), inputs()
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    steps = decode(layer, x, (2, 1, 1, 1), value_mask=mask)
    close(steps, layer(x, value_mask=mask, use_causal_mask=True))


@pytest.mark.parametrize("name", ALL)
def test_scores_of_a_step_are_the_row_of_the_whole_pass(name):
    layer, x = attention(name), inputs()
    _, whole = layer(x, use_causal_mask=True, return_attention_scores=True)
    _, cache = layer(
        x[:, :3], cache=layer.init_cache(BATCH, LENGTH), cache_update_index=0, use_causal_mask=True
    )
    _, scores, _ = layer(
        x[:, 3:4],
        cache=cache,
        cache_update_index=3,
        use_causal_mask=True,
        return_attention_scores=True,
    )
    close(scores, whole[:, :, 3:4])


@pytest.mark.parametrize("name", ALL)
def test_only_dot_products_keep_keys(name):
    cache = attention(name).init_cache(BATCH, LENGTH)
    size = sum(np.size(tensor) for tensor in keras.tree.flatten(cache))
    keys = ("dot_product" in name) or name == "nested"
    assert size == BATCH * LENGTH * HEADS * (VALUE_DIM + keys * KEY_DIM)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "float64"])
def test_the_cache_has_the_compute_dtype(dtype):
    layer = attention("random+dot_product", dtype=dtype)
    cache = keras.tree.flatten(layer.init_cache(BATCH, LENGTH))
    assert {keras.backend.standardize_dtype(tensor.dtype) for tensor in cache} == {layer.compute_dtype}


def test_without_a_causal_mask_the_places_not_filled_yet_stay_hidden():
    layer, x = attention("random"), inputs()
    output, _ = layer(x[:, :3], cache=layer.init_cache(BATCH, LENGTH), cache_update_index=0)
    close(output, layer(x[:, :3]))


def test_cross_attention_fills_its_cache_once():
    layer = layers.DotProductAttention(HEADS, KEY_DIM, value_dim=VALUE_DIM, dtype="float64")
    x, source = inputs(), inputs(length=17, seed=5)
    mask = np.arange(17) < np.array([[17], [11], [1]])
    expected = layer(x, source, value_mask=mask)
    output, cache = layer(
        x[:, :1],
        source,
        value_mask=mask,
        cache=layer.init_cache(BATCH, 17),
        cache_update_index=0,
    )
    close(output, expected[:, :1])
    for step in range(1, LENGTH):
        output, cache = layer(x[:, step : step + 1], value_mask=mask, cache=cache)
        close(output, expected[:, step : step + 1])


def decoder(attention, with_encoder, **kwargs):
    width = 14
    block = layers.SynthesizerDecoder(
        11, HEADS, attention=attention, max_length=17, dtype="float64", **kwargs
    )
    block.build((None, None, width), (None, None, width) if with_encoder else None)
    return block


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("name", ["random", "dense", "dot_product", "random+dot_product"])
def test_decoder_steps_equal_the_whole_pass(name, normalize_first):
    block = decoder(name, with_encoder=False, normalize_first=normalize_first)
    x = inputs(width=14)
    cache, none = block.init_cache(BATCH, LENGTH)
    assert none is None
    outputs = []
    for start, stop in [(0, 2), (2, 3), (3, 4), (4, 5)]:
        output, cache = block(
            x[:, start:stop], self_attention_cache=cache, self_attention_cache_update_index=start
        )
        outputs.append(output)
    close(np.concatenate(outputs, axis=1), block(x))


@pytest.mark.parametrize("name", ["random", "factorized_dense", "random+dot_product"])
def test_decoder_steps_with_an_encoder_equal_the_whole_pass(name):
    block = decoder(name, with_encoder=True)
    x, source = inputs(width=14), inputs(length=13, width=14, seed=5)
    mask = np.arange(13) < np.array([[13], [7], [1]])
    expected = block(x, source, encoder_padding_mask=mask)
    cache, cross_cache = block.init_cache(BATCH, LENGTH, encoder_length=13)
    outputs = []
    for start, stop in [(0, 2), (2, 3), (3, 4), (4, 5)]:
        output, cache, cross_cache = block(
            x[:, start:stop],
            source if start == 0 else None,
            encoder_padding_mask=mask,
            self_attention_cache=cache,
            self_attention_cache_update_index=start,
            cross_attention_cache=cross_cache,
            cross_attention_cache_update_index=0 if start == 0 else None,
        )
        outputs.append(output)
    close(np.concatenate(outputs, axis=1), expected)


@pytest.mark.parametrize("cross_cached", [True, False])
def test_decoder_returns_the_caches_that_it_was_given(cross_cached):
    block = decoder("random", with_encoder=True)
    x, source = inputs(width=14), inputs(length=13, width=14, seed=5)
    cache, cross_cache = block.init_cache(BATCH, LENGTH, encoder_length=13)
    caches = {"cross_attention_cache": cross_cache} if cross_cached else {"self_attention_cache": cache}
    indices = {f"{name}_update_index": 0 for name in caches}
    output, returned = block(x, source, **caches, **indices)
    keras.tree.assert_same_structure(returned, next(iter(caches.values())))
    close(output, block(x, source))


def test_a_cache_is_not_changed_in_place():
    layer, x = attention("random+dot_product"), inputs()
    cache = layer.init_cache(BATCH, LENGTH)
    layer(x, cache=cache, cache_update_index=0)
    assert all(float(ops.max(ops.abs(tensor))) == 0 for tensor in keras.tree.flatten(cache))
