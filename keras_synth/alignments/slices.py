"""Slices that begin at a position which may be a tensor."""

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
