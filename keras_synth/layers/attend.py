"""From alignment logits and values to attention outputs: `softmax(B) V`.

`attend_per_example` is ordinary attention. `attend_shared` and `attend_shared_with_padding` serve logits
without a batch axis, and never make anything of size `batch * H * T * S`.
"""

import dataclasses

import keras
from keras import ops

from keras_synth.layers.masks import combine

#: float32 holds `exp(x)` for x in (-87, 88), so also for x in (-80, 80) times whatever values there are.
_SAFE_RANGE = 80.0
#: The least sum of softmax weights that has the precision of float32.
_LEAST_TOTAL = 1e-20
#: The rows of a causal attention matrix that are worked off together.
_BLOCK = 256
#: Below any logit, and finite, so that a row of nothing else has a gradient.
_LOWEST = -3e38


def attend(logits, value, mask, dropout, training):
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

    def scores():
        weights = ops.cast(masked_softmax(logits, mask.merged()), value.dtype)
        return ops.broadcast_to(weights, (ops.shape(value)[0], *ops.shape(logits)[-3:]))

    return path(logits, value, mask, dropout, training), scores


def attend_one_query(logits, value, mask, dropout, training):
    """Attention of a single query, as in decoding."""
    logits = logits[None] if len(logits.shape) == 3 else logits
    weights = ops.cast(masked_softmax(logits, mask.merged()), value.dtype)
    return _mix_for_one_query(dropout(weights, training=training), value)


def attend_per_example(logits, value, mask, dropout, training):
    """Attention with logits, or a mask, of its own for each example."""
    if len(logits.shape) == 3:
        logits = ops.broadcast_to(logits, (ops.shape(value)[0], *ops.shape(logits)))
    columns = ops.transpose(value, (0, 2, 1, 3))
    mixed, visible = _attend_by_blocks(logits, columns, mask, dropout, training)
    return _show(ops.transpose(mixed, (0, 2, 1, 3)), visible)


def attend_shared(logits, value, mask, dropout, training):
    """Attention with the same logits for all examples, as one matrix product for each head."""
    # The gradient of an index, such as `logits[None]`, would be a copy.
    logits, columns = ops.expand_dims(logits, 0), ops.expand_dims(_by_head(value), 0)
    mixed, visible = _attend_by_blocks(logits, columns, mask, dropout, training)
    return _show(_by_token(ops.squeeze(mixed, 0), value), visible)


def _attend_by_blocks(logits, columns, mask, dropout, training):
    """`softmax(B) V`, where a causal mask is worked off in blocks of rows.

    A block leaves out the columns that none of its rows sees, which saves up to half of the work.

    Args:
        logits: Tensor of shape `(n, H, T, S)`.
        columns: Tensor of shape `(n, H, S, v)`.
        mask: An `AttentionMask` that broadcasts to `(n, H, T, S)`, `query` aside.
        dropout: A `keras.layers.Dropout` for the attention weights.
        training: bool. Whether dropout acts.

    Returns:
        Tensor of shape `(n, H, T, v)`, and a mask of the queries that see anything, which broadcasts to
        `(batch, H, T, 1)`, or `None` if all do.
    """
    by_key = dataclasses.replace(mask, query=None)
    rows = [(block, block_mask.merged()) for block, block_mask in _blocks(logits, by_key)]
    mixed = _joined([_attend_block(block, seen, columns, dropout, training) for block, seen in rows])
    visible = None if mask.query is None else mask.query[:, None, :, None]
    if by_key.may_hide_all:
        visible = combine(visible, _joined([ops.any(seen, axis=-1, keepdims=True) for _, seen in rows]))
    return mixed, visible


def _attend_block(logits, mask, columns, dropout, training):
    """`softmax(B) V` where `mask` is true. A row where it is true nowhere gets anything finite."""
    if mask is not None:
        # The range of float16 is too small for such numbers.
        logits = _add_mask(_as_float32(logits) if logits.dtype == "float16" else logits, mask)
    columns = _first(columns, logits.shape[-1], axis=-2)
    if not training or dropout.rate == 0:
        return _softmax_product(logits, columns)
    weights = dropout(ops.cast(_softmax(_as_float32(logits)), columns.dtype), training=training)
    return ops.matmul(weights, columns)


@ops.custom_gradient
def _softmax_product(logits, columns):
    """`O = softmax(B) V`, with a gradient that reads and writes tensors of the size of `B` less often.

    With the weights `W = softmax(B)` and `dW = dO V^T`, the gradient of the logits is
    `W * (dW - sum(W * dW))`. The sum over a row is that over the row of `O * dO`, and one more column of
    the product `dO V^T` subtracts it, where the rows of `O` are shorter than those of `W`.
    """
    weights = ops.cast(_softmax(_as_float32(logits)), columns.dtype)
    output = ops.matmul(weights, columns)
    length, width = columns.shape[-2:]

    def gradient(*args, upstream=None):
        upstream = args[0] if upstream is None else upstream
        if width is not None and (length is None or width < length):
            sums = ops.sum(output * upstream, axis=-1, keepdims=True)
            left = ops.concatenate([upstream, -sums], axis=-1)
            right = ops.concatenate([columns, ops.ones_like(columns[..., :1])], axis=-1)
            by_weights = ops.matmul(left, ops.swapaxes(right, -1, -2))
        else:
            by_weights = ops.matmul(upstream, ops.swapaxes(columns, -1, -2))
            by_weights = by_weights - ops.sum(weights * by_weights, axis=-1, keepdims=True)
        by_columns = ops.matmul(ops.swapaxes(weights, -1, -2), upstream)
        return ops.cast(weights * by_weights, logits.dtype), by_columns

    return output, gradient


def _mix_for_one_query(weights, value):
    """`(batch, H, 1, S)` weights, where `batch` may be 1, times values, as `(batch, 1, H, v)`.

    In decoding, to bring the axes of a cache into the order of a product for each head takes longer than
    anything else. Here each head mixes the values of all heads, as they lie there, and keeps its own.
    """
    batch, length, heads, value_dim = ops.shape(value)
    mixed = ops.matmul(weights[:, :, 0], ops.reshape(value, (batch, length, heads * value_dim)))
    return ops.einsum("bhhv->bhv", ops.reshape(mixed, (batch, heads, heads, value_dim)))[:, None]


def attend_shared_with_padding(logits, value, mask, dropout, training):
    """`attend_shared` for values of which a mask `m` hides others in each example.

    With `E` proportional to `exp(R)`, the output is `(E (m * V)) / (E m)`.
    """
    rows = [
        (*_hide(block, block_mask), _dropout_noise(block, dropout, training))
        for block, block_mask in _blocks(_as_float32(logits), mask)
    ]

    def mix(numerators):
        weights = [(numerators(block, hidden), noise) for block, hidden, noise in rows]
        return _mix_visible(weights, value, mask)

    mixed, total = mix(_softmax_numerators)
    # Softmax over all columns is in the wrong range where padding hides nearly all the weight of a row.
    enough = total > _LEAST_TOTAL
    if mask.query is not None:
        enough = ops.logical_or(enough, ops.logical_not(ops.transpose(mask.query)))
    mixed, total = ops.cond(ops.all(enough), lambda: (mixed, total), lambda: mix(raised_softmax))
    return _divided(mixed, total, value, mask)


def attend_finished(weights, value, mask):
    """The attention of `attend_shared_with_padding` with the softmax done before, at inference.

    Args:
        weights: Tensor of shape `(H, T, S)`, the rows and columns of what `raised_softmax` made.
        value: Tensor of shape `(batch, S, H, value_dim)`.
        mask: An `AttentionMask` whose `full` and `positions` are `None`. If causal, `weights` are too.

    Returns:
        Output of shape `(batch, T, H, value_dim)`.
    """
    if weights.shape[1] == 1:
        weights = ops.cast(weights[None], "float32")
        if mask.key is not None:
            weights = ops.where(mask.key[:, None, None], weights, 0.0)
        total = ops.sum(weights, axis=-1, keepdims=True)
        weights = ops.cast(weights / ops.where(total > 0, total, 1.0), value.dtype)
        visible = None if mask.query is None else mask.query[:, None, :, None]
        return _show(_mix_for_one_query(weights, value), visible)
    rows = [(block, None) for block, _ in _blocks(weights, mask)]
    return _divided(*_mix_visible(rows, value, mask), value, mask)


def _mix_visible(rows, value, mask):
    """`E (m * V)`, as `(H, T, batch v)`, and `E m`, as `(H, T, batch)`.

    Args:
        rows: A list of weights `(H, T, S)`, each with its dropout noise.
        value: Tensor of shape `(batch, S, H, v)`.
        mask: An `AttentionMask`.
    """
    # The range of float16 is too small for weights that are not normalized.
    value = ops.cast(value, "float32" if value.dtype == "float16" else value.dtype)
    batch, length, heads = ops.shape(value)[:3]
    if mask.key is None:
        ones = ops.ones((heads, length, 1))
    else:
        key = ops.broadcast_to(mask.key, (batch, length))
        # Not a product: the gradient of a value that is hidden may be infinite.
        value = ops.where(key[:, :, None, None], value, 0.0)
        ones = ops.broadcast_to(ops.transpose(key), (heads, length, batch))
    columns = _by_head(value)
    mixed = [_mix(weights, noise, columns) for weights, noise in rows]
    dtype = keras.backend.result_type(rows[0][0].dtype, "float32")
    totals = [_mix(ops.cast(weights, dtype), None, ops.cast(ones, dtype)) for weights, _ in rows]
    return _joined(mixed), _joined(totals)


def _divided(mixed, total, value, mask):
    """The quotient of what `_mix_visible` returns, like `value`; zeros where a query sees nothing."""
    total = ops.transpose(total, (2, 1, 0))
    visible = total > 0
    if mask.query is not None:
        visible = ops.logical_and(visible, mask.query[..., None])
    # exp(-log x) is 1 / x whose gradient does not overflow where x is tiny.
    inverse = ops.where(visible, ops.exp(-ops.log(ops.where(visible, total, 1.0))), 0.0)
    return ops.cast(_by_token(mixed, value) * ops.cast(inverse[..., None], mixed.dtype), value.dtype)


def _show(output, visible):
    """`(batch, T, H, v)` outputs, with zeros where `visible`, of the order `(batch, H, T, 1)`, is false."""
    return output if visible is None else ops.where(ops.transpose(visible, (0, 2, 1, 3)), output, 0.0)


def _blocks(table, mask):
    """Cuts `(..., T, S)` into blocks of rows: pairs of a block and its mask.

    A block of a causal table ends with the last column that its last row sees. Only what has a known
    length is cut.
    """
    length, key_length = table.shape[-2:]
    if mask.causal is None or length is None or length != key_length or length <= _BLOCK:
        return [(table, mask)]
    starts = range(0, length, _BLOCK)
    ends = [*starts[1:], length]

    @ops.custom_gradient
    def cut(table):
        blocks = [table[..., start:end, :end] for start, end in zip(starts, ends, strict=True)]

        def gradient(*args, upstream=None):
            # That of slices would add up as many tensors of the size of the table.
            rows = keras.tree.flatten(args if upstream is None else upstream)
            return _joined([_extended(row, length, axis=-1) for row in rows])

        return blocks, gradient

    masks = [mask.block(start, end) for start, end in zip(starts, ends, strict=True)]
    return list(zip(cut(table), masks, strict=True))


def _hide(block, mask):
    """A block of logits, and the mask that is left to apply to it, `(T, S)` or `(H, T, S)`, or `None`."""
    if mask.causal is None or mask.positions is not None:
        return block, combine(mask.positions, mask.causal)
    # Every row sees a column, so that this suffices.
    return _add_mask(block, mask.causal), None


def _add_mask(logits, mask):
    """Logits, the lowest where `mask` is false. Unlike that of `where`, the gradient costs nothing."""
    return logits + ops.cast(ops.where(mask, 0.0, _LOWEST), logits.dtype)


def _first(x, size, axis):
    """The first `size` entries of `x` along an axis, with a faster gradient than that of a slice."""
    if x.shape[axis] == size:
        return x

    @ops.custom_gradient
    def first(x):
        shape = list(ops.shape(x))

        def gradient(*args, upstream=None):
            (upstream,) = args if upstream is None else (upstream,)
            return _extended(upstream, shape[axis], axis)

        return ops.slice(x, [0] * len(shape), [*shape[:axis], size, *shape[axis + 1 :]]), gradient

    return first(x)


def _extended(x, size, axis):
    """`x`, with zeros up to a size along an axis."""
    shape = list(ops.shape(x))
    if shape[axis] == size:
        return x
    shape[axis] = size - shape[axis]
    return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis=axis)


def masked_softmax(logits, mask=None):
    """Softmax over the last axis, where `mask` is true; a row without any true entry gives zeros."""
    logits = _as_float32(logits)
    if mask is None:
        return _softmax(logits)
    weights = _softmax(ops.where(mask, logits, _LOWEST))
    return ops.where(mask, weights, 0.0)


def _as_float32(logits):
    """Logits in float32, or better."""
    return ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))


def _softmax(logits):
    if logits.shape[-1] == 1:  # a sequence of length 1, which `ops.softmax` takes for a mistake
        return ops.exp(logits - logits)
    return ops.softmax(logits)


@ops.custom_gradient
def _exponentials(logits):
    """Softmax, to be divided by a sum of itself, so that it has the gradient of `exp` times a constant."""
    weights = _softmax(logits)

    def gradient(*args, upstream=None):
        return weights * (args[0] if upstream is None else upstream)

    return weights, gradient


def _softmax_numerators(logits, mask):
    weights = _exponentials(logits if mask is None else ops.where(mask, logits, _LOWEST))
    return weights if mask is None else ops.where(mask, weights, 0.0)


def raised_softmax(logits, mask):
    """`softmax(logits)` times a factor for each row, which is 1 but for rows with a wide spread of logits.

    A padding mask may hide the largest logits of a row and leave one that is so much smaller that its
    weight vanishes. Such rows are therefore raised, by as much as float32 allows. Zeros where `mask` is
    false.
    """
    allowed = logits if mask is None else ops.where(mask, logits, _LOWEST)
    total = ops.logsumexp(allowed, axis=-1, keepdims=True)
    lowest = ops.min(ops.where(allowed > _LOWEST / 2, allowed, total), axis=-1, keepdims=True)
    raised = ops.clip(total - lowest - _SAFE_RANGE, 0.0, _SAFE_RANGE)
    weights = ops.exp(allowed - ops.stop_gradient(total - raised))
    return weights if mask is None else ops.where(mask, weights, 0.0)


def _dropout_noise(logits, dropout, training):
    """What weights are multiplied by, or `None`: drawn once, however often they are computed."""
    if not training or dropout.rate == 0:
        return None
    return dropout(ops.ones_like(logits), training=training)


def _by_head(value):
    """`(batch, S, H, v)` values as `(H, S, batch v)`.

    With these columns there is one product `(T, S) x (S, batch v)` for each head. Einsum's own order of
    axes is up to twice as slow.
    """
    _, length, heads, _ = ops.shape(value)
    return ops.reshape(ops.transpose(value, (2, 1, 0, 3)), (heads, length, -1))


def _mix(weights, noise, columns):
    """`(H, T, S)` weights times the first `S` of `columns`."""
    weights = weights if noise is None else weights * noise
    return ops.matmul(ops.cast(weights, columns.dtype), _first(columns, weights.shape[2], axis=1))


def _joined(rows):
    """Blocks of rows as one table."""
    return ops.concatenate(rows, axis=-2) if len(rows) > 1 else rows[0]


def _by_token(mixed, value):
    """`(H, T, batch v)` outputs as `(batch, T, H, v)`."""
    heads, length, _ = ops.shape(mixed)
    mixed = ops.reshape(mixed, (heads, length, -1, value.shape[-1]))
    return ops.transpose(mixed, (2, 1, 0, 3))
