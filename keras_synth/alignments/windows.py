"""Looking at neighbouring tokens."""

from keras import ops

from keras_synth.alignments.slices import start_indices


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
