"""Texts as tokens of the length that a model takes, by operations that all servers have."""

import keras_hub
import tensorflow as tf

#: How many tokens of the first segment are kept at most, given the room for both and the second's length.
_FIRST_SHARES = {
    # One for each in turn, so that the first has the odd one, and what the other leaves.
    "round_robin": lambda room, second: tf.maximum(room - second, (room + 1) // 2),
    "waterfall": lambda room, second: room,
}


def pack(packer, *segments, sequence_length=None, add_start_value=True, add_end_value=True):
    """Packs segments of tokens as a packer does, and says which rows had to be cut.

    The tokens are those of the packer. It would cut two segments by an operation of tensorflow-text that
    older servers do not have, so it gets them cut.

    Args:
        packer: A `keras_hub.layers.StartEndPacker`, or for two segments a `MultiSegmentPacker`.
        *segments: One or two `tf.RaggedTensor` of shape `(batch, None)`.
        sequence_length: int. The length that is packed to. Defaults to the packer's.
        add_start_value: bool. Whether the start is added. Defaults to `True`.
        add_end_value: bool. Whether the end is added. Defaults to `True`.

    Returns:
        The tokens and the padding mask, both `(batch, sequence_length)`, and which rows were longer, and
        cut, `(batch,)`.
    """
    options = {
        "sequence_length": sequence_length or packer.sequence_length,
        "add_start_value": add_start_value,
        "add_end_value": add_end_value,
    }
    room = options["sequence_length"]
    room -= len(packer.start_value or ()) * add_start_value + len(packer.end_value or ()) * add_end_value
    if not isinstance(packer, keras_hub.layers.MultiSegmentPacker):
        segments, cut = _cut(segments, room)
        return *packer(*segments, **options), cut
    room -= len(packer.sep_value) * (len(segments) - 1)
    segments, cut = _cut(segments, room, packer.truncate)
    # Which has nothing left to cut, and does it by TensorFlow's own operations.
    packer = packer.from_config({**packer.get_config(), "truncate": "waterfall"})
    token_ids, _ = packer(tuple(segments), **options)
    return token_ids, token_ids != packer.pad_value, cut


def _cut(segments, room, truncate="waterfall"):
    """One or two segments without what `room` tokens do not hold, and the rows that lost a token."""
    lengths = [segment.row_lengths() for segment in segments]
    first, second = lengths if len(lengths) == 2 else (*lengths, tf.zeros_like(lengths[0]))
    kept = tf.minimum(first, _FIRST_SHARES[truncate](room, second))
    kept = [kept, tf.minimum(second, room - kept)]
    parts = [
        tf.gather(segment.values, tf.ragged.range(segment.row_starts(), segment.row_starts() + number))
        for segment, number in zip(segments, kept, strict=False)
    ]
    return parts, first + second > room
