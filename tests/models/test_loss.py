"""The loss is the mean over the tokens that count, whatever the padding and the batches."""

import functools

import keras
import keras_hub
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs, language_model

from keras_synth import models
from keras_synth.training import SmoothedCrossentropy

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
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(True, reduction="sum"))


@pytest.fixture(scope="module")
def tasks():
    """Each task, and those of them that return probabilities."""
    classifiers = [
        models.SynthesizerTextClassifier(ENCODER(**SIZES), 3, activation=a) for a in (None, "softmax")
    ]
    return [*map(language_model, (DECODER, BOTH)), masked_language_model(), classifiers[0]], classifiers[1:]


PROBABILITIES = {
    "name": "sparse_categorical_crossentropy",
    "name of a class": "CategoricalCrossentropy",
    "name for any targets": "crossentropy",
    "function": keras.losses.categorical_crossentropy,
    "object": keras.losses.SparseCategoricalCrossentropy(),
    "object without the argument": keras.losses.KLDivergence(),
}
LOGITS = {
    "object": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "object without the argument": SmoothedCrossentropy(),
    "function": functools.partial(keras.losses.binary_crossentropy, from_logits=True),
}


@pytest.mark.parametrize("loss", PROBABILITIES.values(), ids=PROBABILITIES)
def test_losses_that_take_probabilities(tasks, loss):
    with_logits, with_probabilities = tasks
    for model in with_logits:
        with pytest.raises(ValueError, match="logits, .* `loss` .*from_logits=True.* Received: loss="):
            model.compile(loss=loss)
    for model in with_probabilities:
        model.compile(loss=loss)


@pytest.mark.parametrize("loss", LOGITS.values(), ids=LOGITS)
def test_losses_that_take_logits(tasks, loss):
    with_logits, with_probabilities = tasks
    for model in with_logits:
        model.compile(loss=loss)
    for model in with_probabilities:
        with pytest.raises(
            ValueError, match="probabilities, .* `loss` .*from_logits=False.* Received: loss="
        ):
            model.compile(loss=loss)


@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
def test_metrics_that_take_probabilities(tasks, argument):
    for metric in (keras_hub.metrics.Perplexity(), "sparse_categorical_crossentropy"):
        with pytest.raises(ValueError, match="logits, .* `metrics` .*keras.metrics.*from_logits=True"):
            tasks[0][0].compile(**{argument: ["accuracy", metric]})


def test_a_file_with_a_loss_that_takes_probabilities():
    """Such files were once saved."""
    model = language_model(DECODER)
    config = {**model.get_compile_config(), "loss": "sparse_categorical_crossentropy"}
    with pytest.warns(UserWarning, match="must take.*default"):
        model.compile_from_config(config)
    assert model.loss.from_logits


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
