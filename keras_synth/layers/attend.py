"""From alignment logits and values to attention outputs: `softmax(B) V`.

`attend_per_example` is ordinary attention. `attend_shared` and `attend_shared_with_padding` serve logits
without a batch axis, and make nothing of size `batch * H * T * S`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_synth.core.slices import cut
from keras_synth.layers.causal_blocks import cut_into_blocks, join_blocks
from keras_synth.layers.masks import AttentionMask, combine
from keras_synth.layers.softmax import (
    as_float32,
    hide,
    masked_softmax,
    softmax,
    softmax_product,
    softmax_product_with_padding,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of an attention matrix that are worked off together.

    Args:
        logits: Tensor of shape `(batch, H, T, S)`, or `(H, T, S)` if the same for every example.
        mask: The `AttentionMask` of these rows and columns.
        drop: A function that drops weights, for all examples the same if they share logits; or `None`.
    """

    logits: Any
    mask: AttentionMask
    drop: Callable | None


def attend_by_logits(logits, value, mask, dropout, training):
    """Attends to `value` by `logits`, by whichever path is the right one.

    Args:
        logits: Tensor of shape `(batch, H, T, S)`, or `(H, T, S)` if the same for every example.
        value: Tensor of shape `(batch, S, H, value_dim)`.
        mask: An `AttentionMask`.
        dropout: A `keras.layers.Dropout` for the attention weights.
        training: bool. Whether dropout acts.

    Returns:
        Output of shape `(batch, T, H, value_dim)`, with zeros where a query has nothing to attend to,
        and a function without arguments that returns the scores, `(batch, H, T, S)`, from before
        dropout.
    """
    if logits.shape[-2] == 1:
        path = attend_one_query
    elif len(logits.shape) == 4 or mask.full is not None:
        path = attend_per_example
    else:
        path = attend_shared if mask.visible_keys is None else attend_shared_with_padding
    blocks = [
        Block(block, block_mask, make_drop(block, dropout, training))
        for block, block_mask in cut_into_blocks(logits, mask)
    ]

    def compute_scores():
        weights = ops.cast(masked_softmax(logits, mask.merged()), value.dtype)
        return ops.broadcast_to(weights, (ops.shape(value)[0], *ops.shape(logits)[-3:]))

    return path(blocks, value, mask), compute_scores


def attend_one_query(blocks, value, mask):
    """Attention of a single query, as in decoding."""
    (block,) = blocks
    logits = ops.expand_dims(block.logits, 0) if len(block.logits.shape) == 3 else block.logits
    weights = ops.cast(masked_softmax(logits, mask.merged()), value.dtype)
    return mix_for_one_query(weights if block.drop is None else block.drop(weights), value)


def attend_per_example(blocks, value, mask):
    """Attention with logits, or a mask, of its own for each example."""
    columns = ops.transpose(value, (0, 2, 1, 3))
    batch = ops.shape(value)[0]
    mixed = [
        _attend_block(
            block.logits
            if len(block.logits.shape) == 4
            else ops.broadcast_to(block.logits, (batch, *ops.shape(block.logits))),
            block.mask.merged(),
            columns,
            block.drop,
        )
        for block in blocks
    ]
    return show(ops.transpose(join_blocks(mixed), (0, 2, 1, 3)), _find_visible(blocks, mask))


def attend_shared(blocks, value, mask):
    """Attention with the same logits for all examples, as one matrix product for each head."""
    # The gradient of an index, such as `logits[None]`, would be a copy.
    columns = ops.expand_dims(by_head(value), 0)
    mixed = [
        _attend_block(
            ops.expand_dims(block.logits, 0), block.mask.without_query().merged(), columns, block.drop
        )
        for block in blocks
    ]
    return show(by_token(ops.squeeze(join_blocks(mixed), 0), value), _find_visible(blocks, mask))


def attend_shared_with_padding(blocks, value, mask):
    """`attend_shared` for values of which a mask hides others in each example."""
    key = ops.broadcast_to(mask.visible_keys, ops.shape(value)[:2])
    # The range of float16 is too small for weights that are not normalized.
    columns = ops.cast(value, "float32" if value.dtype == "float16" else value.dtype)
    columns = ops.transpose(columns, (2, 1, 0, 3))
    mixed, visible = zip(
        *(_attend_block_with_padding(block, columns, key) for block in blocks), strict=True
    )
    output = ops.transpose(join_blocks(mixed, axis=1), (2, 1, 0, 3))
    visible = ops.transpose(join_blocks(visible, axis=1), (2, 1, 0))
    return ops.where(ops.expand_dims(visible, -1), ops.cast(output, value.dtype), 0.0)


def make_drop(logits, dropout, training):
    """The `drop` of a `Block`. For logits that are shared it drops the same whenever it is called."""
    if dropout.rate == 0 or not training:
        return None
    if len(logits.shape) == 4:
        return lambda weights: dropout(weights, training=training)
    noise = dropout(ops.ones_like(logits), training=training)
    return lambda weights: weights * ops.cast(noise, weights.dtype)


def _attend_block(logits, mask, columns, drop):
    """`softmax(B) V` where `mask` is true. A row where it is true nowhere gets anything finite.

    Args:
        logits: Tensor of shape `(n, H, T, S)`.
        mask: bool tensor that broadcasts to it, or `None`.
        columns: Tensor of shape `(n, H, S', v)`, of which the first `S` count.
        drop: As in `Block`.
    """
    shown = None
    if mask is not None:
        logits = hide(logits, mask)
        shown = ops.swapaxes(ops.any(mask, axis=-2, keepdims=True), -1, -2)
    if logits.shape[-1] is not None:
        columns = cut(columns, 0, logits.shape[-1], axis=-2)
    if drop is None:
        return softmax_product(logits, columns, shown)
    return ops.matmul(drop(ops.cast(softmax(logits), columns.dtype)), columns)


def _find_visible(blocks, mask):
    """The queries that see anything, of a shape that broadcasts to `(batch, H, T, 1)`; `None` if all do."""
    visible = None if mask.query is None else mask.query[:, None, :, None]
    if not mask.may_hide_all:
        return visible
    by_key = [block.mask.without_query().merged() for block in blocks]
    return combine(visible, join_blocks([ops.any(seen, axis=-1, keepdims=True) for seen in by_key]))


def _attend_block_with_padding(block, columns, key):
    """`softmax(B) V` of a block that all examples share.

    Args:
        block: A `Block` of `(H, T, S)` logits.
        columns: Tensor of shape `(H, S', batch, v)`, of which the first `S` count.
        key: bool tensor of shape `(batch, S')`, as well.

    Returns:
        Tensor of shape `(H, T, batch, v)`, and where a query sees anything, which broadcasts to
        `(H, T, batch)`.
    """
    logits, mask = as_float32(block.logits), combine(block.mask.causal, block.mask.positions)
    if logits.shape[-1] is not None:
        columns, key = cut(columns, 0, logits.shape[-1], axis=1), key[:, : logits.shape[-1]]
    if mask is None:
        visible = ops.any(key, axis=-1)
    else:
        logits = hide(logits, mask)
        visible = ops.matmul(ops.cast(mask, "float32"), ops.cast(ops.transpose(key), "float32")) > 0
    if block.mask.query is not None:
        visible = ops.logical_and(visible, ops.transpose(block.mask.query))
    visible = ops.reshape(visible, (1,) * (3 - len(visible.shape)) + tuple(ops.shape(visible)))
    return softmax_product_with_padding(logits, columns, key, visible, block.drop), visible


def mix_for_one_query(weights, value):
    """`(batch, H, 1, S)` weights, where `batch` may be 1, times values, as `(batch, 1, H, v)`.

    In decoding, to bring the axes of a cache into the order of a product for each head takes longer than
    anything else. Here each head mixes the values of all heads, as they lie there, and keeps its own.
    """
    batch, length, heads, value_dim = ops.shape(value)
    mixed = ops.matmul(weights[:, :, 0], ops.reshape(value, (batch, length, heads * value_dim)))
    return ops.einsum("bhhv->bhv", ops.reshape(mixed, (batch, heads, heads, value_dim)))[:, None]


def show(output, visible):
    """`(batch, T, H, v)` outputs, with zeros where `visible`, of the order `(batch, H, T, 1)`, is false."""
    return output if visible is None else ops.where(ops.transpose(visible, (0, 2, 1, 3)), output, 0.0)


def by_head(value):
    """`(batch, S, H, v)` values as `(H, S, batch v)`.

    With these columns there is one product `(T, S) x (S, batch v)` for each head. Einsum's own order of
    axes is up to twice as slow.
    """
    _, length, heads, _ = ops.shape(value)
    return ops.reshape(ops.transpose(value, (2, 1, 0, 3)), (heads, length, -1))


def by_token(mixed, value):
    """`(H, T, batch v)` outputs as `(batch, T, H, v)`."""
    heads, length, _ = ops.shape(mixed)
    mixed = ops.reshape(mixed, (heads, length, -1, value.shape[-1]))
    return ops.transpose(mixed, (2, 1, 0, 3))
