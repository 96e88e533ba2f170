"""`softmax(B) V` for `B_ij = -rate |j - i|`, by sums that run along the sequence.

With `S_t = exp(-rate) S_(t-1) + V_t` and `Z_t = exp(-rate) Z_(t-1) + 1`, the causal output is `S_t / Z_t`.
"""

from keras import ops

from keras_synth.core.slices import cut, pad_with_zeros
from keras_synth.layers.attend import by_head, by_token
from keras_synth.layers.softmax import as_float32

#: The tokens of a block. Within it sums are one product with a table of `exp(-rate (i - j))`.
_SIZE = 64
#: The least weight that what a row sees must have together. The square of it has a reciprocal in float32.
_LEAST = 1e-18


class RunningMixer:
    """Mixes values by the rates of an alignment that has `decay_rates`.

    Its cache holds the two sums, one vector and one number for each head. A row whose own token is hidden,
    and further than `41 / rate` from any other, sees nothing.

    Args:
        alignment: A `keras_synth.alignments.Alignment`.
    """

    #: Whether weights may be dropped.
    drops = False

    def __init__(self, alignment):
        self.alignment = alignment

    def init_cache(self, batch_size, heads, value_dim, dtype):
        """The cache before the first token."""
        dtype = as_float32(ops.zeros((), dtype=dtype)).dtype
        return {
            "value": ops.zeros((batch_size, heads, value_dim), dtype=dtype),
            "weight": ops.zeros((batch_size, heads), dtype=dtype),
        }

    def mix(self, query, value, shown, causal, dropout=None, cache=None, length=None):
        """Mixes values; arguments and results are those of `WindowMixer.mix`, without dropout."""
        batch, rows, heads, value_dim = ops.shape(value)
        columns = as_float32(value)
        if shown is None:
            weights = ops.ones((1, rows, 1), dtype=columns.dtype)
        else:
            columns = ops.where(shown[:, :, None, None], columns, 0)
            weights = ops.cast(ops.transpose(shown)[None], columns.dtype)
        rates = ops.cast(self.alignment.decay_rates(), columns.dtype)[:, None, None]
        columns, weights = by_head(columns), ops.broadcast_to(weights, (heads, rows, ops.shape(weights)[2]))
        if cache is None:
            values, totals = (sum_decayed(x, rates, causal) for x in (columns, weights))
        else:
            first = ops.transpose(cache["value"], (1, 0, 2))
            first = ops.reshape(first, (heads, 1, -1)), ops.transpose(cache["weight"])[:, None]
            values = sum_decayed(columns, rates, True, first[0])
            totals = sum_decayed(weights, rates, True, first[1])
            last_value, last_weight = (
                cut(x, rows - 1, 1, axis=1)
                if length is None
                else cut(ops.concatenate([start, x], axis=1), length, 1, axis=1)
                for start, x in zip(first, (values, totals), strict=True)
            )
            last_value = ops.reshape(last_value, (heads, batch, value_dim))
            cache = {
                "value": ops.transpose(last_value, (1, 0, 2)),
                "weight": ops.transpose(last_weight[:, 0]),
            }
        totals = ops.expand_dims(ops.transpose(totals, (2, 1, 0)), -1)  # (batch, T, H, 1)
        enough = totals > _LEAST
        output = by_token(values, value) / ops.where(enough, totals, 1)
        return ops.cast(ops.where(enough, output, 0), value.dtype), cache


def sum_decayed(x, rates, causal, first=None):
    """Sums over the tokens, or over those so far, weighed by `exp(-rate |j - i|)`.

    Args:
        x: Tensor of shape `(H, T, n)`.
        rates: Tensor of shape `(H, 1, 1)`.
        causal: bool.
        first: Tensor of shape `(H, 1, n)`, the sums at the token before the first. Defaults to `None`.
    """
    sums = _run(x, rates)
    if first is not None:
        sums = sums + ops.exp(-rates * _count(ops.shape(x)[1], x.dtype)) * first
    if not causal:
        sums = sums + ops.flip(_run(ops.flip(x, axis=1), rates), axis=1) - x
    return sums


def _run(x, rates, whole=False):
    """`y_t = exp(-rate) y_(t-1) + x_t` along the second axis; `whole` makes it one block."""
    length = x.shape[1]
    if whole or (length is not None and length <= _SIZE):
        return ops.matmul(_table(rates, ops.shape(x)[1]), x)
    heads, rows, width = ops.shape(x)
    blocks = (rows + _SIZE - 1) // _SIZE
    padded = pad_with_zeros(x, 0, blocks * _SIZE - rows, axis=1)
    padded = ops.reshape(padded, (heads, blocks, _SIZE, width))
    within = ops.matmul(_table(rates, _SIZE)[:, None], padded)
    # The sums at the ends of the blocks run along the blocks in the same way. Of an unknown length, which
    # may be short, they are one block.
    ends = _run(within[:, :, -1], _SIZE * rates, whole=length is None)
    before = pad_with_zeros(cut(ends, 0, blocks - 1, axis=1), 1, 0, axis=1)
    carried = ops.exp(-rates * _count(_SIZE, x.dtype))[:, None] * before[:, :, None]
    return cut(ops.reshape(within + carried, (heads, blocks * _SIZE, width)), 0, rows, axis=1)


def _table(rates, length):
    """`exp(-rate (i - j))` for `j <= i`, else zero, `(H, length, length)`."""
    places = ops.arange(length, dtype="int32")
    distance = places[:, None] - places
    decayed = ops.exp(-rates * ops.cast(ops.maximum(distance, 0), rates.dtype))
    return ops.where(distance >= 0, decayed, 0)


def _count(length, dtype):
    """`1, 2, ..., length` as `(length, 1)`."""
    return ops.cast(1 + ops.arange(length, dtype="int32")[:, None], dtype)
