"""Models for longer and shorter sequences."""

import keras
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs, language_model, output

from keras_synth import alignments, models
from keras_synth.models import resize

LAYERS = {"num_layers": 3, "attention": ["+".join(alignments.NAMES), "linear", "lightweight_convolution"]}


@pytest.mark.parametrize("max_length", [6, 24])
@pytest.mark.parametrize("cls", [ENCODER, BOTH])
def test_what_both_can_take_stays_the_same(cls, max_length):
    extra = {"decoder_attention": "factorized_dense"} if cls is BOTH else {}
    backbone = cls(**{**SIZES, **LAYERS, **extra}, positions="learned")
    copy = resize(backbone, max_length)
    assert type(copy) is cls and copy.max_length == max_length and backbone.max_length == 12
    x = {name: value[:, :6] for name, value in inputs(cls, [6, 3, 5]).items()}
    np.testing.assert_allclose(output(copy, x), output(backbone, x), 1e-5, 1e-5)
    longest = inputs(ENCODER, [max_length]) if cls is ENCODER else None
    assert longest is None or output(copy, longest).shape == (1, max_length, 14)


def test_what_is_new_is_drawn_and_the_old_weights_are_the_callers():
    backbone = DECODER(**SIZES, attention=alignments.RandomAlignment(2, 12, alignment_initializer="ones"))
    table = backbone.decoder_layers[0].self_attention.alignment.table
    table.assign(2 * table)
    new = resize(backbone, 15).decoder_layers[0].self_attention.alignment.table.numpy()
    assert np.all(new[:, :12, :12] == 2)
    assert np.all(new[:, 12:] == 1) and np.all(new[:, :, 12:] == 1)
    assert table.shape == (2, 12, 12)


def test_a_task_keeps_its_weights_and_its_preprocessor(masking_tokenizer):
    arguments = {**SIZES, "vocabulary_size": masking_tokenizer.vocabulary_size()}
    preprocessor = models.SynthesizerTextClassifierPreprocessor(masking_tokenizer, 12)
    model = models.SynthesizerTextClassifier(ENCODER(**arguments), 2, preprocessor)
    small, large = resize(model, 8), resize(model, 20)
    assert (small.preprocessor.sequence_length, large.preprocessor.sequence_length) == (8, 12)
    np.testing.assert_allclose(
        large.predict(["one"], verbose=0), model.predict(["one"], verbose=0), 1e-5, 1e-6
    )
    assert small.predict(["one two three four five"], verbose=0).shape == (1, 2)
    assert model.preprocessor.sequence_length == 12


def test_a_resized_language_model_generates_the_same_and_more():
    model = language_model(DECODER)
    x = inputs(DECODER, [4, 2], width=9)
    longer = resize(model, 18)
    longer.compile(sampler="greedy", run_eagerly=True)
    expected = model.generate(x, stop_token_ids=None)["token_ids"]
    np.testing.assert_array_equal(longer.generate(x, stop_token_ids=None)["token_ids"], expected)
    x = inputs(DECODER, [4, 2], width=18)
    assert longer.generate(x, stop_token_ids=None)["token_ids"].shape == (2, 18)


def test_a_resized_model_can_be_saved(tmp_path):
    backbone = DECODER(**SIZES, attention="factorized_dense+random", positions="relative_bias")
    copy = resize(backbone, 9)
    copy.save(tmp_path / "model.keras")
    x = inputs(DECODER, [9])
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(output(loaded, x), output(copy, x))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`max_length` of resize must be a positive integer.*max_length=0"):
        resize(DECODER(**SIZES), 0)
    with pytest.raises(ValueError, match="multiple of 3.*max_length=13"):
        resize(DECODER(**SIZES, attention="factorized_dense"), 13)
    with pytest.raises(ValueError, match="backbone or a task"):
        resize(keras.Sequential(), 13)
