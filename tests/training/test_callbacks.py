"""What stops, saves, scores and averages."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import DECODER, SIZES

from keras_synth import models
from keras_synth.training import Checkpoint, GenerationScore, TimeLimit, average_weights, save_model


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def fit(model, **kwargs):
    return model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=2, verbose=0, **kwargs)


def test_time_limit_stops(model):
    history = fit(model, epochs=10_000, callbacks=[TimeLimit(minutes=0.5 / 60)])
    assert 0 < len(history.history["loss"]) < 10_000


def test_an_interrupted_save_leaves_the_file_before_it(model, tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    save_model(model, path)
    before = path.read_bytes()

    def interrupted(self, partial):
        partial.write_bytes(b"half a model")
        raise KeyboardInterrupt

    monkeypatch.setattr(keras.Sequential, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(model, path)
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["model.keras"]


def test_a_file_is_on_the_disk_before_it_takes_its_place(model, tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor):
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("moved"), replace(*paths)))
    save_model(model, tmp_path / "model.keras")
    file, moved, folder = events
    assert os.path.dirname(file) == folder == str(tmp_path)
    assert moved == "moved"


class TestAverage:
    @pytest.fixture
    def paths(self, model, tmp_path):
        fit(model, epochs=1, callbacks=[Checkpoint(tmp_path, every_steps=1, keep=3)])
        return Checkpoint(tmp_path).paths

    def test_it_is_the_mean(self, model, paths):
        weights = [keras.models.load_model(path).get_weights() for path in paths]
        optimizer = [variable.numpy() for variable in model.optimizer.variables]
        for count in (1, 2, 3):
            average_weights(model, paths[-count:])
            expected = [
                np.mean(arrays, axis=0, dtype="float64") for arrays in zip(*weights[-count:], strict=True)
            ]
            for weight, mean in zip(model.get_weights(), expected, strict=True):
                np.testing.assert_allclose(weight, mean, rtol=1e-6)
        for variable, before in zip(model.optimizer.variables, optimizer, strict=True):
            np.testing.assert_array_equal(variable.numpy(), before)

    def test_into_a_model_that_is_not_compiled(self, model, paths):
        average_weights(model, paths)
        other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        average_weights(other, paths)
        for one, another in zip(model.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(one, another)

    def test_counts_are_those_of_the_last(self, tmp_path):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Normalization()])
        (counter,) = (weight for weight in model.weights if weight.dtype.startswith("int"))
        for count in (1, 4):
            counter.assign(count)
            model.save_weights(tmp_path / f"{count}.weights.h5")
        average_weights(model, sorted(tmp_path.iterdir()))
        assert int(counter) == 4

    def test_nothing_to_average_or_another_model(self, model, paths):
        with pytest.raises(ValueError, match="at least one file"):
            average_weights(model, [])
        other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        other.compile("sgd")
        optimizer = other.optimizer
        with pytest.raises(ValueError, match="dense"):
            average_weights(other, paths)
        assert other.optimizer is optimizer


class Answering(keras.callbacks.Callback):
    """Makes the model answer, at the end of the epochs, what is listed; and `fit` train nothing."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def on_epoch_begin(self, epoch, logs=None):
        answers = iter(self.answers[epoch])
        self.model.generate = lambda prompts, **kwargs: [next(answers) for _ in prompts]


PAIRS = {"encoder_text": ["a", "b", "c"], "decoder_text": ["one two three four", "five six", "seven"]}
ANSWERS = [
    ["one two", "six five", ""],
    ["one two three four", "five", "seven"],
    ["one two three four", "", "a"],
]


@pytest.mark.parametrize(
    "pairs",
    [
        PAIRS,
        tf.data.Dataset.from_tensor_slices(PAIRS),
        (PAIRS["encoder_text"], PAIRS["decoder_text"]),
    ],
    ids=["dict", "dataset", "lists"],
)
def test_scores_are_in_the_logs(model, pairs):
    pytest.importorskip("rouge_score")

    def exact_match(answers, references):
        return np.mean([answer == reference for answer, reference in zip(answers, references, strict=True)])

    score = GenerationScore(pairs, ["rouge1", "rouge2", "rougeL", exact_match], batch_size=2)
    history = fit(model, epochs=3, callbacks=[Answering(ANSWERS), score]).history
    np.testing.assert_allclose(history["val_exact_match"], [0, 2 / 3, 1 / 3])
    # F-measures by hand: 2 * matches / (tokens of the answer + tokens of the reference).
    expected = {
        "rouge1": [4 / 6 + 1, 2 + 2 / 3, 1],
        "rouge2": [2 / 4, 1, 1],
        "rougeL": [4 / 6 + 1 / 2, 2 + 2 / 3, 1],
    }
    for name, sums in expected.items():
        np.testing.assert_allclose(history[f"val_{name}"], 100 / 3 * np.array(sums), rtol=1e-5)


def test_early_stopping_and_the_best_checkpoint_by_bleu(model, tmp_path):
    sacrebleu = pytest.importorskip("sacrebleu")
    best = tmp_path / "best.keras"
    callbacks = [
        Answering([*ANSWERS, *ANSWERS]),
        GenerationScore(PAIRS),
        keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=2),
        keras.callbacks.ModelCheckpoint(best, "val_bleu", mode="max", save_best_only=True),
    ]
    history = fit(model, epochs=9, callbacks=callbacks).history
    references = PAIRS["decoder_text"]
    expected = [sacrebleu.corpus_bleu(answers, [references]).score for answers in [*ANSWERS, ANSWERS[0]]]
    np.testing.assert_allclose(history["val_bleu"], expected)
    assert np.argmax(expected) == 1 and len(expected) == 4
    assert int(keras.models.load_model(best).optimizer.iterations) == 2 * 4


def test_a_score_every_other_epoch(model):
    score = GenerationScore(PAIRS, lambda answers, references: len(answers), every_epochs=2)
    logs = [{}, {}, {}, {}]
    score.set_model(model)
    for epoch in range(4):
        model.generate = lambda prompts, **kwargs: prompts
        score.on_epoch_end(epoch, logs[epoch])
    assert logs == [{}, {"val_<lambda>": 3.0}, {}, {"val_<lambda>": 3.0}]


def test_a_translation_model(make_model, pairs):
    model = make_model(num_layers=1)
    model.compile(sampler="greedy", run_eagerly=True)
    pairs = {name: texts[:3] for name, texts in pairs.items()}
    score = GenerationScore(pairs, lambda *texts: texts == (answers, pairs["decoder_text"]), batch_size=2)
    score.set_model(model)
    answers = [model.generate(text) for text in pairs["encoder_text"]]
    logs = {}
    score.on_epoch_end(0, logs)
    assert logs == {"val_<lambda>": 1.0}


def test_the_prompts_of_a_causal_model_do_not_count(tokenizer):
    backbone = DECODER(**{**SIZES, "vocabulary_size": tokenizer.vocabulary_size()})
    model = models.SynthesizerCausalLM(backbone, models.SynthesizerCausalLMPreprocessor(tokenizer, 8))
    model.compile(sampler="greedy", run_eagerly=True)
    prompts = ["one two", "three"]
    score = GenerationScore((prompts, prompts), max_length=7)
    score.set_model(model)
    answers = score.generate()
    whole = model.generate(prompts, max_length=7)
    for prompt, answer, both in zip(prompts, answers, whole, strict=True):
        assert both.startswith(prompt) and not answer.startswith(prompt)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((PAIRS, "meteor"), "one of 'bleu', 'rouge1', .* or a function. Received: 'meteor'"),
        (((["a"], ["b", "c"]),), "Received: 1 prompts, 2 references"),
        ((([], []),), "one at least. Received: 0 prompts"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        GenerationScore(*arguments)
