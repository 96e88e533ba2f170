import random
import signal
import sys

import jobs
import keras
import numpy as np
import pytest
import translation

from keras_synth import models
from keras_synth.layers.baselines import DynamicConvolution, LightweightConvolution

SENTENCES = {
    "en": ["a red dog", "a green dog", "two red birds", "two green dogs", "a bird"] * 4,
    "de": ["ein roter Hund", "ein grüner Hund", "zwei rote Vögel", "zwei grüne Hunde", "ein Vogel"] * 4,
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    # Seeding anew would make TensorFlow forget the SentencePiece models of other tests.
    monkeypatch.setattr(keras.utils, "set_random_seed", random.seed)
    # As small as can be, because TensorFlow traces it for each shape of a batch.
    tiny = dict(num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=16)
    monkeypatch.setitem(models.SIZES, "tiny", tiny)


@pytest.fixture
def folder(tmp_path):
    """Parallel text files, and no output yet."""
    (tmp_path / "data").mkdir()
    write(tmp_path / "data", SENTENCES)
    return tmp_path


def write(data, texts):
    for language, lines in texts.items():
        (data / f"train.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (data / f"val.{language}").write_text("\n".join(lines[:3]) + "\n", encoding="utf-8")


def run(folder, monkeypatch, *arguments):
    places = {"data": "data", "output": "output", "export": "saved_models/translator"}
    options = [text for name, at in places.items() for text in (f"--{name}", str(folder / at))]
    monkeypatch.setattr(
        sys, "argv", ["translation.py", *options, "--preset", "tiny", "--batch-size", "20", *arguments]
    )
    translation.main()


def test_the_whole_job(folder, monkeypatch, capsys):
    options = ["--epochs", "2", "--label-smoothing", "0.1", "--bleu-every", "2", "--average", "2"]
    run(folder, monkeypatch, "--attention", "factorized_random", *options)
    output = capsys.readouterr().out
    assert "held-out loss" in output
    assert "val_bleu: " in output
    assert "BLEU = " in output
    assert "two red birds | " in output
    loaded = keras.models.load_model(folder / "output" / "translator.keras")
    assert isinstance(loaded.generate("a dog"), str)
    assert [child.name for child in (folder / "output").iterdir()] == ["translator.keras"]
    assert (folder / "saved_models" / "translator" / "1" / "saved_model.pb").exists()


def test_the_same_command_goes_on_after_an_interruption(folder, monkeypatch, capsys):
    # All of one length, so that TensorFlow traces a training step once.
    write(
        folder / "data", {"en": [f"{i:03}" for i in range(20)], "de": [f"{i:03}"[::-1] for i in range(20)]}
    )
    weights = {}

    class InterruptedCheckpoint(jobs.Checkpoint):
        def __init__(self, folder, every_minutes, keep):
            super().__init__(folder, every_steps=2, keep=9)

        def save(self):
            super().save()
            if interrupted and self.epoch == 1 and len(self.paths) > 3:
                signal.raise_signal(signal.SIGINT)

    def end_of_training(model, arguments, pairs):
        weights[arguments.output.name] = model.get_weights()
        sys.exit()

    def train(output, code=None, *arguments):
        options = ["--output", str(folder / output), "--epochs", "2", "--batch-size", "4"]
        with pytest.raises(SystemExit) as exit:
            run(folder, monkeypatch, "--attention", "random", *options, *arguments)
        assert exit.value.code == code
        return capsys.readouterr()

    monkeypatch.setattr(jobs, "Checkpoint", InterruptedCheckpoint)
    monkeypatch.setattr(translation, "score", end_of_training)
    interrupted = False
    train("undisturbed")
    interrupted = True
    output = train("disturbed", 130)
    checkpoint = max((folder / "disturbed" / "checkpoints").iterdir())
    assert checkpoint.name == "step-00000007.keras"  # in the second epoch
    assert f"the last checkpoint is {checkpoint}" in output.err
    interrupted = False
    assert f"Going on from {checkpoint}" in train("disturbed").out
    for one, other in zip(weights["disturbed"], weights["undisturbed"], strict=True):
        np.testing.assert_array_equal(one, other)
    assert "Epoch" not in train("disturbed").out  # there is nothing left to train
    monkeypatch.setattr(translation, "train", lambda job, model, pairs: None)
    assert "Going on" not in train("disturbed", None, "--seed", "1").out  # other arguments begin anew


@pytest.mark.parametrize(
    "break_it, arguments, message",
    [
        (None, ["--attention", "rnadom"], "Checking the arguments failed: .*'random'.*'rnadom'"),
        (
            None,
            ["--attention", "linear"],
            "Checking the arguments failed: LinearAttention cannot be causal.*'linear'",
        ),
        (None, ["--target", "fr"], "Loading the data failed: .*fr"),
        (None, ["--data", "tfds:no_such_data"], "Loading the data failed: .*tfds:no_such_data"),
        (lambda data: (data / "val.de").unlink(), [], "Loading the data failed: .*val.de"),
        (lambda data: (data / "val.de").write_bytes(b""), [], "val.de is empty"),
        (lambda data: (data / "val.de").write_text("x\n"), [], "same number of lines.* 3 .* 1 "),
        (lambda data: (data / "val.de").write_bytes(b"\xff\n" * 3), [], "val.de must be UTF-8"),
        (lambda data: (data / "val.de").write_text("w " * 10_000), [], "10000 words in line 1.* 1000 "),
        (lambda data: (data.parent / "output").touch(), [], "output must be a folder that can be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, monkeypatch, break_it, arguments, message):
    if break_it:
        break_it(folder / "data")
    with pytest.raises(SystemExit, match=message) as exit:
        run(folder, monkeypatch, *arguments)
    assert "\n" not in str(exit.value)
    assert not list(folder.rglob("*.keras"))


@pytest.mark.parametrize(
    "attention, cls",
    [
        ("dynamic_convolution", DynamicConvolution),
        ("lightweight_convolution", LightweightConvolution),
    ],
)
def test_the_baselines_that_decode(folder, monkeypatch, attention, cls):
    def made(model, arguments, pairs):
        assert isinstance(model.backbone.decoder_layers[0].self_attention, cls)
        sys.exit("made")

    monkeypatch.setattr(translation, "train", lambda job, model, pairs: None)
    monkeypatch.setattr(translation, "score", made)
    with pytest.raises(SystemExit, match="made"):
        run(folder, monkeypatch, "--attention", attention)
