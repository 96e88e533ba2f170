"""Parts of tensors: slices that begin at a position which may be a tensor, and windows of neighbours."""

from keras import ops


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
    rest = len(tokens.shape) - 2
    padded = ops.pad(tokens, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * rest)
    shape = ops.shape(tokens)
    return [
        ops.slice(padded, start_indices(len(shape), 1, start_index + tap), (shape[0], length, *shape[2:]))
        for tap in range(size)
    ]


def reach(size, causal):
    """How many of the taps are on the left of the token itself."""
    return size - 1 if causal else (size - 1) // 2
