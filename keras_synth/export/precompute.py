"""Attention weights that do not depend on the input, computed once for an exported model."""

import contextlib
import threading
import unittest.mock

import tensorflow as tf
from keras import ops

from keras_synth.core.slices import start_indices
from keras_synth.layers.attend import by_head, by_token, mix_for_one_query, show
from keras_synth.layers.causal_blocks import cut_into_blocks, join_blocks
from keras_synth.layers.masks import causal_mask, combine
from keras_synth.layers.softmax import masked_softmax
from keras_synth.layers.synthetic_attention import SyntheticAttention

#: How far apart the logits of a row may be, so that float32 still holds what padding leaves of its weights.
_LARGEST_SPREAD = 60.0

_lock = threading.RLock()


@contextlib.contextmanager
def precomputed():
    """A context in which the graphs that are traced read attention weights that are computed once.

    That is so for the layers whose alignment is a table, see `Alignment.has_table`. Nothing is left in the
    layers, and other threads see nothing of it. The weights are those of the moment in which a graph first
    asks for them: variables of the graph, `(H, N, N)` for each layer and kind of attention that it has.

    In training, and where a call has a mask that is more than a padding mask, layers compute their weights
    as ever.
    """
    thread, compute, tables = threading.get_ident(), SyntheticAttention.mix, {}

    def find_table(layer, causal):
        """The variable of a layer, or `None` if it has to compute its weights."""
        key = id(layer), causal
        if key not in tables:
            tables[key] = _compute_table(layer, causal)
        return tables[key]

    def mix(layer, query, projected, mask, start_index, causal, training):
        table = None
        if threading.get_ident() == thread and not training:
            if mask.full is None and mask.positions is None:
                table = find_table(layer, bool(causal))
        arguments = (layer, query, projected, mask, start_index, causal, training)
        if table is None:
            return compute(*arguments)
        value = projected["value"]
        size = (layer.num_heads, ops.shape(query)[1], ops.shape(value)[1])
        if causal:
            mask = mask.with_causal(*size[1:], start_index)
        weights = ops.slice(ops.convert_to_tensor(table), start_indices(3, 1, start_index), size)
        return _attend(weights, value, mask), lambda: compute(*arguments)[1]()

    # One thread at a time, so that each puts the method back.
    with _lock, unittest.mock.patch.object(SyntheticAttention, "mix", mix):
        yield


def _compute_table(layer, causal):
    """The weights for all positions up to `max_length`, as a variable, or `None` if they are no table."""
    alignment, length = layer.alignment, layer.max_length
    if length is None or not alignment.has_table(causal):
        return None
    with tf.init_scope():  # not as a part of the graph
        # Only the length of the query is read.
        logits = alignment(ops.zeros((1, length, 1)), key_length=length, causal=causal)
        logits = ops.cast(logits, "float32")
        support = layer.support(length, length, causal=causal)
        mask = combine(support, causal_mask(length, length) if causal else None)
        shown = True if mask is None else mask
        highest = ops.max(ops.where(shown, logits, -float("inf")), axis=-1)
        lowest = ops.min(ops.where(shown, logits, float("inf")), axis=-1)
        if ops.any(highest - lowest > _LARGEST_SPREAD):
            return None
        # Numbers that padding leaves without their largest ones need the range of float32.
        dtype = "float32" if layer.compute_dtype == "float16" else layer.compute_dtype
        return tf.Variable(ops.cast(masked_softmax(logits, mask), dtype), trainable=False)


def _attend(weights, value, mask):
    """Attention by `(H, T, S)` rows and columns of a table, which are divided by what padding leaves."""
    keys = mask.visible_keys
    if weights.shape[1] == 1:
        weights = ops.cast(weights[None], "float32")
        if keys is not None:
            weights = ops.where(keys[:, None, None], weights, 0.0)
        total = ops.sum(weights, axis=-1, keepdims=True)
        weights = ops.cast(weights / ops.where(total > 0, total, 1.0), value.dtype)
        visible = None if mask.query is None else mask.query[:, None, :, None]
        return show(mix_for_one_query(weights, value), visible)
    # The range of float16 is too small for weights that are not normalized.
    columns = ops.cast(value, "float32" if value.dtype == "float16" else value.dtype)
    if keys is None:
        ones = ops.ones((1, ops.shape(value)[1]))
    else:
        columns = ops.where(keys[:, :, None, None], columns, 0.0)
        ones = ops.cast(keys, "float32")
    columns, ones = by_head(columns), ops.transpose(ones)
    mixed, total = [], []
    for block, _ in cut_into_blocks(weights, mask):
        size = ops.shape(block)[-1]
        mixed.append(ops.matmul(ops.cast(block, columns.dtype), columns[:, :size]))
        total.append(ops.matmul(ops.cast(block, "float32"), ones[:size]))
    total = ops.expand_dims(ops.transpose(join_blocks(total), (2, 1, 0)), -1)  # (batch, T, H, 1)
    output = by_token(join_blocks(mixed), value)
    visible = total > 0
    output = ops.where(visible, ops.cast(output, "float32") / ops.where(visible, total, 1.0), 0.0)
    if mask.query is not None:
        output = ops.where(mask.query[:, :, None, None], output, 0.0)
    return ops.cast(output, value.dtype)
