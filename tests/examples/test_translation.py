import importlib.util
import pathlib
import signal
import sys

import keras
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
    module.keras.utils = type("utils", (), {**vars(keras.utils), "set_random_seed": lambda seed: None})
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
    run(translation, folder, monkeypatch, "--attention", "factorized_random", "--epochs", "2")
    output = capsys.readouterr().out
    assert "held-out loss" in output
    assert "BLEU = " in output
    assert "two red birds | " in output
    loaded = keras.models.load_model(folder / "output" / "translator.keras")
    assert isinstance(loaded.generate("a dog"), str)
    assert [child.name for child in (folder / "output").iterdir()] == ["translator.keras"]
    assert (folder / "saved_models" / "translator" / "1" / "saved_model.pb").exists()


def test_control_c_leaves_a_checkpoint_to_go_on_from(translation, folder, monkeypatch, capsys):
    class InterruptedCheckpoint(translation.Checkpoint):
        def save(self):
            super().save()
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(translation, "Checkpoint", InterruptedCheckpoint)
    with pytest.raises(SystemExit) as exit:
        run(translation, folder, monkeypatch, "--attention", "random", "--epochs", "2")
    assert exit.value.code == 130
    checkpoint = folder / "output" / "checkpoint.keras"
    assert f"the last checkpoint is {checkpoint}" in capsys.readouterr().err
    an_epoch = int(keras.models.load_model(checkpoint).optimizer.iterations)

    # The same command goes on; here it is stopped again, after the other epoch.
    with pytest.raises(SystemExit):
        run(translation, folder, monkeypatch, "--attention", "random", "--epochs", "2")
    assert f"Going on from {checkpoint}" in capsys.readouterr().out
    assert int(keras.models.load_model(checkpoint).optimizer.iterations) == 2 * an_epoch

    # Other arguments begin anew.
    with pytest.raises(SystemExit):
        run(translation, folder, monkeypatch, "--attention", "random", "--epochs", "3")
    assert int(keras.models.load_model(checkpoint).optimizer.iterations) == an_epoch


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
