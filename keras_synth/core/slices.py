"""Parts of tensors: slices that begin at a position which may be a tensor, windows of neighbours, and the
matrices that are made of windows or of diagonals."""

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
    return pad(x, before, after, axis, fill=0)


def pad(x, before, after, axis, fill):
    """`x` with so many entries `fill` before and after it along an axis."""

    def full(size):
        return ops.full([size if i == axis else n for i, n in enumerate(ops.shape(x))], fill, x.dtype)

    axis = axis % len(x.shape)
    sides = [[full(size)] if not isinstance(size, int) or size > 0 else [] for size in (before, after)]
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


def skew(windows, fill=0.0):
    """Shifts each row by one place more than the row before: `(..., T, w)` as `(..., T, T + w - 1)`.

    What was entry `k` of row `i` is entry `i + k`; all others are `fill`.
    """
    *batch, rows, width = ops.shape(windows)
    padded = pad(windows, 0, rows, axis=-1, fill=fill)
    flat = ops.reshape(padded, (*batch, rows * (rows + width)))
    return ops.reshape(cut(flat, 0, rows * (rows + width - 1), axis=-1), (*batch, rows, rows + width - 1))


def place_windows(windows, first, columns, fill):
    """The rows of a matrix that are given by windows, the first of which begins at a column `first`.

    Args:
        windows: Tensor of shape `(..., T, w)`. That of row `i` begins at column `first + i`.
        first: int or int tensor, which may be negative.
        columns: int or int tensor. The number of columns, `S`.
        fill: float. What the matrix is outside of the windows.

    Returns:
        Tensor of shape `(..., T, S)`.
    """
    # Room on both sides, so that what is cut is there wherever the windows lie.
    skewed = pad(skew(windows, fill), columns, columns, axis=-1, fill=fill)
    return cut(skewed, columns - first, columns, axis=-1)


def toeplitz(diagonals, rows, columns):
    """A matrix that is constant along its diagonals.

    Args:
        diagonals: Tensor of shape `(..., T + S - 1)`, from the lower left corner to the upper right one.
        rows: int or int tensor, `T`.
        columns: int or int tensor, `S`.

    Returns:
        Tensor of shape `(..., T, S)`.
    """
    *batch, length = ops.shape(diagonals)
    # All diagonals over and over again: what lies `length` places further on is the same row shifted by
    # one. The gradient is a sum, where that of a gather would be a scatter.
    padded = pad_with_zeros(diagonals, 0, 1, axis=-1)
    repeated = ops.broadcast_to(ops.expand_dims(padded, -2), (*batch, rows, length + 1))
    flat = ops.reshape(repeated, (*batch, rows * (length + 1)))
    shifted = ops.reshape(cut(flat, rows - 1, rows * length, axis=-1), (*batch, rows, length))
    return cut(shifted, 0, columns, axis=-1)
