import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from keras_synth.export import export

TEXTS = ["one two", "", "three", "six " * 500, "\U0001f600 שלום \x00", "four five six"]

PROGRAM = """
import sys
import tensorflow as tf
import tensorflow_text
serve = tf.saved_model.load(sys.argv[1], tags=["serve"]).signatures["serving_default"]
assert serve(text=tf.constant([], tf.string))["text"].shape == (0,)
assert serve(text=tf.constant([b"\\xff\\xfe three"]))["text"].shape == (1,)
texts = eval(sys.argv[2])
for size in (1, 3):
    answers = []
    for i in range(0, len(texts), size):
        answers.extend(serve(text=tf.constant(texts[i : i + size]))["text"].numpy())
    print([answer.decode() for answer in answers])
print(sorted({"keras_synth", "keras_hub"} & sys.modules.keys()))
"""


def test_a_process_with_tensorflow_alone_gives_the_same_answers(trained, tmp_path):
    version = export(trained, tmp_path / "model")
    expected = trained.generate(TEXTS)
    assert expected[0] == "eins zwei"
    output = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, version, repr(TEXTS)],
        capture_output=True,
        check=True,
        encoding="utf-8",
    ).stdout
    assert output.splitlines() == [repr(expected), repr(expected), "[]"]


def test_versions_and_signature(trained, tmp_path):
    (tmp_path / "model" / "7").mkdir(parents=True)
    (tmp_path / "model" / "notes").mkdir()
    version = export(trained, tmp_path / "model")
    assert version == tmp_path / "model" / "8"
    assert {child.name for child in (tmp_path / "model").iterdir()} == {"7", "8", "notes"}
    signature = tf.saved_model.load(version).signatures["serving_default"]
    assert signature.structured_input_signature == ((), {"text": tf.TensorSpec([None], tf.string, "text")})
    assert signature.structured_outputs == {"text": tf.TensorSpec([None], tf.string, "text")}


def test_a_failed_export_leaves_nothing(trained, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("the disk is full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="the disk is full"):
        export(trained, tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_what_cannot_be_exported(make_model, tmp_path):
    for model in (keras.Sequential([keras.layers.Dense(1)]), make_model(preprocessor=False)):
        with pytest.raises(ValueError, match="takes a SynthesizerSeq2SeqLM with a preprocessor"):
            export(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()
