import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from keras_synth.data import token_batches, train_tokenizer
from keras_synth.data.batches import _bucket_limits


def dataset(sources, targets):
    return tf.data.Dataset.from_tensor_slices({"encoder_text": sources, "decoder_text": targets})


@pytest.fixture(scope="module")
def pairs():
    """Pairs of 1 to 40 words, where the translation is about as long."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 41, size=1_500)
    others = np.maximum(1, lengths + rng.integers(-1, 2, size=1_500))
    return dataset([" ".join("a" * n) for n in lengths], [" ".join("b" * n) for n in others])


@pytest.fixture(scope="module")
def preprocessor():
    tokenizer = train_tokenizer(["a b b a"] * 9, vocabulary_size=300)
    return keras_hub.models.Seq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=43, decoder_sequence_length=47
    )


def rows_of(batches):
    """The token ids of each pair of the batches, without padding and in a fixed order."""
    rows = []
    for x, y, sample_weight in batches.as_numpy_iterator():
        for row in range(len(y)):
            source = x["encoder_token_ids"][row][x["encoder_padding_mask"][row]]
            rows.append((source.tolist(), y[row][sample_weight[row]].tolist()))
    return sorted(rows)


def first_ids(batches):
    return [x["encoder_token_ids"].tolist() for x, _, _ in batches.as_numpy_iterator()]


def test_a_batch_is_the_output_of_the_preprocessor_with_less_padding(preprocessor):
    texts = {"encoder_text": ["a", "a b"], "decoder_text": ["a b", "b"]}
    pairs = tf.data.Dataset.from_tensor_slices(texts)
    ((x, y, sample_weight),) = token_batches(pairs, preprocessor, batch_size=2).as_numpy_iterator()
    wide_x, wide_y, wide_weight = preprocessor(texts)
    source, target = wide_x["encoder_padding_mask"], wide_weight
    for cut, wide, mask in [
        (x["encoder_token_ids"], wide_x["encoder_token_ids"], source),
        (x["encoder_padding_mask"], source, source),
        (y, wide_y, target),
        (sample_weight, target, target),
        # The decoder's input ends before the end token, after which there is nothing to predict.
        (x["decoder_token_ids"], np.where(target, wide_x["decoder_token_ids"], 0), target),
        (x["decoder_padding_mask"], target, target),
    ]:
        longest = np.sum(mask, axis=1).max()
        np.testing.assert_array_equal(cut, wide[:, :longest])


def test_only_ids_and_masks(pairs, preprocessor):
    x, y, sample_weight = token_batches(pairs.take(9), preprocessor, batch_size=4).element_spec
    assert {name: spec.dtype for name, spec in x.items()} == {
        "encoder_token_ids": tf.int32,
        "encoder_padding_mask": tf.bool,
        "decoder_token_ids": tf.int32,
        "decoder_padding_mask": tf.bool,
    }
    assert (y.dtype, sample_weight.dtype) == (tf.int32, tf.bool)


@pytest.mark.parametrize("size", [{"batch_size": 32}, {"batch_tokens": 1_024}])
def test_epochs_hold_every_pair_once_in_little_padding(pairs, preprocessor, size):
    batches = token_batches(pairs, preprocessor, shuffle=True, **size)
    assert len(batches) == len(list(batches))
    assert rows_of(batches) == rows_of(token_batches(pairs, preprocessor, batch_size=1_500))
    masks = [
        mask
        for x, _, _ in batches.as_numpy_iterator()
        for mask in (x["encoder_padding_mask"], x["decoder_padding_mask"])
    ]
    tokens = sum(mask.sum() for mask in masks)
    assert tokens / sum(mask.size for mask in masks) > 0.9
    for mask in masks:
        if "batch_size" in size:
            assert len(mask) <= 32
        else:
            assert mask.size <= 1_024


def test_one_pair_that_is_longer_than_the_batch(preprocessor):
    batches = token_batches(dataset(["a " * 20] * 3, ["b"] * 3), preprocessor, batch_tokens=10)
    assert [len(y) for _, y, _ in batches] == [1, 1, 1]


def test_long_texts_are_cut(preprocessor):
    batches = token_batches(dataset(["a " * 99], ["b " * 99]), preprocessor, batch_size=1)
    ((x, y, _),) = batches
    assert x["encoder_token_ids"].shape == (1, 43)
    assert x["decoder_token_ids"].shape == y.shape == (1, 47)


def test_shuffling_is_seeded_and_new_in_each_epoch(pairs, preprocessor):
    pairs = pairs.take(300)

    def shuffled(seed):
        return token_batches(pairs, preprocessor, batch_size=16, shuffle=True, seed=seed)

    batches = shuffled(seed=1)
    first, second = first_ids(batches), first_ids(batches)
    assert first != second
    assert first == first_ids(shuffled(seed=1))
    assert first != first_ids(shuffled(seed=2))
    plain = token_batches(pairs, preprocessor, batch_size=16)
    assert first_ids(plain) == first_ids(plain)


def test_numbered_epochs_are_the_same_whenever_they_begin(pairs, preprocessor, monkeypatch):
    pairs = pairs.take(300)
    size = len(token_batches(pairs, preprocessor, 16))

    def epochs(seed, numbers, shuffle=True):
        batches = token_batches(pairs, preprocessor, 16, shuffle=shuffle, seed=seed, epochs=numbers)
        assert len(batches) == size * len(numbers)
        ids = first_ids(batches)
        return [ids[start : start + size] for start in range(0, len(ids), size)]

    four = epochs(1, range(4))
    assert len(set(map(str, four))) == 4
    rows = [sorted([token for token in row if token] for batch in epoch for row in batch) for epoch in four]
    assert rows == rows[:1] * 4
    assert epochs(1, range(2, 4)) == four[2:]
    assert epochs(1, range(4, 4)) == []
    assert epochs(2, range(1)) != four[:1]
    unshuffled = first_ids(token_batches(pairs, preprocessor, 16))
    assert epochs(1, range(2), shuffle=False) == [unshuffled] * 2
    # As `tf.random.set_seed` does, which would make TensorFlow forget the tokenizer.
    monkeypatch.setattr(context.context(), "_seed", 0)
    assert epochs(1, range(3, 4)) == four[3:]


def test_static_shapes(pairs, preprocessor):
    options = dict(batch_tokens=4 * 47, static_shapes=True, shuffle=True, epochs=range(2))
    batches = token_batches(pairs.take(26), preprocessor, **options)
    x, y, sample_weight = batches.element_spec
    assert x["encoder_token_ids"].shape == x["encoder_padding_mask"].shape == (4, 43)
    assert x["decoder_token_ids"].shape == y.shape == sample_weight.shape == (4, 47)
    assert len(batches) == len(list(batches)) == 2 * 6
    for epoch in (batches.take(6), batches.skip(6)):
        rows = rows_of(epoch)
        everything = rows_of(token_batches(pairs.take(26), preprocessor, batch_size=26))
        assert len(rows) == 24
        assert all(row in everything for row in rows)
    with pytest.raises(ValueError, match="`static_shapes=True`.*3 pairs, for batches of 4"):
        token_batches(pairs.take(3), preprocessor, batch_size=4, static_shapes=True)


def test_texts_are_tokenized_once(pairs, preprocessor):
    tokenized = []
    batched = pairs.take(10).map(lambda pair: (tf.py_function(tokenized.append, [1], []), pair)[1])
    batches = token_batches(batched, preprocessor, batch_size=4)
    for _ in range(2):
        assert len(list(batches)) == len(batches)
    assert len(tokenized) == 10


def test_bucket_limits_grow_to_the_longest_length():
    for longest in (1, 5, 8, 9, 100, 512):
        limits = _bucket_limits(longest)
        assert limits[-1] == longest
        assert limits == sorted(set(limits))


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({}, "batch_size=None, batch_tokens=None"),
        ({"batch_size": 2, "batch_tokens": 9}, "batch_size=2, batch_tokens=9"),
        ({"batch_size": 0}, "at least 1. Received: batch_size=0"),
        ({"batch_tokens": -1}, "at least 1. Received: .*batch_tokens=-1"),
    ],
)
def test_bad_sizes(pairs, preprocessor, sizes, message):
    with pytest.raises(ValueError, match=message):
        token_batches(pairs, preprocessor, **sizes)


@pytest.mark.parametrize("change, cardinality", [("repeat", -1), ("empty", 0)])
def test_infinite_or_empty_pairs(pairs, preprocessor, change, cardinality):
    pairs = pairs.repeat() if change == "repeat" else pairs.take(0)
    with pytest.raises(ValueError, match=f"`pairs` must be a finite .* cardinality {cardinality}"):
        token_batches(pairs, preprocessor, batch_size=2)
