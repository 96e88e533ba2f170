"""`softmax(B) V` where each row attends to a window of neighbours: nothing of the size of `B` is made."""

from keras import ops

from keras_synth.core.slices import cut, pad, pad_with_zeros, reach, skew
from keras_synth.layers.attend import make_drop, mix_for_one_query
from keras_synth.layers.softmax import masked_softmax

#: The fewest rows of a block. A block mixes `rows + window - 1` values with as many products for each row.
_SIZE = 32


class WindowMixer:
    """Mixes values by the logits of an alignment that has a `window`.

    Its cache holds the last `window - 1` values, in their order, and which of them are there.

    Args:
        alignment: A `keras_synth.alignments.Alignment`.
    """

    #: Whether weights may be dropped.
    drops = True

    def __init__(self, alignment):
        self.alignment = alignment

    def init_cache(self, batch_size, heads, value_dim, dtype):
        """The cache before the first token."""
        length = self.alignment.window - 1
        return {
            "value": ops.zeros((batch_size, length, heads, value_dim), dtype=dtype),
            "shown": ops.zeros((batch_size, length), dtype="bool"),
        }

    def mix(self, query, value, shown, causal, dropout=None, cache=None, length=None):
        """Mixes the values of a sequence, or of the tokens that follow those of a cache.

        Args:
            query: Tensor of shape `(batch, T, D)`.
            value: Tensor of shape `(batch, T, H, value_dim)`.
            shown: bool tensor of shape `(batch, T)` or `(1, T)`, false for hidden tokens; `None` for none.
            causal: bool. Whether a row sees no token after its own. It is so with a cache.
            dropout: A `keras.layers.Dropout` for the weights, or `None`.
            cache: What `init_cache` or an earlier call returned.
            length: int or int tensor. How many of the tokens enter the cache. Defaults to `T`.

        Returns:
            Tensor of the shape of `value`, with zeros where there is nothing to attend to; and the new
            cache.
        """
        batch, rows = ops.shape(value)[:2]
        window = self.alignment.window
        before = reach(window, causal)
        if shown is None:
            shown = ops.ones((1, rows), dtype="bool")
        else:
            value = ops.where(shown[:, :, None, None], value, 0)
        if cache is None:
            value = pad_with_zeros(value, before, window - 1 - before, axis=1)
            shown = pad(shown, before, window - 1 - before, axis=1, fill=False)
        else:
            value = ops.concatenate([cache["value"], value], axis=1)
            shown = ops.concatenate([cache["shown"], ops.broadcast_to(shown, (batch, rows))], axis=1)
            start = rows if length is None else length
            cache = {
                "value": cut(value, start, window - 1, axis=1),
                "shown": cut(shown, start, window - 1, axis=1),
            }
        places = ops.arange(rows, dtype="int32")[:, None] + ops.arange(window, dtype="int32")
        inside = ops.take(shown, places, axis=1)  # (batch, T, window)
        logits = self.alignment.window_logits(query, causal)
        if len(logits.shape) == 3:
            logits = ops.broadcast_to(logits, (ops.shape(logits)[0], rows, window))
        weights = ops.cast(masked_softmax(logits, ops.expand_dims(inside, 1)), value.dtype)
        drop = None if dropout is None else make_drop(logits, dropout, training=True)
        return mix_windows(weights if drop is None else drop(weights), value), cache


def mix_windows(weights, value):
    """Sums of windows of values, `Y_t = sum_k w_tk V_(t+k)` for each head.

    Args:
        weights: Tensor of shape `(batch, H, T, w)`, where `batch` may be 1.
        value: Tensor of shape `(batch, T + w - 1, H, v)`.

    Returns:
        Tensor of shape `(batch, T, H, v)`.
    """
    rows, window = weights.shape[-2:]
    if rows == 1:
        return mix_for_one_query(weights, value)
    size = max(_SIZE, window - 1)
    if rows is not None and rows <= size:
        mixed = ops.matmul(skew(weights), ops.transpose(value, (0, 2, 1, 3)))
        return ops.transpose(mixed, (0, 2, 1, 3))
    # Blocks of rows, each with its own values and as many of the next block as its last window reaches.
    examples, heads, rows, _ = ops.shape(weights)
    batch, length, _, value_dim = ops.shape(value)
    blocks = (rows + size - 1) // size
    weights = pad_with_zeros(weights, 0, blocks * size - rows, axis=2)
    weights = skew(ops.reshape(weights, (examples, heads, blocks, size, window)))
    value = pad_with_zeros(value, 0, (blocks + 1) * size - length, axis=1)
    value = ops.reshape(value, (batch, blocks + 1, size, heads, value_dim))
    value = ops.transpose(value, (0, 3, 1, 2, 4))
    own, following = cut(value, 0, blocks, axis=2), cut(value, 1, blocks, axis=2)
    value = ops.concatenate([own, cut(following, 0, window - 1, axis=3)], axis=3)
    mixed = ops.transpose(ops.matmul(weights, value), (0, 2, 3, 1, 4))
    return cut(ops.reshape(mixed, (batch, blocks * size, heads, value_dim)), 0, rows, axis=1)
