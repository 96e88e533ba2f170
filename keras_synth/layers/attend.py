"""From alignment logits and values to attention outputs: `softmax(B) V`.

There are two paths. `attend_per_example` is ordinary attention. `attend_shared` serves logits without
a batch axis, and never makes anything of size `batch * H * T * S`.
"""

import keras
from keras import ops

#: float32 holds `exp(x)` for x in (-87, 88), so also for x in (-80, 80) times whatever values there are.
_SAFE_RANGE = 80.0
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

    A padding mask `m` keeps this possible: with `E` proportional to `exp(R)`, the
    output is `(E (m * V)) / (E m)`.
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

    weights = _raised_softmax(logits, mask.positions)
    key = ops.cast(mask.key, weights.dtype)
    total = ops.einsum("hts,bs->bth", weights, key)
    # exp(-log x) is 1 / x whose gradient does not overflow where x is tiny.
    inverse = ops.where(total > 0, ops.exp(-ops.log(ops.where(total > 0, total, 1.0))), 0.0)
    if mask.query is not None:
        inverse = inverse * ops.cast(mask.query, inverse.dtype)[:, :, None]

    # The range of float16 is too small for weights that are not normalized yet.
    mixed_dtype = "float32" if dtype == "float16" else dtype
    # Not a product: the gradient of a value that is hidden may be infinite.
    masked_value = ops.where(mask.key[:, :, None, None], ops.cast(value, mixed_dtype), 0.0)
    mixed = _mix(ops.cast(dropout(weights, training=training), mixed_dtype), masked_value)
    output = ops.cast(mixed * ops.cast(inverse[..., None], mixed_dtype), dtype)

    def scores():
        inverse_rows = ops.transpose(inverse, (0, 2, 1))[..., None]
        result = ops.cast(weights * key[:, None, None, :] * inverse_rows, dtype)
        return ops.broadcast_to(result, (ops.shape(value)[0], *ops.shape(weights)))

    return output, scores


def masked_softmax(logits, mask=None):
    """Softmax over the last axis, where `mask` is true; a row without any true entry gives zeros."""
    if mask is None:
        return _softmax(logits)
    weights = _softmax(ops.where(mask, logits, _LOWEST))
    return ops.where(mask, weights, 0.0)


def _softmax(logits):
    if logits.shape[-1] == 1:  # a sequence of length 1, which `ops.softmax` takes for a mistake
        return ops.exp(logits - logits)
    return ops.softmax(logits)


def _raised_softmax(logits, mask):
    """`softmax(logits)` times a factor for each row, which is 1 but for rows with a wide spread of logits.

    A padding mask may hide the largest logits of a row and leave one that is so much smaller that its
    weight vanishes. Such rows are therefore raised, by as much as float32 allows. Zeros where `mask` is
    false.
    """
    allowed = logits if mask is None else ops.where(mask, logits, _LOWEST)
    total = ops.logsumexp(allowed, axis=-1, keepdims=True)
    lowest = ops.min(logits if mask is None else ops.where(mask, logits, total), axis=-1, keepdims=True)
    raised = ops.clip(total - lowest - _SAFE_RANGE, 0.0, _SAFE_RANGE)
    weights = ops.exp(allowed - ops.stop_gradient(total - raised))
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
