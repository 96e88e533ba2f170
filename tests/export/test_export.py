"""Folders, arguments, variants and reports of exports."""

import concurrent.futures
import errno
import json
import os
import pathlib
import re
import resource
import threading

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from keras_synth.export import export, with_dtype
from keras_synth.export.versions import write_version
from keras_synth.layers import RandomSynthesizer
from keras_synth.models import BeamSampler

TEXTS = tf.constant(["one two", "", "three six " * 9])


def dense():
    return keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2, name="y")])


def weights(version):
    """The weights in a SavedModel."""
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    names = reader.get_variable_to_shape_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    return [reader.get_tensor(name) for name in names]


@pytest.fixture(scope="module")
def classifier(make_task):
    return make_task("classifier", seed=1)


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    return export(classifier, tmp_path_factory.mktemp("classifier"))


def ask(version, **inputs):
    answer = tf.saved_model.load(version).signatures["serving_default"](**inputs)
    return {name: value.numpy() for name, value in answer.items()}


# Versions


def test_the_next_version_is_chosen(tmp_path):
    (tmp_path / "model" / "7").mkdir(parents=True)
    (tmp_path / "model" / "notes").mkdir()
    assert export(dense(), tmp_path / "model") == tmp_path / "model" / "8"
    assert {child.name for child in (tmp_path / "model").iterdir()} == {"7", "8", "notes"}


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("the disk is full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="the disk is full"):
        export(dense(), tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing(tmp_path):
    model = keras.Sequential([keras.Input((300,)), keras.layers.Dense(300)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    try:
        with pytest.raises((OSError, tf.errors.OpError)):
            export(model, tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "model").iterdir()) == []


def test_a_reader_sees_whole_versions_alone(tmp_path):
    """What a server would load is complete at every moment, while several export at once."""
    path, done, seen = tmp_path / "model", threading.Event(), set()
    models = [dense() for _ in range(3)]
    files = {"saved_model.pb", "variables/variables.index", "assets.extra/report.md"}

    def read():
        while not done.is_set():
            for version in path.glob("[0-9]*"):
                assert all((version / file).exists() for file in files)
                seen.add(version)

    slice_update = keras.ops.slice_update
    path.mkdir()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        reader = threads.submit(read)
        versions = list(threads.map(lambda i: export(models[i % 3], path), range(9)))
        done.set()
        reader.result()
    assert seen
    assert sorted(int(version.name) for version in versions) == list(range(1, 10))
    assert sorted(path.iterdir()) == sorted(versions)
    assert keras.ops.slice_update is slice_update


def test_an_error_that_no_version_explains_is_raised(tmp_path, monkeypatch):
    def fail(self, target):
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(pathlib.Path, "rename", fail)
    with pytest.raises(OSError, match="read-only"):
        write_version(tmp_path, lambda folder: None)
    assert list(tmp_path.iterdir()) == []


def test_a_version_is_on_the_disk_before_it_is_there(tmp_path, monkeypatch):
    flushed, flush = [], os.fsync

    def note(descriptor):
        flushed.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    version = export(dense(), tmp_path)
    files = {path.relative_to(version) for path in [version, *version.rglob("*")]}
    partial = flushed[0]
    assert partial.parent == tmp_path and partial.name.startswith(".")
    assert {path.relative_to(partial) for path in flushed[:-1]} == files
    assert flushed[-1] == tmp_path


@pytest.mark.parametrize("end", ["model/1", "model/007", "model/1/.", "2/../1"])
def test_a_path_with_a_version_is_refused(end, tmp_path):
    with pytest.raises(ValueError, match="`path` must be the folder of all versions .* Received: path="):
        export(dense(), tmp_path / end)
    assert list(tmp_path.iterdir()) == []


# Signatures


def test_names_shapes_and_dtypes(exported):
    text = tf.TensorSpec([None], tf.string)
    answer = {
        "label": text,
        "score": tf.TensorSpec([None], tf.float32),
        "scores": tf.TensorSpec([None, 3], tf.float32),
        "truncated": tf.TensorSpec([None], tf.bool),
    }
    tokens = tf.TensorSpec([None, None], tf.int32)
    signatures = tf.saved_model.load(exported).signatures
    assert {
        name: tuple(
            {key: tf.TensorSpec(spec.shape, spec.dtype) for key, spec in specs.items()}
            for specs in (signature.structured_input_signature[1], signature.structured_outputs)
        )
        for name, signature in signatures.items()
    } == {
        "serving_default": ({"text": text}, answer),
        "classify": ({"text": text}, answer),
        "classify_pair": ({"text": text, "second_text": text}, answer),
        "predict": (
            {"token_ids": tokens, "padding_mask": tokens},
            {"logits": tf.TensorSpec([None, 3], tf.float32)},
        ),
    }


def test_longer_tokens_are_an_error_that_names_the_limit(exported):
    predict = tf.saved_model.load(exported).signatures["predict"]
    tokens = tf.ones((2, 24), tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most max_length=23 tokens"):
        predict(token_ids=tokens, padding_mask=tokens)


def test_a_model_without_preprocessor_takes_tensors(make_task, tmp_path):
    model = make_task("causal_lm", preprocessor=False)
    loaded = tf.saved_model.load(export(model, tmp_path))
    assert set(loaded.signatures) == {"predict", "serving_default"}
    tokens = {"token_ids": np.ones((2, 5), "int32"), "padding_mask": np.ones((2, 5), "int32")}
    np.testing.assert_allclose(loaded.predict(**tokens)["logits"], model(tokens), atol=1e-5)


def test_models_of_other_kinds(tmp_path):
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    numbers = keras.Input((2,), name="numbers")
    x = keras.layers.Embedding(50, 8)(tokens)
    x = keras.layers.Dense(4, name="each")(RandomSynthesizer(2, 4, 16)(x))
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    both = keras.layers.Concatenate(name="both")([pooled, numbers])
    inputs = {"tokens": np.ones((3, 5), "int32"), "numbers": np.ones((3, 2), "float32")}
    for structure in ([tokens, numbers], {"tokens": tokens, "numbers": numbers}):
        for outputs in ([x, both], {"each": x, "both": both}):
            answer = ask(export(keras.Model(structure, outputs), tmp_path), **inputs)
            assert answer.keys() == {"each", "both"}
            expected = keras.Model([tokens, numbers], both)([inputs["tokens"], inputs["numbers"]])
            np.testing.assert_allclose(answer["both"], expected, atol=1e-5)
    # A table of Keras's own.
    text = keras.Input((), dtype="string", name="text")
    lookup = keras.layers.StringLookup(vocabulary=["one", "two"], output_mode="one_hot", name="place")
    answer = ask(export(keras.Model(text, lookup(text)), tmp_path), text=tf.constant(["two", "three"]))
    np.testing.assert_array_equal(answer["place"], [[0, 0, 1], [1, 0, 0]])
    answer = ask(export(dense(), tmp_path), x=np.ones((0, 3), "float32"))
    assert answer["y"].shape == (0, 2)


def test_dropout_does_nothing_and_sampling_draws_anew(make_task, tmp_path):
    model = make_task("causal_lm", dropout=0.9, attention_dropout=0.9, feedforward_dropout=0.9)
    model.compile(sampler="greedy", jit_compile=False)
    version = export(model, tmp_path, sampler="top_k")
    loaded = tf.saved_model.load(version)
    assert isinstance(model.sampler, keras_hub.samplers.GreedySampler)
    scores = [loaded.score(text=TEXTS)["score"].numpy() for _ in range(2)]
    np.testing.assert_array_equal(*scores)
    answers = {tuple(loaded.generate(text=TEXTS)["text"].numpy()) for _ in range(4)}
    assert len(answers) > 1
    report = (version / "assets.extra" / "report.md").read_text()
    draws = ", which draws at random: equal requests get unequal answers\n"
    assert f"- `generate`{draws}" in report and f"- `generate_tokens`{draws}" in report
    assert report.count(draws) == 2 and "- `score`\n" in report


def test_one_class_is_a_number(make_task, tokenizer, tmp_path):
    from keras_synth import models

    three = make_task("classifier")
    model = models.SynthesizerTextClassifier(three.backbone, 1, three.preprocessor)
    answer = ask(export(model, tmp_path), text=TEXTS)
    assert answer.keys() == {"score", "truncated"}
    inputs = model.preprocessor(["one two", "", "three six " * 9])
    np.testing.assert_allclose(answer["score"], model(inputs)[:, 0], atol=1e-5)


class WordPieces(keras_hub.tokenizers.WordPieceTokenizer):
    """A tokenizer of another kind, whose vocabulary is a table."""

    def __init__(self, **kwargs):
        self._add_special_token("[CLS]", "start_token")
        self._add_special_token("[SEP]", "end_token")
        self._add_special_token("[PAD]", "pad_token")
        super().__init__(**kwargs)


class BytePairs(keras_hub.tokenizers.BytePairTokenizer):
    """A tokenizer of a third kind."""

    def __init__(self, **kwargs):
        self._add_special_token("<s>", "start_token")
        self._add_special_token("</s>", "end_token")
        self._add_special_token("<pad>", "pad_token")
        super().__init__(**kwargs)


@pytest.mark.parametrize("kind", [WordPieces, BytePairs])
def test_other_tokenizers(kind, make_task, tmp_path):
    file = tmp_path / "vocabulary"
    if kind is WordPieces:
        file.write_text("\n".join(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "one", "two", "th", "##ree"]))
        tokenizer = kind(vocabulary=str(file))
    else:
        pieces = [
            "<pad>",
            "<s>",
            "</s>",
            *"onetwhr",
            "\u0120",
            "on",
            "one",
            "\u0120t",
            "\u0120tw",
            "\u0120two",
        ]
        file.write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        merges = ["o n", "on e", "\u0120 t", "\u0120t w", "\u0120tw o"]
        tokenizer = kind(vocabulary=str(file), merges=merges)
    model = make_task("classifier", tokenizer)
    version = export(model, tmp_path / "model")
    file.unlink()
    texts = ["one two", "three", ""]
    scores = tf.nn.softmax(model(model.preprocessor(texts)))
    np.testing.assert_allclose(ask(version, text=tf.constant(texts))["scores"], scores, atol=1e-5)


# Precomputed weights


def test_precomputed_weights_give_the_same_answers(make_task, tmp_path):
    model = make_task("classifier")
    (table,) = (weight for weight in model.weights if "table" in weight.path)
    table.assign(np.random.default_rng(0).normal(size=table.shape))
    precomputed, raw = (export(model, tmp_path, precompute=precompute) for precompute in (True, False))
    np.testing.assert_allclose(
        ask(precomputed, text=TEXTS)["scores"], ask(raw, text=TEXTS)["scores"], rtol=1e-4
    )
    softened, raw = (
        next(value for value in weights(version) if value.shape == table.shape)
        for version in (precomputed, raw)
    )
    np.testing.assert_array_equal(raw, table)
    # Each row is the softmax of the table's, but for a factor.
    ratio = softened / np.exp(raw)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[..., :1], ratio.shape), rtol=1e-5)


def test_the_former_name_of_precompute(make_task, tmp_path):
    model = make_task("classifier", preprocessor=False)
    (table,) = (weight for weight in model.weights if "table" in weight.path)
    for version in (export(model, tmp_path, fold=False), export(model, tmp_path, precompute=False)):
        assert any(np.array_equal(value, table) for value in weights(version))
    assert not any(np.array_equal(value, table) for value in weights(export(model, tmp_path, fold=True)))


def test_only_what_is_used_is_saved(make_task, tmp_path):
    model = make_task("classifier", dropout=0.1)
    model.compile("adam")
    saved = weights(export(model, tmp_path))
    # No optimizer, metrics or seeds: the weights of the model, and precomputed tables instead of raw ones.
    assert sum(value.size for value in saved) == model.count_params()
    assert len(saved) == len(model.weights)


# Variants


@pytest.mark.parametrize("dtype, tolerance", [("float16", 2e-3), ("bfloat16", 2e-2), ("int8", 2e-2)])
def test_smaller_weights(classifier, exported, dtype, tolerance, tmp_path):
    version = export(classifier, tmp_path, dtype=dtype)
    assert {weight.dtype for weight in classifier.weights} == {"float32"}
    size, full = ((folder / "variables" / "variables.data-00000-of-00001").stat().st_size
                  for folder in (version, exported))  # fmt: skip
    assert size < 0.75 * full
    np.testing.assert_allclose(
        ask(version, text=TEXTS)["scores"], ask(exported, text=TEXTS)["scores"], atol=tolerance
    )


def test_a_copy_with_a_dtype(make_task):
    for model in (make_task("masked_lm"), dense()):
        copy = with_dtype(model, "bfloat16")
        assert type(copy) is type(model)
        assert "bfloat16" in {weight.dtype for weight in copy.weights}
        for old, new in zip(model.weights, copy.weights, strict=True):
            np.testing.assert_allclose(
                keras.ops.cast(new.value, "float32"), old.value, rtol=1e-2, atol=1e-6
            )


# Arguments


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(labels=["a", "b"]), "`labels` must be 3 different strings"),
        (dict(labels=[1, 2, 3]), "`labels` must be 3 different strings"),
        (dict(sampler="greedy"), "has a `sampler`"),
        (dict(dtype="int4"), "`dtype` must be one of 'float32'"),
        (dict(format="pmml"), "`format` must be one of 'saved_model'"),
        (dict(warmup=[{"txt": ["one"]}]), "must have the inputs of a signature"),
    ],
)
def test_wrong_arguments(classifier, kwargs, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export(classifier, tmp_path / "model", **kwargs)
    assert not (tmp_path / "model").exists()


def test_a_sampler_that_returns_all_beams(make_task, tmp_path):
    with pytest.raises(ValueError, match="its best beam. Received: sampler=BeamSampler"):
        export(make_task("causal_lm"), tmp_path / "model", sampler=BeamSampler(2, return_all_beams=True))
    assert not (tmp_path / "model").exists()


def test_wrong_models(tmp_path):
    class Subclass(keras.Model):
        pass

    for model in (keras.Sequential([keras.layers.Dense(1)]), Subclass(), "model"):
        with pytest.raises(ValueError, match="takes a built model with inputs"):
            export(model, tmp_path / "model")
    with pytest.raises(ValueError, match="Only a SynthesizerTextClassifier has `labels`"):
        export(dense(), tmp_path / "model", labels=["a"])
    assert not (tmp_path / "model").exists()


# The report


def test_report(exported, classifier):
    report = (exported / "assets.extra" / "report.md").read_text()
    assert "- `classify_pair`\n  - from `second_text`: string (?)\n" in report
    assert "`SentencepieceTokenizeOp`: tensorflow_text" in report
    assert "The oldest TensorFlow Serving that answers: 2.17." in report
    assert "at random" not in report
    assert "Xla" not in report
    assert f"`variables{'/'}variables.data-00000-of-00001`" in report
    assert re.search(r"encoder_0/self_attention\S*\s+RandomAlignment\s+R\s", report)


def test_report_of_operations_that_old_servers_lack(tmp_path):
    @keras.saving.register_keras_serializable("tests")
    class Trim(keras.layers.Layer):
        def call(self, x):
            rows = tf.RaggedTensor.from_tensor(tf.convert_to_tensor(x))
            return tensorflow_text.RoundRobinTrimmer(2).trim([rows])[0].to_tensor()

        def compute_output_shape(self, shape):
            return shape

    x = keras.Input((None,), dtype="int32", name="x")
    version = export(keras.Model(x, Trim(name="y")(x)), tmp_path)
    np.testing.assert_array_equal(ask(version, x=tf.constant([[1, 2, 3]]))["y"], [[1, 2]])
    report = (version / "assets.extra" / "report.md").read_text()
    assert "- `TFText>RoundRobinTrim`: tensorflow_text" in report
    assert "The oldest TensorFlow Serving that answers: 2.20." in report
