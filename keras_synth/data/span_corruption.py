"""Texts with holes, and what was in them: the pre-training task of T5."""

import tensorflow as tf


def corrupt_spans(
    token_ids: tf.Tensor,
    sentinel_ids: list[int],
    noise_density: float = 0.15,
    mean_span_length: float = 3.0,
    seed: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes random spans out of a sequence.

    The span corruption of [Raffel et al., 2019](https://arxiv.org/abs/1910.10683). In the source, a
    sentinel stands for each span; in the target, each span follows its sentinel. Spans and what is
    between them have random lengths; the first token stays, and the last span ends the sequence.

    Args:
        token_ids: int tensor of shape `(length,)`. Less than two tokens stay as they are.
        sentinel_ids: list of ints. The ids of the sentinels, in order. There are no more spans than
            sentinels.
        noise_density: float. The share of the tokens that are taken out. Defaults to `0.15`.
        mean_span_length: float. The mean length of a span. Defaults to `3.0`.
        seed: int. The seed of the spans. Defaults to `None`.

    Returns:
        The source and the target, int tensors of shape `(source_length,)` and `(target_length,)`.

    Example:

    >>> source, target = corrupt_spans(tf.range(10, 20), [98, 99], noise_density=0.3)
    >>> len(source), len(target)
    (8, 4)
    """
    sentinel_ids = tf.constant(sentinel_ids, token_ids.dtype)
    taken = _span_mask(tf.size(token_ids), noise_density, mean_span_length, tf.size(sentinel_ids), seed)

    def replace(spans):
        """One sentinel for each of the `spans`."""
        first = spans & ~tf.concat([[False], spans[:-1]], axis=0)
        number = tf.maximum(tf.cumsum(tf.cast(first, "int32")) - 1, 0)
        tokens = tf.where(first, tf.gather(sentinel_ids, number), token_ids)
        return tf.boolean_mask(tokens, first | ~spans)

    # Without a span there is no target.
    return replace(taken), tf.cond(
        tf.reduce_any(taken), lambda: replace(~taken), lambda: tf.zeros([0], token_ids.dtype)
    )


def _span_mask(length, noise_density, mean_span_length, max_spans, seed):
    """Where the spans are, as a bool tensor of shape `(length,)`."""
    noise = tf.cast(tf.round(tf.cast(length, "float32") * noise_density), "int32")
    noise = tf.clip_by_value(noise, 1, tf.maximum(length - 1, 1))
    kept = tf.maximum(length - noise, 1)
    spans = tf.cast(tf.round(tf.cast(noise, "float32") / mean_span_length), "int32")
    spans = tf.clip_by_value(spans, 1, tf.reduce_min([noise, kept, max_spans]))
    lengths = [_random_parts(kept, spans, seed), _random_parts(noise, spans, seed)]
    lengths = tf.reshape(tf.stack(lengths, axis=1), [-1])  # kept, taken, kept, taken, ...
    return tf.repeat(tf.range(2 * spans) % 2 == 1, lengths)[:length]


def _random_parts(total, parts, seed):
    """Splits `total` into so many positive numbers, at random."""
    ends = tf.random.shuffle(tf.range(total - 1) < parts - 1, seed=seed)
    number = tf.cumsum(tf.concat([[0], tf.cast(ends, "int32")], axis=0))
    return tf.math.bincount(number, minlength=parts, maxlength=parts)
