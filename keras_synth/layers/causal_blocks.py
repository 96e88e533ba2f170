"""A causal attention matrix in blocks of rows, which leave out the columns that none of their rows sees."""

from keras import ops

from keras_synth.core.gradients import custom_gradient
from keras_synth.core.slices import pad_with_zeros

#: The rows of a block.
_SIZE = 256


def cut_into_blocks(table, mask):
    """Cuts a table of logits or weights into blocks of rows.

    A block of a causal table ends with the last column that its last row sees, which saves up to half of
    the work. Only what has a known length is cut.

    Args:
        table: Tensor of shape `(..., T, S)`.
        mask: An `AttentionMask` of it.

    Returns:
        A list of pairs of a block and its mask.
    """
    length, key_length = table.shape[-2:]
    if mask.causal is None or length is None or length != key_length or length <= _SIZE:
        return [(table, mask)]
    starts = range(0, length, _SIZE)
    ends = [*starts[1:], length]

    @custom_gradient
    def cut_rows(table):
        blocks = [table[..., start:end, :end] for start, end in zip(starts, ends, strict=True)]

        def gradient(upstream):
            # That of slices would add up as many tensors of the size of the table.
            return join_blocks(
                [pad_with_zeros(row, 0, length - row.shape[-1], axis=-1) for row in upstream]
            )

        return blocks, gradient

    masks = [mask.block(start, end) for start, end in zip(starts, ends, strict=True)]
    return list(zip(cut_rows(table), masks, strict=True))


def join_blocks(rows, axis=-2):
    """Blocks of rows as one table."""
    return ops.concatenate(rows, axis=axis) if len(rows) > 1 else rows[0]
