"""The tasks on encoders: strings, two sentences, masks, padding, saving."""

import keras
import numpy as np
import pytest
from tiny import ENCODER, SIZES, tokens

from keras_synth import models

TEXTS = np.array(["one two three", "four five six", "six", "two one"] * 2)
LABELS = np.array([0, 1, 1, 0] * 2)


def backbone(tokenizer, **kwargs):
    arguments = {**SIZES, "vocabulary_size": tokenizer.vocabulary_size(), "max_length": 23, "dropout": 0.0}
    return ENCODER(**{**arguments, **kwargs})


@pytest.fixture(scope="module")
def classifier(masking_tokenizer):
    preprocessor = models.SynthesizerTextClassifierPreprocessor(masking_tokenizer, 20)
    model = models.SynthesizerTextClassifier(
        backbone(masking_tokenizer), 2, preprocessor, activation="softmax", hidden_dim=11, dropout=0.0
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-2), jit_compile=False)
    model.fit(np.tile(TEXTS, 20), np.tile(LABELS, 20), batch_size=8, verbose=0)
    return model


@pytest.fixture(scope="module")
def masked_lm(masking_tokenizer):
    preprocessor = models.SynthesizerMaskedLMPreprocessor(
        masking_tokenizer, 20, mask_selection_rate=0.4, mask_selection_length=8
    )
    model = models.SynthesizerMaskedLM(backbone(masking_tokenizer), preprocessor)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), jit_compile=False)
    model.fit(TEXTS, batch_size=8, epochs=2, verbose=0)
    return model


def test_the_classifier_fits_on_strings(classifier):
    assert classifier.evaluate(TEXTS, LABELS, verbose=0)[1] == 1.0
    np.testing.assert_array_equal(np.argmax(classifier.predict(TEXTS[:4], verbose=0), axis=1), LABELS[:4])


def test_two_sentences_are_packed_with_an_end_token_between_them(classifier, masking_tokenizer):
    first, second = (np.array(masking_tokenizer(text)) for text in ("one", "six two"))
    x = classifier.preprocessor((np.array(["one"]), np.array(["six two"])), y=None)
    assert set(x) == {"token_ids", "padding_mask"}
    packed = [2, *first, 3, *second, 3]
    np.testing.assert_array_equal(np.array(x["token_ids"])[0, : len(packed)], packed)
    assert np.sum(x["padding_mask"]) == len(packed)


def test_the_classifier_reads_both_sentences(classifier, masking_tokenizer):
    first, second = np.array(["one", "six", "one", "six"]), np.array(["two", "two", "three", "three"])
    outputs = classifier.predict((first, second), verbose=0)
    assert len(np.unique(outputs, axis=0)) == 4  # each sentence makes a difference
    for pair, output in zip(zip(first, second, strict=True), outputs, strict=True):
        sentences = [[*np.array(masking_tokenizer(sentence)), 3] for sentence in pair]
        token_ids = np.array([[2, *sum(sentences, [])]])
        packed = {"token_ids": token_ids, "padding_mask": np.ones_like(token_ids)}
        np.testing.assert_allclose(classifier(packed)[0], output, 1e-4, 1e-6)


def test_pooling_ignores_padding_and_is_finite_without_a_token():
    model = models.SynthesizerTextClassifier(ENCODER(**SIZES), num_classes=3)
    x = tokens([6, 2, 0], width=9)
    outputs = np.array(model(x))
    assert np.all(np.isfinite(outputs))
    for i, length in enumerate((6, 2)):
        alone = {name: value[i : i + 1, :length] for name, value in x.items()}
        np.testing.assert_allclose(model(alone), outputs[i : i + 1], 1e-4, 1e-5)
    other = {**x, "token_ids": np.where(x["padding_mask"], x["token_ids"], 7)}
    np.testing.assert_allclose(model(other), outputs, 1e-4, 1e-5)
    model.compile(optimizer="sgd", run_eagerly=True)
    loss = model.fit(x, np.array([0, 1, 2]), verbose=0).history["loss"]
    assert np.all(np.isfinite(loss)) and all(np.all(np.isfinite(w)) for w in model.get_weights())


def test_an_empty_string_is_classified(classifier):
    assert np.all(np.isfinite(classifier.predict(["", "one"], verbose=0)))


def test_the_classifier_comes_back_from_a_file(classifier, tmp_path):
    classifier.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is models.SynthesizerTextClassifier
    assert loaded.get_config()["hidden_dim"] == 11
    np.testing.assert_array_equal(loaded.predict(TEXTS, verbose=0), classifier.predict(TEXTS, verbose=0))
    np.testing.assert_allclose(
        loaded.evaluate(TEXTS, LABELS, verbose=0), classifier.evaluate(TEXTS, LABELS, verbose=0), 1e-6
    )


def test_masking_masks_only_what_is_no_special_token(masked_lm, masking_tokenizer):
    x, y, weight = masked_lm.preprocessor(TEXTS)
    shown = np.array(weight) > 0
    assert shown.any() and not shown.all()
    assert not np.isin(np.array(y)[shown], masking_tokenizer.special_token_ids).any()
    assert not np.isin(np.array(y)[shown], masking_tokenizer.sentinel_ids).any()
    assert np.any(np.array(x["token_ids"]) == masking_tokenizer.mask_token_id)


def test_a_mask_that_stands_in_a_text_is_plain_text(masking_tokenizer):
    preprocessor = models.SynthesizerMaskedLMPreprocessor(
        masking_tokenizer, 20, mask_selection_rate=0.5, mask_token_rate=0.0, random_token_rate=0.0
    )
    x, _, _ = preprocessor(["one <mask> two"])
    expected = [2, *np.array(masking_tokenizer("one <mask> two")), 3]
    np.testing.assert_array_equal(np.array(x["token_ids"])[0, : len(expected)], expected)
    assert masking_tokenizer.mask_token_id not in expected


def test_only_masked_tokens_count_in_loss_and_metrics(masked_lm):
    x, y, weight = (keras.tree.map_structure(np.array, part) for part in masked_lm.preprocessor(TEXTS[:3]))
    shown = weight > 0
    logits = np.array(masked_lm(x))
    log_probs = np.array(keras.ops.log_softmax(logits))
    chosen = np.take_along_axis(log_probs, y[..., None].astype(int), axis=-1)[..., 0]
    hits = np.argmax(logits, axis=-1) == y
    model = models.SynthesizerMaskedLM(masked_lm.backbone)
    model.set_weights(masked_lm.get_weights())
    for kind in ("weighted_metrics", "metrics"):
        metric = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        model.compile(**{kind: [metric]}, jit_compile=False)
        results = model.evaluate(x, y, sample_weight=weight, verbose=0, return_dict=True)
        np.testing.assert_allclose(results["loss"], -chosen[shown].mean(), rtol=1e-4)
        np.testing.assert_allclose(results["accuracy"], hits[shown].mean(), rtol=1e-6)


def test_the_masked_lm_stays_tied_after_reloading(masked_lm, tmp_path):
    masked_lm.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x, _, _ = masked_lm.preprocessor(TEXTS)
    np.testing.assert_array_equal(loaded(x), masked_lm(x))
    assert len(loaded.weights) == len(masked_lm.weights)
    assert loaded.masked_lm_head.token_embedding is loaded.backbone.token_embedding
    loaded.run_eagerly = True
    loaded.fit(TEXTS, batch_size=8, verbose=0)
    kernel = loaded.backbone.token_embedding.embeddings
    kernel.assign(kernel * 0)
    np.testing.assert_array_equal(np.ptp(np.array(loaded(x)), axis=(0, 1)), 0)


def test_a_classifier_starts_from_a_masked_language_model(masked_lm, tmp_path):
    masked_lm.save_to_preset(str(tmp_path / "preset"))
    again = models.SynthesizerMaskedLM.from_preset(str(tmp_path / "preset"))
    for mine, other in zip(again.get_weights(), masked_lm.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert again.preprocessor.tokenizer.num_sentinels == 5
    model = models.SynthesizerTextClassifier.from_preset(str(tmp_path / "preset"), num_classes=2)
    for mine, other in zip(model.backbone.weights, masked_lm.backbone.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert model.preprocessor.sequence_length == 23  # what the backbone takes
    assert model.predict(TEXTS, verbose=0).shape == (8, 2)


def test_a_tokenizer_without_a_mask_token(tokenizer):
    with pytest.raises(ValueError, match="mask token.*MaskingTokenizer"):
        models.SynthesizerMaskedLMPreprocessor(tokenizer, 20)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(masking_tokenizer, policy):
    encoder = backbone(masking_tokenizer, dtype=policy)
    preprocessor = models.SynthesizerMaskedLMPreprocessor(masking_tokenizer, 20)
    model = models.SynthesizerMaskedLM(encoder, preprocessor)
    model.compile(run_eagerly=True)
    assert np.isfinite(model.fit(TEXTS, verbose=0).history["loss"]).all()


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_the_default_loss_fits_the_activation(masking_tokenizer, activation):
    model = models.SynthesizerTextClassifier(backbone(masking_tokenizer), 3, activation=activation)
    assert model.loss.from_logits == (activation is None)
