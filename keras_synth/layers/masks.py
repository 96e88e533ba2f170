"""Attention masks, kept apart by what they depend on. `True` means "may attend"."""

import dataclasses
from typing import Any

from keras import ops

from keras_synth.core.slices import cut


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """The parts of an attention mask; `None` for a part that hides nothing.

    Kept apart, because only `full` forces attention to treat every example by itself: what `causal` and
    `positions` hide is the same for the whole batch, and `query`, `key` and `columns` hide whole rows and
    columns. And `key` is apart from `columns`, because an alignment that looks at neighbours or at the end
    of a sequence has to know its padding, while an attention mask only hides logits.

    Args:
        causal: bool tensor of shape `(T, S)`, true where a key is not after the query.
        positions: bool tensor of shape `(T, S)` or `(H, T, S)`.
        query: bool tensor of shape `(batch, T)`.
        key: bool tensor of shape `(batch, S)`, false for padding.
        columns: bool tensor of shape `(batch, S)` or `(1, S)`, of an attention mask.
        full: bool tensor that broadcasts to `(batch, H, T, S)`.
    """

    causal: Any = None
    positions: Any = None
    query: Any = None
    key: Any = None
    columns: Any = None
    full: Any = None

    @classmethod
    def of(
        cls,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        positions=None,
    ):
        """Sorts the mask arguments of an attention layer, of the shapes that `check_shapes` allows.

        Args:
            query_mask: bool, int or float tensor of shape `(batch, T)`.
            value_mask: The same of shape `(batch, S)`.
            key_mask: The same of shape `(batch, S)`.
            attention_mask: The same of shape `(T, S)`, `(batch, T, S)` or `(batch, H, T, S)`.
            positions: bool tensor that broadcasts to `(T, S)`.
        """
        query_mask, value_mask, key_mask, mask = (
            None if mask is None else ops.cast(mask, "bool")
            for mask in (query_mask, value_mask, key_mask, attention_mask)
        )
        key = combine(value_mask, key_mask)
        if mask is None:
            return cls(None, positions, query_mask, key)
        if hides_columns(mask.shape):
            column_mask = ops.reshape(mask, (-1, ops.shape(mask)[-1]))
            return cls(None, positions, query_mask, key, column_mask)
        if len(mask.shape) == 2:
            return cls(None, combine(positions, mask), query_mask, key)
        if len(mask.shape) == 3:
            mask = mask[:, None]
        if mask.shape[0] == 1:
            return cls(None, combine(positions, mask[0]), query_mask, key)
        return cls(None, positions, query_mask, key, full=mask)

    @property
    def visible_keys(self):
        """The keys that nothing hides as a whole, `(batch, S)` or `(1, S)`; `None` for all."""
        return combine(self.key, self.columns)

    def merged(self):
        """All parts as one tensor of four axes that broadcasts to `(batch, H, T, S)`, or `None`."""
        positions = combine(self.causal, self.positions)
        if positions is not None:
            positions = ops.reshape(positions, (1, -1, *ops.shape(positions)[-2:]))
        keys = self.visible_keys
        return combine(
            self.full,
            positions,
            None if self.query is None else self.query[:, None, :, None],
            None if keys is None else keys[:, None, None, :],
        )

    def with_causal(self, query_length, key_length, start_index=0):
        """The mask that also hides from each query the keys after it; arguments as in `causal_mask`."""
        return dataclasses.replace(self, causal=causal_mask(query_length, key_length, start_index))

    def without_query(self):
        """The mask without the part that hides whole rows."""
        return dataclasses.replace(self, query=None)

    @property
    def may_hide_all(self):
        """Whether a query, not padding itself, may have nothing to attend to. `causal` leaves it a key."""
        return any(part is not None for part in (self.positions, self.key, self.columns, self.full))

    def block(self, start, end):
        """The rows from `start` to `end`, and the columns up to `end`."""

        def cut_part(part):
            if part is None:
                return None
            return part[..., :end] if part.shape[-2] == 1 else part[..., start:end, :end]

        return AttentionMask(
            causal=cut_part(self.causal),
            positions=cut_part(self.positions),
            query=None if self.query is None else self.query[:, start:end],
            key=None if self.key is None else self.key[:, :end],
            columns=None if self.columns is None else self.columns[:, :end],
            full=cut_part(self.full),
        )


def hides_columns(shape):
    """Whether an attention mask of this shape hides the same keys from all queries of an example."""
    return all(size == 1 for size in shape[-3 if len(shape) == 4 else -2 : -1])


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


def window_mask(query_length, key_length, size, start_index=0):
    """A `(T, S)` mask that hides from each query the keys that are `size` positions away, or more.

    Args:
        query_length: int or int tensor, `T`.
        key_length: int or int tensor, `S`.
        size: int.
        start_index: int or int tensor. The position of the first query.
    """
    rows = start_index + ops.arange(query_length, dtype="int32")
    return ops.abs(ops.arange(key_length, dtype="int32") - rows[:, None]) < size


def filled_mask(key_length, end_index):
    """A `(1, S)` mask that hides the positions of a cache from `end_index` on."""
    return ops.arange(key_length, dtype="int32")[None] < end_index


def cut_columns(layer, start, size, query_mask, attention_mask=None, **columns):
    """Mask arguments without the columns before `start`, and from `start + size` on.

    Raises:
        ValueError: If `attention_mask` hides more than columns.
    """
    if attention_mask is not None and not hides_columns(attention_mask.shape):
        raise ValueError(
            f"The cache of {type(layer).__name__} '{layer.name}' holds no single tokens, so an "
            "`attention_mask` can only hide padding: it must have shape (batch, 1, S). "
            f"Received: attention_mask of shape {tuple(attention_mask.shape)}"
        )
    columns = {"attention_mask": attention_mask, **columns}
    cut_masks = {
        n: mask if mask is None else cut(mask, start, size, axis=-1) for n, mask in columns.items()
    }
    return {"query_mask": query_mask, **cut_masks}


def check_shapes(layer, lengths, query_mask=None, value_mask=None, key_mask=None, attention_mask=None):
    """Checks the shapes of the mask arguments of an attention layer.

    Args:
        layer: The layer.
        lengths: `(batch, T, S)`. What is no int is not known, and matches everything.
        query_mask: Tensor of shape `(batch, T)`.
        value_mask: Tensor of shape `(batch, S)`.
        key_mask: Tensor of shape `(batch, S)`.
        attention_mask: Tensor of shape `(T, S)`, `(batch, T, S)` or `(batch, H, T, S)`, where any axis
            but the last may be 1.

    Raises:
        ValueError: If a mask has another shape.
    """
    batch, query_length, key_length = lengths
    rows, columns = (query_length, 1), (key_length,)
    allowed = {
        "query_mask": (query_mask, [[(batch,), (query_length,)]]),
        "value_mask": (value_mask, [[(batch,), columns]]),
        "key_mask": (key_mask, [[(batch,), columns]]),
        "attention_mask": (
            attention_mask,
            [
                [rows, columns],
                [(batch, 1), rows, columns],
                [(batch, 1), (layer.num_heads, 1), rows, columns],
            ],
        ),
    }
    for name, (mask, shapes) in allowed.items():
        if mask is not None and not any(_fits(mask.shape, shape) for shape in shapes):
            raise ValueError(
                f"`{name}` of {type(layer).__name__} '{layer.name}' must have shape "
                f"{' or '.join(map(_format_shape, shapes))}. Received: {name} of shape {tuple(mask.shape)}"
            )


def _fits(shape, allowed):
    """Whether each known axis of `shape` is one of the sizes in `allowed`, as far as they are known."""
    return len(shape) == len(allowed) and all(
        axis is None or axis in sizes or not isinstance(sizes[0], int)
        for axis, sizes in zip(shape, allowed, strict=True)
    )


def _format_shape(shape):
    return "(" + ", ".join("?" if not isinstance(s[0], int) else str(s[0]) for s in shape) + ")"
