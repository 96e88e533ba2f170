"""Parts of tensors: slices that begin at a position which may be a tensor, and windows of neighbours."""

from keras import ops

from keras_synth.core.gradients import custom_gradient


def start_indices(rank, axis, index):
    """Where a slice of a tensor of this `rank` begins, if that is at `index` along `axis`, else at 0.

    Args:
        rank: int. The number of axes.
        axis: int. The axis that is cut.
        index: int or int tensor. Where it is cut.

    Returns:
        What `keras.ops.slice` and `keras.ops.slice_update` take.
    """
    indices = [index if i == axis else 0 for i in range(rank)]
    if isinstance(index, int):
        return tuple(indices)
    return ops.stack([ops.cast(i, "int32") for i in indices])  # JAX wants them all to be of one type


def cut(x, start, size, axis):
    """The entries of `x` from `start` on along an axis.

    Its gradient costs less than that of a slice, and has gradients itself under every compiler.

    Args:
        x: A tensor.
        start: int or int tensor. Where to begin.
        size: int or int tensor. How many entries to take. More than there are is an error.
        axis: int. The axis.
    """
    if isinstance(start, int) and start == 0 and isinstance(size, int) and x.shape[axis] == size:
        return x
    axis = axis % len(x.shape)

    def slice_of(x):
        sizes = [size if i == axis else length for i, length in enumerate(ops.shape(x))]
        return ops.slice(x, start_indices(len(sizes), axis, start), sizes)

    if not isinstance(start, int):
        return slice_of(x)

    @custom_gradient
    def cut_along(x):
        length = ops.shape(x)[axis]
        return slice_of(x), lambda upstream: pad_with_zeros(upstream, start, length - start - size, axis)

    return cut_along(x)


def pad_with_zeros(x, before, after, axis):
    """`x` with so many zeros before and after it along an axis."""

    def zeros(size):
        return ops.zeros([size if i == axis else n for i, n in enumerate(ops.shape(x))], x.dtype)

    axis = axis % len(x.shape)
    sides = [[zeros(size)] if not isinstance(size, int) or size > 0 else [] for size in (before, after)]
    parts = [*sides[0], x, *sides[1]]
    return ops.concatenate(parts, axis=axis) if len(parts) > 1 else x


def windows(tokens, start_index, length, size, causal):
    """The neighbours of each token, as the taps of a convolution see them.

    Args:
        tokens: Tensor of shape `(batch, S, ...)`.
        start_index: int or int tensor. The position of the first token to look from.
        length: int or int tensor. The number of tokens to look from, `T`.
        size: int. The number of taps.
        causal: bool. Whether the last tap is the token itself; otherwise it is the one in the middle.

    Returns:
        A list of `size` tensors of shape `(batch, T, ...)`, from the leftmost tap to the rightmost, with
        zeros where there is no token.
    """
    before = reach(size, causal)
    padded = pad_with_zeros(tokens, before, size - 1 - before, axis=1)
    return [cut(padded, start_index + tap, length, axis=1) for tap in range(size)]


def reach(size, causal):
    """How many of the taps are on the left of the token itself."""
    return size - 1 if causal else (size - 1) // 2
