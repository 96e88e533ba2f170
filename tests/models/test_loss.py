"""The loss is the mean over the tokens that count, whatever the padding and the batches."""

import keras
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs, language_model

from keras_synth import models

LENGTHS = [6, 2, 9, 1, 4]


def masked_language_model():
    model = models.SynthesizerMaskedLM(ENCODER(**SIZES, dropout=0.0))
    model.compile(run_eagerly=True)
    return model


def example(cls, width):
    """A model, and inputs, targets and weights for it, with padding up to `width`."""
    model = masked_language_model() if cls is ENCODER else language_model(cls, dropout=0.0)
    x = inputs(cls, LENGTHS, width)
    name = "decoder_padding_mask" if cls is BOTH else "padding_mask"
    y = np.random.default_rng(3).integers(4, SIZES["vocabulary_size"], (len(LENGTHS), 12))[:, :width]
    if cls is ENCODER:
        x["mask_positions"] = np.tile(np.arange(width), (len(LENGTHS), 1))
    return model, x, y, x[name]


def by_hand(model, x, y, weight):
    """The mean loss of the tokens, and the share of right ones."""
    logits = np.array(model(x), "float64")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_probs, y[..., None], axis=-1)[..., 0]
    hits = np.argmax(logits, axis=-1) == y
    return np.average(losses, weights=weight), np.average(hits, weights=weight)


@pytest.mark.parametrize("width", [9, 12])
@pytest.mark.parametrize("cls", [ENCODER, DECODER, BOTH])
def test_fit_and_evaluate_report_the_mean_over_tokens(cls, width):
    model, x, y, weight = example(cls, width)
    loss, accuracy = by_hand(model, x, y, weight)
    # In batches with different numbers of tokens.
    results = model.evaluate(x, y, sample_weight=weight, batch_size=2, verbose=0)
    np.testing.assert_allclose(results, [loss, accuracy], rtol=1e-5)
    model.compile("sgd", jit_compile=False)
    model.optimizer.learning_rate = 0.0
    history = model.fit(x, y, sample_weight=weight, batch_size=2, verbose=0).history
    np.testing.assert_allclose(history["loss"], [loss], rtol=1e-5)


def test_padding_changes_no_gradient():
    model, *data = example(DECODER, 12)
    before, steps = model.get_weights(), []
    for width in (9, 12):
        x, y, weight = keras.tree.map_structure(lambda array, end=width: array[:, :end], tuple(data))
        model.set_weights(before)
        model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
        model.train_on_batch(x, y, sample_weight=weight)
        steps.append([new - old for new, old in zip(model.get_weights(), before, strict=True)])
    for one, other in zip(*steps, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, logits: keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
    ],
    ids=["function", "mean_with_sample_weight"],
)
def test_other_losses_and_weights_that_are_no_mask(loss):
    model, x, y, mask = example(DECODER, 9)
    weight = mask * np.random.default_rng(4).uniform(0.1, 3.0, mask.shape)
    expected, accuracy = by_hand(model, x, y, weight)
    model.compile(loss=loss, weighted_metrics=None, metrics=["accuracy"], run_eagerly=True)
    results = model.evaluate(x, y, sample_weight=weight, batch_size=3, verbose=0)
    np.testing.assert_allclose(results, [expected, accuracy], rtol=1e-5)


def test_without_weights_every_position_counts():
    model, x, y, _ = example(DECODER, 9)
    loss, accuracy = by_hand(model, x, y, np.ones_like(y))
    results = model.evaluate(x, y, batch_size=2, verbose=0)
    np.testing.assert_allclose(results, [loss, accuracy], rtol=1e-5)


def test_smoothed_labels():
    model, x, y, weight = example(DECODER, 9)
    model.compile(
        loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        weighted_metrics=[],
        run_eagerly=True,
    )
    size = SIZES["vocabulary_size"]
    plain, _ = by_hand(model, x, y, weight)
    even = np.mean([by_hand(model, x, np.full_like(y, token), weight)[0] for token in range(size)])
    result = model.evaluate(x, np.eye(size)[y], sample_weight=weight, batch_size=2, verbose=0)
    np.testing.assert_allclose(result, 0.9 * plain + 0.1 * even, rtol=1e-5)


def test_a_batch_of_nothing_but_padding_changes_nothing():
    model, x, y, weight = example(DECODER, 9)
    model.compile("sgd", run_eagerly=True)
    before = model.get_weights()
    loss = model.train_on_batch(x, y, sample_weight=0 * weight)[0]
    assert loss == 0
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_loss_that_is_a_sum():
    model = language_model(DECODER)
    with pytest.raises(ValueError, match="a mean.*'mean_with_sample_weight'.*reduction='sum'"):
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(reduction="sum"))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("metrics", [None, ["accuracy"]])
def test_the_accuracy_tells_large_ids_apart_in_low_precision(policy, metrics):
    model = models.SynthesizerCausalLM(
        DECODER(**{**SIZES, "vocabulary_size": 3000}, dropout=0.0, dtype=policy)
    )
    model.compile(metrics=metrics, run_eagerly=True)
    x = inputs(DECODER, LENGTHS, 9)
    best = np.argmax(np.array(keras.ops.cast(model(x), "float32")), axis=-1)
    assert model.evaluate(x, best, verbose=0)[1] == 1.0
    assert model.evaluate(x, best ^ 1, verbose=0)[1] == 0.0
