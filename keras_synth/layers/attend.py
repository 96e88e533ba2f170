"""From alignment logits and values to attention outputs: `softmax(B) V`.

There are two paths. `attend_per_example` is ordinary attention. `attend_shared` serves logits without
a batch axis, and never makes anything of size `batch * H * T * S`.
"""

import keras
from keras import ops

#: float32 holds `exp(x)` for x in (-87, 88). Within a row, logits this far below the maximum are
#: represented without further ado.
_SAFE_RANGE = 80.0
#: The most that the maximum of a row may be raised above `exp(0)`, which leaves room for sums over
#: thousands of values.
_MAX_SHIFT = 75.0


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
    shared = len(logits.shape) == 3
    logits = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    if shared and mask.full is None:
        return attend_shared(logits, value, mask, dropout, training)
    return attend_per_example(logits, value, mask.merged(), dropout, training)


def attend_per_example(logits, value, mask, dropout, training):
    """Attention with logits, or a mask, of its own for each example."""
    weights = masked_softmax(logits, mask)
    weights = ops.cast(weights, value.dtype)
    output = ops.einsum("bhts,bshv->bthv", dropout(weights, training=training), value)
    return output, lambda: weights


def attend_shared(logits, value, mask, dropout, training):
    """Attention with the same logits for all examples, as one matrix product for each head.

    A padding mask `m` keeps this possible: with `E = exp(R - shift)`, the output is
    `(E (m * V)) / (E m)`.
    """
    dtype = value.dtype
    if mask.key is None:
        weights = masked_softmax(logits, mask.positions)
        output = _mix(ops.cast(dropout(weights, training=training), dtype), value)
        query = None if mask.query is None else ops.cast(mask.query, dtype)
        if query is not None:
            output = output * query[:, :, None, None]

        def scores():
            batch = ops.shape(value)[0]
            result = ops.broadcast_to(ops.cast(weights, dtype), (batch, *ops.shape(weights)))
            return result if query is None else result * query[:, None, :, None]

        return output, scores

    weights = _shifted_exp(logits, mask.positions)
    key = ops.cast(mask.key, weights.dtype)
    total = ops.einsum("hts,bs->bth", weights, key)
    # exp(-log x) is 1 / x whose gradient does not overflow where x is tiny.
    inverse = ops.where(total > 0, ops.exp(-ops.log(ops.where(total > 0, total, 1.0))), 0.0)
    if mask.query is not None:
        inverse = inverse * ops.cast(mask.query, inverse.dtype)[:, :, None]

    # The range of float16 is too small for weights that are not normalized yet.
    mixed_dtype = "float32" if dtype == "float16" else dtype
    masked_value = ops.cast(value, mixed_dtype) * ops.cast(key, mixed_dtype)[:, :, None, None]
    mixed = _mix(ops.cast(dropout(weights, training=training), mixed_dtype), masked_value)
    output = ops.cast(mixed * ops.cast(inverse[..., None], mixed_dtype), dtype)

    def scores():
        inverse_rows = ops.transpose(inverse, (0, 2, 1))[..., None]
        return ops.cast(weights * key[:, None, None, :] * inverse_rows, dtype)

    return output, scores


def masked_softmax(logits, mask=None):
    """Softmax over the last axis, where `mask` is true; a row without any true entry gives zeros."""
    if mask is None:
        return _softmax(logits)
    lowest = -3e38  # finite, so that a row of nothing else has a gradient; below any logit
    weights = _softmax(ops.where(mask, logits, lowest))
    return ops.where(mask, weights, 0.0)


def _softmax(logits):
    if logits.shape[-1] == 1:  # a sequence of length 1, which `ops.softmax` takes for a mistake
        return ops.exp(logits - logits)
    return ops.softmax(logits)


def _shifted_exp(logits, mask):
    """`exp(logits - shift)` with a shift for each row, and zeros where `mask` is false.

    The shift is the maximum of the row, so that the largest entry is 1. A padding mask may hide that
    entry and leave one that is so much smaller that its exponential vanishes; rows with such a spread
    of logits are therefore raised, by as much as float32 allows.
    """
    allowed = logits if mask is None else ops.where(mask, logits, -3e38)
    highest = ops.max(allowed, axis=-1, keepdims=True)
    lowest = ops.min(logits if mask is None else ops.where(mask, logits, highest), -1, keepdims=True)
    raised = ops.clip(highest - lowest - _SAFE_RANGE, 0.0, _MAX_SHIFT)
    weights = ops.exp(allowed - ops.stop_gradient(highest - raised))
    return weights if mask is None else ops.where(mask, weights, 0.0)


def _mix(weights, value):
    """`(H, T, S)` weights times `(batch, S, H, v)` values, as `(batch, T, H, v)`.

    One `(T, S) x (S, batch v)` product for each head: einsum's own order of axes is up to twice as slow.
    """
    length, heads, value_dim = ops.shape(value)[1:]
    value = ops.reshape(ops.transpose(value, (2, 1, 0, 3)), (heads, length, -1))
    mixed = ops.matmul(weights, value)
    mixed = ops.reshape(mixed, (heads, ops.shape(weights)[1], -1, value_dim))
    return ops.transpose(mixed, (2, 1, 0, 3))
