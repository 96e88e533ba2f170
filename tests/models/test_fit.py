"""What `fit` makes of strings and arrays: batches in another order in each epoch."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import ENCODER, SIZES, tokens

from keras_synth import models
from keras_synth.training import Checkpoint

pytestmark = pytest.mark.tensorflow
SIZE = 12


@pytest.fixture(scope="module")
def make(tokenizer):
    """Makes a classifier, and the list that its loss writes the labels of each batch to."""

    def make():
        seen = []

        def loss(y_true, y_pred):
            seen.append(np.array(y_true).ravel().tolist())
            return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

        random.seed(1)
        arguments = {**SIZES, "vocabulary_size": tokenizer.vocabulary_size(), "attention": "random"}
        model = models.SynthesizerTextClassifier(
            ENCODER(**arguments, dropout=0.0),
            SIZE,
            models.SynthesizerTextClassifierPreprocessor(tokenizer, 12),
        )
        model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
        return model, seen

    return make


TEXTS = [" ".join(["one"] * (1 + i % 5)) for i in range(SIZE)]
LABELS = list(range(SIZE))
X = {
    "strings": TEXTS,
    "an array of strings": np.array(TEXTS),
    "pairs": (TEXTS, TEXTS),
    "tokens": tokens([1 + i % 5 for i in range(SIZE)], 8),
}


def fit(model, x=TEXTS, y=LABELS, seed=1, **kwargs):
    np.random.seed(seed)
    return model.fit(x, y, **{"batch_size": 5, "verbose": 0, **kwargs})


@pytest.mark.parametrize("x", X.values(), ids=X)
def test_each_epoch_has_all_examples_in_an_order_of_its_own(make, x):
    model, seen = make()
    fit(model, x, epochs=2)
    assert [len(batch) for batch in seen] == [5, 5, 2] * 2
    first, second = sum(seen[:3], []), sum(seen[3:], [])
    assert sorted(first) == sorted(second) == LABELS
    assert first != second and LABELS not in (first, second)


def test_the_order_follows_from_the_seed(make):
    orders = []
    for seed in (1, 1, 2):
        model, seen = make()
        fit(model, seed=seed)
        orders.append(seen)
    assert orders[0] == orders[1] != orders[2]


def test_labels_and_weights_stay_with_their_texts(make, tokenizer):
    model, _ = make()
    pairs = []
    preprocess = model.preprocess_samples
    model.preprocess_samples = lambda *data: (
        tf.py_function(lambda *data: pairs.append([np.array(part).tolist() for part in data]), data, [])
        and preprocess(*data)
    )
    fit(model, sample_weight=np.arange(SIZE) / 10)
    for texts, labels, weights in pairs:
        assert [TEXTS.index(text.decode()) % 5 for text in texts] == [label % 5 for label in labels]
        np.testing.assert_allclose(weights, np.array(labels) / 10)
    assert sum(len(texts) for texts, _, _ in pairs) == SIZE


@pytest.mark.parametrize("kind", ["shuffle=False", "dataset"])
def test_the_order_stays_where_it_is_wanted(make, kind):
    model, seen = make()
    if kind == "dataset":
        model.fit(tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(5), verbose=0)
    else:
        fit(model, shuffle=False)
    assert sum(seen, []) == LABELS


def test_the_last_examples_may_be_for_validation(make):
    model, seen = make()
    history = fit(model, validation_split=0.25)
    assert sorted(sum(seen[:2], [])) == LABELS[:9]
    assert sum(seen[2:], []) == LABELS[9:]
    assert "val_loss" in history.history
    with pytest.raises(ValueError, match="`validation_split` must leave .*validation_split=0.99 of 12"):
        fit(model, validation_split=0.99)


def test_a_killed_training_goes_on_in_the_same_order(make, tmp_path):
    class Killed(Exception):
        pass

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 5:  # in the second epoch
                raise Killed

    expected, order = make()
    fit(expected, epochs=3)
    model, seen = make()
    with pytest.raises(Killed):
        fit(model, epochs=3, callbacks=[Checkpoint(tmp_path, every_steps=2), Kill()])
    model, rest = make()
    fit(model, epochs=3, callbacks=[Checkpoint(tmp_path, every_steps=2)])
    assert seen == order[:5] and 4 <= len(rest) < 9 and rest == order[-len(rest) :]
    for weight, expected_weight in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(weight, expected_weight)


@pytest.mark.parametrize(
    "x, y, message",
    [
        (TEXTS, LABELS[:-1], "same number of examples.* 11 and 12 examples"),
        ([], [], "at least one. Received: no examples|at least one. Received: 0 examples"),
    ],
)
def test_wrong_data(make, x, y, message):
    with pytest.raises(ValueError, match=message):
        fit(make()[0], x, y)
