"""Truncation in exports: the tokens are those of the preprocessor."""

import itertools

import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_synth import models
from keras_synth.export import export
from keras_synth.export.packing import pack

PAIRS = list(itertools.product(range(9), repeat=2))
FIRST, SECOND = (
    tf.ragged.constant([list(range(start, start + pair[i])) for pair in PAIRS], dtype=tf.int32)
    for i, start in enumerate((10, 30))
)


@pytest.mark.parametrize("truncate", ["round_robin", "waterfall"])
@pytest.mark.parametrize("length", [3, 4, 5, 8, 9, 16, 19, 25])
def test_segments_of_all_lengths(truncate, length):
    packer = keras_hub.layers.MultiSegmentPacker(
        length, start_value=1, end_value=2, sep_value=[3, 4] if length > 8 else None, pad_value=0,
        truncate=truncate,
    )  # fmt: skip
    for segments in ((FIRST,), (FIRST, SECOND)):
        expected = np.array(packer(segments)[0])
        token_ids, mask, truncated = pack(packer, *segments)
        np.testing.assert_array_equal(token_ids, expected)
        np.testing.assert_array_equal(mask, expected != 0)
        kept = (expected >= 10).sum(-1)
        given = sum(segment.row_lengths() for segment in segments)
        np.testing.assert_array_equal(truncated, kept < np.array(given))


@pytest.mark.parametrize("start, end", [(True, True), (True, False), (False, True), (False, False)])
def test_one_segment_with_and_without_ends(start, end):
    packer = keras_hub.layers.StartEndPacker(
        5, start_value=1, end_value=2, pad_value=0, return_padding_mask=True
    )
    options = dict(add_start_value=start, add_end_value=end, sequence_length=6)
    expected, expected_mask = map(np.array, packer(FIRST, **options))
    token_ids, mask, truncated = pack(packer, FIRST, **options)
    np.testing.assert_array_equal(token_ids, expected)
    np.testing.assert_array_equal(mask, expected_mask)
    np.testing.assert_array_equal(truncated, (expected >= 10).sum(-1) < np.array(FIRST.row_lengths()))


@pytest.mark.parametrize("truncate", ["round_robin", "waterfall"])
def test_pairs_of_texts_are_cut_as_the_preprocessor_cuts_them(truncate, make_task, tmp_path):
    model = make_task("classifier")
    tokenizer = model.preprocessor.tokenizer
    preprocessor = models.SynthesizerTextClassifierPreprocessor(tokenizer, 9, truncate=truncate)
    model = models.SynthesizerTextClassifier(model.backbone, 3, preprocessor)
    classify = tf.saved_model.load(export(model, tmp_path)).signatures["classify_pair"]
    first, second = (
        [" ".join(["one", "three"][i % 2] for i in range(n)) for n in numbers]
        for numbers in zip(*itertools.product(range(7), repeat=2), strict=True)
    )
    scores = tf.nn.softmax(model(preprocessor((first, second), y=None)))
    answer = classify(text=tf.constant(first), second_text=tf.constant(second))
    np.testing.assert_allclose(answer["scores"], scores, atol=1e-5)
    lengths = [len(tokenizer(a)) + len(tokenizer(b)) for a, b in zip(first, second, strict=True)]
    np.testing.assert_array_equal(answer["truncated"], np.array(lengths) > 6)
