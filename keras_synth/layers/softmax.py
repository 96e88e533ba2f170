"""The softmaxes of attention, and the products with them, in float32 or better whatever the logits are."""

import keras
from keras import ops

from keras_synth.core.gradients import custom_gradient

#: Below any logit, and finite, so that a row of nothing else has a gradient.
_LOWEST = -3e38
#: The least share of its weight that padding may leave a row. With less its gradient, which is divided by
#: the square of it, would leave the range of float32 where values are large.
_LEAST_SHARE = 1e-10


def as_float32(x):
    """A tensor in float32, or better."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def softmax(logits):
    """Softmax over the last axis."""
    logits = as_float32(logits)
    if logits.shape[-1] == 1:  # a sequence of length 1, which `ops.softmax` takes for a mistake
        return ops.exp(logits - logits)
    return ops.softmax(logits)


def masked_softmax(logits, mask=None):
    """Softmax over the last axis, where `mask` is true; a row without any true entry gives zeros."""
    logits = as_float32(logits)
    if mask is None:
        return softmax(logits)
    weights = softmax(ops.where(mask, logits, _LOWEST))
    return ops.where(mask, weights, 0.0)


def hide(logits, mask):
    """Logits for a softmax, the lowest where `mask` is false, whatever they were there.

    Behind the softmax the gradient of what is hidden is zero by itself, so that it passes at no cost. That
    of a row which is hidden as a whole is what the gradient of its outputs is: these must not be used.
    """
    if logits.dtype == "float16":  # whose range is too small for such numbers
        logits = as_float32(logits)

    @custom_gradient
    def hidden(logits):
        return ops.where(mask, logits, _LOWEST), lambda upstream: upstream

    return hidden(logits)


def softmax_product(logits, columns, shown=None):
    """`O = softmax(B) V`, with a gradient that reads and writes tensors of the size of `B` less often.

    With the weights `W = softmax(B)` and `dW = dO V^T`, the gradient of the logits is
    `W * (dW - sum(W * dW))`. The sum over a row is that over the row of `O * dO`, and one more column of
    the product `dO V^T` subtracts it, where the rows of `O` are shorter than those of `W`.

    Args:
        logits: Tensor of shape `(..., T, S)`.
        columns: Tensor of shape `(..., S, v)`.
        shown: bool tensor of shape `(..., S, 1)`, the values that are not hidden from all rows.
    """

    @custom_gradient
    def product(logits, columns):
        weights = ops.cast(softmax(logits), columns.dtype)
        center = _find_center(columns, -2, shown)
        columns = columns if center is None else columns - center
        output = ops.matmul(weights, columns)
        length, width = columns.shape[-2:]

        def gradient(upstream):
            sums = ops.sum(as_float32(output) * as_float32(upstream), axis=-1, keepdims=True)
            if width is not None and (length is None or width < length):
                subtracted = _split(-sums, columns.dtype)
                ones = [ops.ones((*ops.shape(columns)[:-1], 1), dtype=columns.dtype)] * len(subtracted)
                left = ops.concatenate([upstream, *subtracted], axis=-1)
                right = ops.concatenate([columns, *ones], axis=-1)
                by_weights = ops.matmul(left, ops.swapaxes(right, -1, -2))
            else:
                by_weights = as_float32(ops.matmul(upstream, ops.swapaxes(columns, -1, -2))) - sums
            by_logits = ops.cast(ops.cast(weights, by_weights.dtype) * by_weights, logits.dtype)
            return by_logits, ops.matmul(ops.swapaxes(weights, -1, -2), upstream)

        return output if center is None else output + center, gradient

    return product(logits, columns)


def softmax_product_with_padding(logits, columns, key, visible, drop=None):
    """`O = softmax(B + log m) V` of a batch that shares its logits, where `m` hides keys of each example.

    With the weights `E = softmax(B)` of all keys it is `(E (m * V)) / (E m)`, so that nothing is made of
    the size of `B` for each example, nor for the gradient. Where `m` hides nearly all the weight of a row,
    what is left is too small to divide by, and each example gets a softmax of its own.

    Args:
        logits: Tensor of shape `(H, T, S)`, in float32 or better.
        columns: Tensor of shape `(H, S, batch, v)`.
        key: bool tensor of shape `(batch, S)`, the mask `m`.
        visible: bool tensor that broadcasts to `(H, T, batch)`: the rows of which the output counts.
        drop: A function that multiplies weights, `(..., H, T, S)`, by the noise of dropout, always the
            same. Defaults to `None`.

    Returns:
        Tensor of shape `(H, T, batch, v)`.
    """
    heads, rows, length = ops.shape(logits)
    batch, width = ops.shape(columns)[2:]
    dropped = drop or (lambda weights: weights)
    shown = ops.expand_dims(ops.transpose(key), (0, 3))  # (1, S, batch, 1)

    def flatten(x):
        """`(H, n, batch, ...)` as `(H, n, batch ...)`, for one product with each head's table."""
        return ops.reshape(x, (*ops.shape(x)[:2], -1))

    @custom_gradient
    def product(logits, columns):
        columns = ops.where(shown, columns, 0.0)  # not a product: what is hidden may be infinite
        center = None if drop else _find_center(columns, 1, shown)
        columns = columns if center is None else ops.where(shown, columns - center, 0.0)
        weights = softmax(logits)
        rounded = ops.cast(dropped(weights), columns.dtype)
        total = ops.reshape(weights, (-1, length)) @ ops.transpose(ops.cast(key, weights.dtype))
        total = ops.reshape(total, (heads, rows, batch))
        large = total > _LEAST_SHARE
        inverse = ops.where(large, 1.0 / ops.where(large, total, 1.0), 0.0)[..., None]
        enough = ops.all(ops.logical_or(large, ops.logical_not(visible)))

        def weigh_each():
            """The weights of each example, `(batch, H, T, S)`."""
            each = ops.broadcast_to(logits, (batch, heads, rows, length))
            return softmax(ops.where(key[:, None, None], each, _LOWEST))

        def mix():
            mixed = ops.reshape(rounded @ flatten(columns), (heads, rows, batch, width))
            return ops.cast(as_float32(mixed) * inverse, mixed.dtype)

        def mix_each():
            each = ops.cast(dropped(weigh_each()), columns.dtype)
            return ops.einsum("bhts,hsbv->htbv", each, columns)

        output = ops.cond(enough, mix, mix_each)

        def gradient(upstream):
            sums = ops.sum(as_float32(output) * as_float32(upstream), axis=-1, keepdims=True)

            def differentiate():
                scaled = ops.cast(as_float32(upstream) * inverse, columns.dtype)
                subtracted = _split(-sums * inverse, columns.dtype)
                ones = ops.broadcast_to(ops.cast(shown, columns.dtype), (heads, length, batch, 1))
                pairs = [(scaled, columns), *((part, ones) for part in subtracted)]
                if drop is None:  # one product for all
                    pairs = [[ops.concatenate(side, axis=-1) for side in zip(*pairs, strict=True)]]
                # Not einsum, which is several times as slow in half precision.
                by_weights, *by_total = (
                    flatten(left) @ ops.swapaxes(flatten(right), 1, 2) for left, right in pairs
                )
                by_logits = weights * as_float32(sum(by_total, start=dropped(by_weights)))
                by_columns = ops.swapaxes(rounded, 1, 2) @ flatten(scaled)
                return by_logits, ops.reshape(by_columns, (heads, length, batch, width))

            def differentiate_each():
                each = weigh_each()
                by_weights = as_float32(ops.einsum("htbv,hsbv->bhts", upstream, columns))
                by_logits = each * (dropped(by_weights) - ops.einsum("htbx->bhtx", sums))
                by_columns = ops.einsum("bhts,htbv->hsbv", ops.cast(dropped(each), columns.dtype), upstream)
                return ops.sum(by_logits, axis=0), by_columns

            by_logits, by_columns = ops.cond(enough, differentiate, differentiate_each)
            return by_logits, ops.where(shown, by_columns, 0.0)

        return output if center is None else output + center, gradient

    return product(logits, columns)


def _find_center(columns, axis, shown=None):
    """The mean of the values that are shown, in half precision; otherwise `None`.

    It may be added to the output by itself, as weights sum to one. Within the products it would be rounded
    together with the rest, and leave errors that are larger than what is left when sums are subtracted.
    """
    if not _is_half(columns.dtype):
        return None
    columns = columns if shown is None else ops.where(shown, columns, 0.0)
    center = ops.mean(as_float32(columns), axis=axis, keepdims=True)
    if shown is not None:
        share = ops.mean(ops.cast(shown, center.dtype), axis=axis, keepdims=True)
        center = center / ops.where(share > 0, share, 1.0)
    return ops.cast(center, columns.dtype)


def _split(x, dtype):
    """Tensors of a dtype that add up to `x`: in half precision also what the rounding of the first lost."""
    first = ops.cast(x, dtype)
    return [first, ops.cast(x - as_float32(first), dtype)] if _is_half(dtype) else [first]


def _is_half(dtype):
    return keras.backend.standardize_dtype(dtype) in ("bfloat16", "float16")
