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
    exponentials,
    hide,
    masked_softmax,
    softmax,
    softmax_product,
)

#: The least share of its weight that padding may leave a row. With less the quotient of sums, whose
#: gradient is divided by the square of it, would leave the range of float32 where values are large.
_LEAST_SHARE = 1e-10


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
        path = attend_shared if mask.key is None else attend_shared_with_padding
    blocks = [
        Block(block, block_mask, _make_drop(block, dropout, training))
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
    """`attend_shared` for values of which a mask `m` hides others in each example.

    With `E` proportional to `exp(R)`, the output is `(E (m * V)) / (E m)`. Where `m` hides nearly all the
    weight of a row, that is as wrong as what is left is small, and each example is treated by itself.
    """
    weights = [_compute_numerators(block) for block in blocks]
    dropped = [w if block.drop is None else block.drop(w) for block, w in zip(blocks, weights, strict=True)]
    mixed, total = mix_visible(weights, dropped, value, mask)
    enough = total > _LEAST_SHARE  # (H, T, batch)
    enough = ops.logical_or(enough, ops.logical_not(ops.any(mask.key, axis=-1)))
    if mask.query is not None:
        enough = ops.logical_or(enough, ops.logical_not(ops.transpose(mask.query)))
    return ops.cond(
        ops.all(enough),
        lambda: divide_by_total(mixed, total, value, mask),
        lambda: attend_per_example(blocks, value, mask),
    )


def _make_drop(logits, dropout, training):
    """The function of a `Block`. For logits that are shared it drops the same whenever it is called."""
    if not training or dropout.rate == 0:
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
    if mask is not None:
        logits = hide(logits, mask)
    if logits.shape[-1] is not None:
        columns = cut(columns, 0, logits.shape[-1], axis=-2)
    if drop is None:
        return softmax_product(logits, columns)
    return ops.matmul(drop(ops.cast(softmax(logits), columns.dtype)), columns)


def _find_visible(blocks, mask):
    """The queries that see anything, of a shape that broadcasts to `(batch, H, T, 1)`; `None` if all do."""
    visible = None if mask.query is None else mask.query[:, None, :, None]
    if not mask.may_hide_all:
        return visible
    by_key = [block.mask.without_query().merged() for block in blocks]
    return combine(visible, join_blocks([ops.any(seen, axis=-1, keepdims=True) for seen in by_key]))


def _compute_numerators(block):
    """The weights of a block before they are divided by the sum of those that padding leaves."""
    logits, mask = as_float32(block.logits), combine(block.mask.causal, block.mask.positions)
    weights = exponentials(logits if mask is None else hide(logits, mask))
    # In a causal row there is always something to see, beside which what is hidden has no weight.
    return weights if block.mask.positions is None else ops.where(mask, weights, 0.0)


def mix_visible(weights, dropped, value, mask):
    """`E (m * V)`, as `(H, T, batch v)`, and `E m`, as `(H, T, batch)`.

    Args:
        weights: A list of blocks of `E`, `(H, T, S)`.
        dropped: The same with dropout, for the first of the two.
        value: Tensor of shape `(batch, S, H, v)`.
        mask: An `AttentionMask`.
    """
    # The range of float16 is too small for weights that are not normalized.
    value = ops.cast(value, "float32" if value.dtype == "float16" else value.dtype)
    batch, length, heads = ops.shape(value)[:3]
    if mask.key is None:
        ones = ops.ones((heads, length, 1), dtype=weights[0].dtype)
    else:
        key = ops.broadcast_to(mask.key, (batch, length))
        # Not a product: the gradient of a value that is hidden may be infinite.
        value = ops.where(key[:, :, None, None], value, 0.0)
        ones = ops.broadcast_to(ops.transpose(key), (heads, length, batch))
    columns = by_head(value)
    mixed = [_mix(ops.cast(block, columns.dtype), columns) for block in dropped]
    total = [_mix(as_float32(block), ops.cast(ones, as_float32(block).dtype)) for block in weights]
    return join_blocks(mixed), join_blocks(total)


def divide_by_total(mixed, total, value, mask):
    """The quotient of what `mix_visible` returns, like `value`; zeros where a query sees nothing."""
    total = ops.transpose(total, (2, 1, 0))
    visible = total > 0
    if mask.query is not None:
        visible = ops.logical_and(visible, mask.query[..., None])
    inverse = ops.where(visible, 1.0 / ops.where(visible, total, 1.0), 0.0)
    return ops.cast(by_token(mixed, value) * ops.cast(inverse[..., None], mixed.dtype), value.dtype)


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


def _mix(weights, columns):
    """`(H, T, S)` weights times the first `S` of `columns`."""
    size = weights.shape[2]
    return ops.matmul(weights, columns if size is None else cut(columns, 0, size, axis=1))
