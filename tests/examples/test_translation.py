import importlib.util
import pathlib
import random
import signal
import sys

import keras
import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SENTENCES = {
    "en": ["a red dog", "a green dog", "two red birds", "two green dogs", "a bird"] * 4,
    "de": ["ein roter Hund", "ein grüner Hund", "zwei rote Vögel", "zwei grüne Hunde", "ein Vogel"] * 4,
}


@pytest.fixture(scope="module")
def translation():
    spec = importlib.util.spec_from_file_location("translation", EXAMPLES / "translation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Seeding anew would make TensorFlow forget the SentencePiece models of other tests.
    module.keras.utils = type("utils", (), {**vars(keras.utils), "set_random_seed": random.seed})
    # As small as can be, because TensorFlow traces it for each shape of a batch.
    tiny = dict(num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=16, dropout=0.1)
    module.PRESETS["tiny"] = tiny
    return module


@pytest.fixture
def folder(tmp_path):
    """Parallel text files, and no output yet."""
    data = tmp_path / "data"
    data.mkdir()
    for language, lines in SENTENCES.items():
        (data / f"train.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (data / f"val.{language}").write_text("\n".join(lines[:3]) + "\n", encoding="utf-8")
    return tmp_path


def run(module, folder, monkeypatch, *arguments):
    places = {"data": "data", "output": "output", "export": "saved_models/translator"}
    options = [text for name, at in places.items() for text in (f"--{name}", str(folder / at))]
    monkeypatch.setattr(
        sys, "argv", ["translation.py", *options, "--preset", "tiny", "--batch-size", "20", *arguments]
    )
    module.main()


def test_the_whole_job(translation, folder, monkeypatch, capsys):
    options = ["--epochs", "2", "--label-smoothing", "0.1", "--bleu-every", "2", "--average", "2"]
    run(translation, folder, monkeypatch, "--attention", "factorized_random", *options)
    output = capsys.readouterr().out
    assert "held-out loss" in output
    assert "val_bleu: " in output
    assert "BLEU = " in output
    assert "two red birds | " in output
    loaded = keras.models.load_model(folder / "output" / "translator.keras")
    assert isinstance(loaded.generate("a dog"), str)
    assert [child.name for child in (folder / "output").iterdir()] == ["translator.keras"]
    assert (folder / "saved_models" / "translator" / "1" / "saved_model.pb").exists()


def test_the_same_command_goes_on_after_an_interruption(translation, folder, monkeypatch, capsys):
    weights = {}

    class InterruptedCheckpoint(translation.Checkpoint):
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
            run(translation, folder, monkeypatch, "--attention", "random", *options, *arguments)
        assert exit.value.code == code
        return capsys.readouterr()

    monkeypatch.setattr(translation, "Checkpoint", InterruptedCheckpoint)
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
    # Interrupted after training, there is nothing left to train; with other arguments it begins anew.
    assert "Epoch" not in train("disturbed").out
    assert "Going on" not in train("disturbed", None, "--seed", "1").out


@pytest.mark.parametrize(
    "break_it, arguments, message",
    [
        (None, ["--attention", "rnadom"], "Checking the arguments failed: .*'random'.*'rnadom'"),
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
def test_what_is_wrong_is_said_in_one_line(translation, folder, monkeypatch, break_it, arguments, message):
    if break_it:
        break_it(folder / "data")
    with pytest.raises(SystemExit, match=message) as exit:
        run(translation, folder, monkeypatch, *arguments)
    assert "\n" not in str(exit.value)
    assert not list(folder.rglob("*.keras"))
