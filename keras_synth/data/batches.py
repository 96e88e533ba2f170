"""Texts to batches of token ids of about the same length, with little padding."""

import math
import zlib

import keras_hub
import numpy as np
import tensorflow as tf

# The lengths within a bucket differ by this factor at most, which bounds the padding.
BUCKET_GROWTH = 1.05
SHORTEST_LIMIT = 8

TOKENIZED_AT_ONCE = 1024

# The buckets emit their batches in an order that depends on the lengths, unless it is shuffled.
SHUFFLED_BATCHES = 64


def token_batches(
    pairs: tf.data.Dataset,
    preprocessor: keras_hub.models.Seq2SeqLMPreprocessor,
    batch_size: int | None = None,
    batch_tokens: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    epochs: range | None = None,
    static_shapes: bool = False,
) -> tf.data.Dataset:
    """Tokenizes pairs of texts, and batches together those of about the same length.

    The texts are tokenized once, at the call; the tokens stay in memory. Each batch is padded to
    its own longest sequences alone, the encoder and the decoder side each for themselves.

    Args:
        pairs: tf.data.Dataset. One split of `load_pairs`.
        preprocessor: keras_hub.models.Seq2SeqLMPreprocessor. It tokenizes the texts, and cuts
            them to its sequence lengths.
        batch_size: int. The number of pairs in a batch.
        batch_tokens: int. Instead of `batch_size`, the number of tokens with padding that each
            side of a batch has at most, so that batches of short texts have more pairs. A batch
            has one pair at least.
        shuffle: bool. Whether to shuffle, in another way in each epoch. Defaults to `False`.
        seed: int. The seed of the shuffling. Defaults to `0`.
        epochs: range. The dataset then holds these epochs one after the other, and how each is shuffled
            follows from `seed` and its number, so that training can go on in epoch 7 of 10 with
            `range(7, 10)`. Give `fit` the `steps_per_epoch`. Defaults to `None`: the dataset is one
            epoch, shuffled anew in each iteration.
        static_shapes: bool. Whether all batches have the same shape, as a TPU needs: they are padded to the
            sequence lengths of the preprocessor, and in each epoch the pairs that do not fill a batch are
            left out. Defaults to `False`.

    Returns:
        A `tf.data.Dataset` of known cardinality. Its elements are the `(x, y, sample_weight)` of
        the preprocessor: int32 token ids, where 0 is padding, and boolean masks.

    Raises:
        ValueError: If not just one of `batch_size` and `batch_tokens` is given, or it is less
            than 1, or `pairs` is empty or infinite, or too few for a batch of a static shape.
    """
    if (batch_size is None) == (batch_tokens is None):
        raise ValueError(
            "Just one of `batch_size` and `batch_tokens` must be given. "
            f"Received: batch_size={batch_size}, batch_tokens={batch_tokens}"
        )
    if (batch_tokens if batch_size is None else batch_size) < 1:
        raise ValueError(
            "The size of a batch must be at least 1. "
            f"Received: batch_size={batch_size}, batch_tokens={batch_tokens}"
        )
    if pairs.cardinality() in (0, tf.data.INFINITE_CARDINALITY):
        raise ValueError(
            "`pairs` must be a finite dataset with at least one pair. "
            f"Received: a dataset of cardinality {pairs.cardinality()}"
        )

    tokens = pairs.batch(TOKENIZED_AT_ONCE).map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    if not static_shapes:
        tokens = tokens.map(_cut_padding, num_parallel_calls=tf.data.AUTOTUNE)
    tokens = tokens.cache()
    longest = max(preprocessor.encoder_sequence_length, preprocessor.decoder_sequence_length)
    limits = [longest] if static_shapes else _bucket_limits(longest)
    sizes = [batch_size or max(batch_tokens // limit, 1) for limit in limits]
    # This also fills the cache.
    lengths = np.concatenate([*tokens.map(_length).batch(TOKENIZED_AT_ONCE).as_numpy_iterator()])
    buckets = np.bincount(np.searchsorted(limits, lengths), minlength=len(limits))
    num_batches = (np.floor if static_shapes else np.ceil)(buckets / sizes).sum()
    if not num_batches:
        raise ValueError(
            f"With `static_shapes=True` there must be enough pairs for a batch. Received: {len(lengths)} "
            f"pairs, for batches of {sizes[0]}"
        )

    def one_epoch(**order):
        shuffled = tokens.shuffle(len(lengths), **order) if shuffle else tokens
        if static_shapes:
            return shuffled.batch(sizes[0], drop_remainder=True)
        batches = shuffled.bucket_by_sequence_length(
            _length,
            bucket_boundaries=[limit + 1 for limit in limits[:-1]],
            bucket_batch_sizes=sizes,
        )
        return batches.shuffle(SHUFFLED_BATCHES, **order) if shuffle else batches

    def numbered_epoch(epoch_seed):
        tf.compat.v1.set_random_seed(1)  # of this graph: the global seed changes nothing here
        return one_epoch(seed=epoch_seed, reshuffle_each_iteration=False)

    if epochs is None:
        batches = one_epoch(seed=seed)
    else:
        seeds = np.array([zlib.crc32(f"{seed}/{epoch}".encode()) for epoch in epochs], "int64")
        batches = tf.data.Dataset.from_tensor_slices(seeds).flat_map(numbered_epoch)
        num_batches *= len(epochs)
    batches = batches.apply(tf.data.experimental.assert_cardinality(int(num_batches)))
    return batches.prefetch(tf.data.AUTOTUNE)


def _cut_padding(x: dict[str, tf.Tensor], y: tf.Tensor, sample_weight: tf.Tensor):
    """Cuts the padding off the tokens of one pair."""
    source_length = tf.math.count_nonzero(x["encoder_padding_mask"])
    # Without the position of the end token in `x`, after which there is nothing to predict.
    target_length = tf.math.count_nonzero(sample_weight)
    x = {
        name: value[: source_length if name.startswith("encoder") else target_length]
        for name, value in x.items()
    }
    return x, y[:target_length], sample_weight[:target_length]


def _length(x: dict[str, tf.Tensor], y: tf.Tensor, sample_weight: tf.Tensor) -> tf.Tensor:
    """The length of the longer side of one pair."""
    return tf.maximum(tf.size(x["encoder_token_ids"]), tf.size(y))


def _bucket_limits(longest: int) -> list[int]:
    """The lengths of the longest sequences of each bucket, in a geometric sequence."""
    limits = [min(SHORTEST_LIMIT, longest)]
    while limits[-1] < longest:
        limits.append(min(math.ceil(limits[-1] * BUCKET_GROWTH), longest))
    return limits
