"""Alignments that are given by hand instead of learned."""

import keras
from keras import ops

from keras_synth.alignments.alignment import OUTSIDE, Alignment

# name: where row i may look, as columns j; and the end of the sequence from which weights fall off.
_PATTERNS = {
    "current": (lambda i, j: j == i, None),
    "previous": (lambda i, j: j == i - 1, None),
    "next": (lambda i, j: j == i + 1, None),
    "left": (lambda i, j: j <= i - 2, "last"),
    "right": (lambda i, j: j >= i + 2, "first"),
    "last": (lambda i, j: i + j >= 0, "last"),
    "first": (lambda i, j: i + j >= 0, "first"),
}

#: The names of the patterns, in the order of the paper.
PATTERNS = tuple(_PATTERNS)


@keras.saving.register_keras_serializable("keras_synth")
class FixedPatternAlignment(Alignment):
    """Patterns of attention that are made by hand, one for each head.

    `B = log P`, where row `i` of `P`, of a sequence of `n` tokens, weighs column `j`, both from zero, by

    | pattern | weight | for |
    | --- | --- | --- |
    | `"current"` | `1` | `j = i` |
    | `"previous"` | `1` | `j = i - 1` |
    | `"next"` | `1` | `j = i + 1` |
    | `"left"`, the larger left context | `(j + 1)^3` | `j <= i - 2` |
    | `"right"`, the larger right context | `(n - j)^3` | `j >= i + 2` |
    | `"last"`, the end of the sentence | `(j + 1)^3` | all `j` |
    | `"first"`, the start of the sentence | `(n - j)^3` | all `j` |

    and zero elsewhere; the softmax divides each row by its sum. A row with nothing to attend to, such as
    the first one of `"previous"`, gives zeros. No parameters.
    [Raganato et al., 2020](https://arxiv.org/abs/2002.10260), who use the seven patterns beside one
    learned head, in encoders; `HeadwiseAlignment` puts such heads side by side.

    A sequence ends where its padding begins; `"right"` and `"first"` need to know that, so their logits
    have a batch axis where there is a padding mask. Under a causal mask a row knows no more than the
    tokens up to its own, so `n = i + 1`, and `"next"` and `"right"` are empty.

    Args:
        num_heads: int. The number of attention heads, `H`.
        patterns: A list with the name of a pattern for each head. Defaults to the seven patterns above,
            in this order, over and over again.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If a pattern is unknown, or there is not one for each head.

    Example:

    >>> import numpy as np
    >>> alignment = FixedPatternAlignment(num_heads=2, patterns=["previous", "left"])
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([2, 5, 5])
    """

    formula = "log P"
    reads = "nothing"
    depends_on_input = False

    def __init__(self, num_heads, patterns=None, **kwargs):
        super().__init__(num_heads, **kwargs)
        if patterns is None:
            patterns = [PATTERNS[head % len(PATTERNS)] for head in range(num_heads)]
        self.patterns = list(patterns)
        if len(self.patterns) != num_heads or not set(self.patterns) <= set(PATTERNS):
            raise ValueError(
                f"`patterns` of {type(self).__name__} '{self.name}' must be a list with one of the names "
                f"{', '.join(map(repr, PATTERNS))} for each of the num_heads={num_heads} heads. "
                f"Received: patterns={patterns}"
            )

    def support(self, query_length, key_length, start_index=0, causal=False):
        rows, columns = _positions(query_length, key_length, start_index)
        return ops.stack([_PATTERNS[pattern][0](rows, columns) for pattern in self.patterns])

    def has_table(self, causal):
        # Where a sequence ends, or its padding begins, is where weights that fall off from its start end.
        return causal or not any(_PATTERNS[pattern][1] == "first" for pattern in self.patterns)

    def call(self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False):
        query_length, key_length = self._lengths(query, key_length)
        rows, columns = _positions(query_length, key_length, start_index)
        weighed_from = [_PATTERNS[pattern][1] for pattern in self.patterns]
        if causal:
            end = rows + 1
        elif key_mask is not None and "first" in weighed_from:
            end = ops.max(ops.where(key_mask, columns + 1, 0), axis=-1, initial=0)[:, None, None]
        else:
            end = start_index + query_length

        def log_weight(distance):
            dtype = keras.backend.result_type(self.compute_dtype, "float32")
            return 3 * ops.log(ops.cast(ops.maximum(distance, 1), dtype))

        weights = {"last": log_weight(columns + 1), "first": log_weight(end - columns)}
        weights[None] = ops.zeros_like(weights["last"])
        everywhere = ops.zeros_like(log_weight(rows) + weights["first"])  # (T, S), or (batch, T, S)
        heads = [
            ops.where(_PATTERNS[pattern][0](rows, columns), everywhere + weights[origin], OUTSIDE)
            for pattern, origin in zip(self.patterns, weighed_from, strict=True)
        ]
        return ops.stack(heads, axis=-3)

    def get_config(self):
        return {**super().get_config(), "patterns": list(self.patterns)}


def _positions(query_length, key_length, start_index):
    """The positions of the rows, `(T, 1)`, and of the columns, `(1, S)`."""
    rows = start_index + ops.arange(query_length, dtype="int32")[:, None]
    return rows, ops.arange(key_length, dtype="int32")[None, :]
