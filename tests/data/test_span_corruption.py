import numpy as np
import pytest
import tensorflow as tf

from keras_synth.data.span_corruption import corrupt_spans

SENTINELS = list(range(1000, 1100))


@pytest.mark.parametrize("length", [2, 3, 10, 117, 512])
def test_so_many_tokens_in_so_many_spans(length):
    for _ in range(5):
        source, target = (np.array(part) for part in corrupt_spans(tf.range(length), SENTINELS))
        noise = max(round(length * 0.15), 1)
        spans = max(round(noise / 3), 1)
        assert np.sum(target < 1000) == noise and np.sum(source < 1000) == length - noise
        np.testing.assert_array_equal(source[source >= 1000], SENTINELS[:spans])
        np.testing.assert_array_equal(target[target >= 1000], SENTINELS[:spans])
        assert source[0] == 0 and source[-1] >= 1000 and target[-1] == length - 1
        np.testing.assert_array_equal(
            np.sort(np.concatenate([source, target])[np.concatenate([source, target]) < 1000]),
            np.arange(length),
        )


@pytest.mark.parametrize("length", [0, 1])
def test_too_short_to_corrupt(length):
    source, target = corrupt_spans(tf.range(length), SENTINELS)
    np.testing.assert_array_equal(source, np.arange(length))
    assert len(target) == 0


def test_there_are_no_more_spans_than_sentinels():
    source, _ = corrupt_spans(tf.range(100), [1000, 1001], noise_density=0.5, mean_span_length=1.0)
    assert np.sum(np.array(source) >= 1000) == 2


def test_where_the_spans_are_is_random():
    firsts = {int(corrupt_spans(tf.range(40), SENTINELS)[1][1]) for _ in range(20)}
    assert len(firsts) > 5
