"""The softmaxes of attention, and the products with them, in float32 or better whatever the logits are."""

import keras
from keras import ops

from keras_synth.core.gradients import custom_gradient

#: Below any logit, and finite, so that a row of nothing else has a gradient.
_LOWEST = -3e38


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


@custom_gradient
def softmax_product(logits, columns):
    """`O = softmax(B) V`, with a gradient that reads and writes tensors of the size of `B` less often.

    With the weights `W = softmax(B)` and `dW = dO V^T`, the gradient of the logits is
    `W * (dW - sum(W * dW))`. The sum over a row is that over the row of `O * dO`, and one more column of
    the product `dO V^T` subtracts it, where the rows of `O` are shorter than those of `W`.

    Args:
        logits: Tensor of shape `(..., T, S)`.
        columns: Tensor of shape `(..., S, v)`.
    """
    weights = ops.cast(softmax(logits), columns.dtype)
    is_rounded = keras.backend.standardize_dtype(columns.dtype) in ("bfloat16", "float16")
    center = 0.0
    if is_rounded:
        # The mean of the values is added without a product. Rounded as a part of them, it would leave
        # errors larger than what is left when the sum is subtracted.
        center = ops.mean(columns, axis=-2, keepdims=True)
        columns = columns - center
    output = ops.matmul(weights, columns)
    length, width = columns.shape[-2:]

    def gradient(upstream):
        sums = ops.sum(as_float32(output) * as_float32(upstream), axis=-1, keepdims=True)
        if width is not None and (length is None or width + 2 < length):
            subtracted = [ops.cast(-sums, columns.dtype)]
            if is_rounded:  # what the rounding of the first column lost
                subtracted.append(ops.cast(-sums - as_float32(subtracted[0]), columns.dtype))
            ones = [ops.ones_like(columns[..., :1])] * len(subtracted)
            left = ops.concatenate([upstream, *subtracted], axis=-1)
            right = ops.concatenate([columns, *ones], axis=-1)
            by_weights = ops.matmul(left, ops.swapaxes(right, -1, -2))
        else:
            by_weights = as_float32(ops.matmul(upstream, ops.swapaxes(columns, -1, -2))) - sums
        by_columns = ops.matmul(ops.swapaxes(weights, -1, -2), upstream)
        return ops.cast(ops.cast(weights, by_weights.dtype) * by_weights, logits.dtype), by_columns

    return output + center, gradient


def exponentials(logits):
    """`exp(B)`, divided by the sum of each row, which counts as a constant: the weights of a softmax.

    For quotients of sums of them, of which the constant is no part.
    """
    weights = ops.stop_gradient(softmax(logits))

    @custom_gradient
    def as_exponential(logits):
        # Not a product of `weights`, which are constant here: so that second derivatives are right too.
        return weights, lambda upstream: upstream * as_exponential(logits)

    return as_exponential(as_float32(logits))
