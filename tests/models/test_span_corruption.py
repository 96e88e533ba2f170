"""Pre-training on texts with holes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import BOTH, SIZES

from keras_synth import models

TEXTS = ["one two three four five six", "six one", "", "two"]


@pytest.fixture
def preprocessor(masking_tokenizer):
    return models.SynthesizerSpanCorruptionPreprocessor(masking_tokenizer, 19, 17, noise_density=0.4)


def restore(source, target, sentinels):
    """The text that a source and a target were made of, without start and end."""
    spans, text = {}, []
    for token in target:
        if token in sentinels:
            spans[token] = current = []
        else:
            current.append(token)
    for token in source:
        text += spans.pop(token) if token in sentinels else [token]
    assert not spans
    return text


@pytest.mark.parametrize("where", ["call", "map", "batched map"])
def test_source_and_target_make_up_the_text(preprocessor, masking_tokenizer, where):
    texts = tf.data.Dataset.from_tensor_slices(TEXTS)
    if where == "call":
        x, y, weight = preprocessor(TEXTS)
    elif where == "map":
        x, y, weight = next(iter(texts.map(preprocessor).batch(4)))
    else:
        x, y, weight = next(iter(texts.batch(4).map(preprocessor)))
    x, y, weight = keras.tree.map_structure(np.array, (x, y, weight))
    assert y.shape == weight.shape == x["decoder_token_ids"].shape == (4, 17)
    np.testing.assert_array_equal(x["decoder_token_ids"][:, 1:] * weight[:, :-1], y[:, :-1])
    for i, text in enumerate(TEXTS):
        source = x["encoder_token_ids"][i][x["encoder_padding_mask"][i]]
        target = y[i][weight[i]]
        assert (source[0], source[-1], target[-1]) == (2, 3, 3)
        restored = restore(source[1:-1], target[:-1], masking_tokenizer.sentinel_ids)
        np.testing.assert_array_equal(restored, np.array(masking_tokenizer(text))[:17])


def test_fit_on_plain_strings_then_fine_tune_on_pairs(preprocessor, masking_tokenizer, tmp_path):
    arguments = {**SIZES, "vocabulary_size": masking_tokenizer.vocabulary_size(), "max_length": 23}
    model = models.SynthesizerSeq2SeqLM(BOTH(**arguments), preprocessor)
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    losses = model.fit(TEXTS * 4, batch_size=8, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save_to_preset(str(tmp_path / "preset"))
    again = models.SynthesizerSeq2SeqLM.from_preset(str(tmp_path / "preset"))
    assert type(again.preprocessor) is type(preprocessor)
    assert again.preprocessor.get_config()["noise_density"] == 0.4

    again.preprocessor = models.SynthesizerSeq2SeqLMPreprocessor(again.preprocessor.tokenizer, 19, 17)
    again.compile(run_eagerly=True, sampler="greedy")
    again.fit({"encoder_text": TEXTS[:2], "decoder_text": TEXTS[:2]}, verbose=0)
    assert isinstance(again.generate("one"), str)


def test_a_tokenizer_without_sentinels(tokenizer):
    with pytest.raises(ValueError, match="sentinels.*MaskingTokenizer"):
        models.SynthesizerSpanCorruptionPreprocessor(tokenizer)
