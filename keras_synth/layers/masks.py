"""Attention masks, kept apart by what they depend on. `True` means "may attend"."""

import dataclasses
from typing import Any

from keras import ops


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """The parts of an attention mask; `None` for a part that hides nothing.

    Kept apart, because only `full` forces attention to treat every example by itself: what `positions`
    hides is the same for the whole batch, and `query` and `key` hide whole rows and columns.

    Args:
        positions: bool tensor of shape `(T, S)` or `(H, T, S)`.
        query: bool tensor of shape `(batch, T)`.
        key: bool tensor of shape `(batch, S)`.
        full: bool tensor that broadcasts to `(batch, H, T, S)`.
    """

    positions: Any = None
    query: Any = None
    key: Any = None
    full: Any = None

    def merged(self):
        """All parts as one tensor that broadcasts to `(batch, H, T, S)`, or `None`."""
        return combine(
            self.full,
            self.positions,
            None if self.query is None else self.query[:, None, :, None],
            None if self.key is None else self.key[:, None, None, :],
        )


def combine(*masks):
    """Logical and of the masks that are not `None`; `None` if all are."""
    result = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else ops.logical_and(result, mask)
    return result


def causal_mask(query_length, key_length, start_index=0):
    """A `(T, S)` mask that hides from each query the keys after it.

    Args:
        query_length: int or int tensor, `T`.
        key_length: int or int tensor, `S`.
        start_index: int or int tensor. The position of the first query.
    """
    rows = start_index + ops.arange(query_length, dtype="int32")
    return ops.arange(key_length, dtype="int32") <= rows[:, None]


def filled_mask(key_length, end_index):
    """A `(1, S)` mask that hides the positions of a cache from `end_index` on."""
    return ops.arange(key_length, dtype="int32")[None] < end_index


def attention_mask(
    layer,
    lengths,
    num_heads,
    query_mask=None,
    value_mask=None,
    key_mask=None,
    attention_mask=None,
    positions=None,
):
    """Sorts the mask arguments of an attention layer into an `AttentionMask`.

    Args:
        layer: The layer, for error messages.
        lengths: `(batch, T, S)`, as far as known: ints, tensors or `None`.
        num_heads: int. The number of heads, `H`.
        query_mask: bool, int or float tensor of shape `(batch, T)`.
        value_mask: The same of shape `(batch, S)`.
        key_mask: The same of shape `(batch, S)`.
        attention_mask: The same of shape `(T, S)`, `(batch, T, S)` or `(batch, H, T, S)`, where any
            axis may be 1 but `S`.
        positions: bool tensor that broadcasts to `(T, S)` or `(H, T, S)`.

    Raises:
        ValueError: If a mask has another shape.
    """
    batch, query_length, key_length = lengths

    def check(name, mask, *shapes):
        if mask is None:
            return None
        mask = ops.cast(mask, "bool")
        if not any(_fits(mask.shape, shape) for shape in shapes):
            allowed = " or ".join(_show(shape) for shape in shapes)
            raise ValueError(
                f"`{name}` of {type(layer).__name__} '{layer.name}' must have shape {allowed}. "
                f"Received: {name} of shape {tuple(mask.shape)}"
            )
        return mask

    query = check("query_mask", query_mask, [(batch,), (query_length,)])
    key = combine(
        check("value_mask", value_mask, [(batch,), (key_length,)]),
        check("key_mask", key_mask, [(batch,), (key_length,)]),
    )
    batch, rows, columns = (batch, 1), (query_length, 1), (key_length,)
    mask = check(
        "attention_mask",
        attention_mask,
        [rows, columns],
        [batch, rows, columns],
        [batch, (num_heads, 1), rows, columns],
    )
    if mask is None:
        return AttentionMask(positions, query, key)
    if len(mask.shape) == 3:
        mask = mask[:, None]
    if len(mask.shape) == 2 or mask.shape[0] == 1:
        mask = mask[0] if len(mask.shape) == 4 else mask
        return AttentionMask(combine(positions, mask), query, key)
    if mask.shape[1] == mask.shape[2] == 1:
        return AttentionMask(positions, query, combine(key, mask[:, 0, 0]))
    return AttentionMask(positions, query, key, mask)


def _fits(shape, allowed):
    """Whether each known axis of `shape` is one of the sizes in `allowed`, as far as they are known."""
    return len(shape) == len(allowed) and all(
        axis is None or axis in sizes or not isinstance(sizes[0], int)
        for axis, sizes in zip(shape, allowed, strict=True)
    )


def _show(shape):
    return "(" + ", ".join("?" if not isinstance(s[0], int) else str(s[0]) for s in shape) + ")"
