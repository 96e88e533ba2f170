"""Names of classes: in `fit`, files, presets and exports; and what is refused at once."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from tiny import BOTH, DECODER, ENCODER, SIZES

from keras_synth import models
from keras_synth.export import export

pytestmark = pytest.mark.tensorflow
TEXTS = ["one two", "three", "four five six", "six one"]
NAMES = ["low", "low", "high", "low"]
LABELS = ["high", "low"]


def classifier(tokenizer, **kwargs):
    backbone = ENCODER(**{**SIZES, "vocabulary_size": tokenizer.vocabulary_size()}, dropout=0.0)
    preprocessor = models.SynthesizerTextClassifierPreprocessor(tokenizer)
    model = models.SynthesizerTextClassifier(backbone, preprocessor=preprocessor, **kwargs)
    model.run_eagerly = True
    return model


@pytest.fixture(scope="module")
def named(tokenizer):
    return classifier(tokenizer, labels=LABELS)


@pytest.fixture(scope="module")
def sigmoid(tokenizer):
    return classifier(tokenizer, labels=["short", "high", "odd"], activation="sigmoid")


def test_a_default_length_is_that_of_the_backbone(named):
    assert named.preprocessor.sequence_length == SIZES["max_length"]


@pytest.mark.parametrize("kind", ["lists", "arrays", "dataset"])
def test_names_are_class_ids(named, kind):
    x, y = {
        "lists": (TEXTS, NAMES),
        "arrays": (np.array(TEXTS), np.array(NAMES, dtype=object)),
        "dataset": (tf.data.Dataset.from_tensor_slices((TEXTS, NAMES)).batch(3), None),
    }[kind]
    ids = [LABELS.index(name) for name in NAMES]
    np.testing.assert_allclose(named.evaluate(x, y, verbose=0), named.evaluate(TEXTS, ids, verbose=0), 1e-5)


def test_class_weights_are_by_name_too(named):
    weights = named.get_weights()
    losses = []
    for class_weight in ({"high": 3.0, "low": 0.5}, {0: 3.0, 1: 0.5}, None):
        named.set_weights(weights)
        history = named.fit(TEXTS, NAMES, class_weight=class_weight, shuffle=False, verbose=0)
        losses.append(history.history["loss"][0])
    assert losses[0] == losses[1] != losses[2]
    with pytest.raises(ValueError, match="`class_weight` must be class ids from 0 to 1, or .*'middle'"):
        named.fit(TEXTS, NAMES, class_weight={"middle": 1.0})


def test_names_stay_with_the_model(named, tmp_path):
    named.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").labels == LABELS
    preset = str(tmp_path / "preset")
    named.save_to_preset(preset)
    again = keras_hub.models.TextClassifier.from_preset(preset)
    assert again.labels == LABELS
    assert models.SynthesizerTextClassifier.from_preset(preset, num_classes=2).labels is None
    other = models.SynthesizerTextClassifier.from_preset(preset, labels=["a", "b", "c"])
    assert other.labels == ["a", "b", "c"] and other.output_shape == (None, 3)
    served = tf.saved_model.load(export(again, tmp_path / "served")).signatures["classify"]
    expected = np.argmax(named.predict(TEXTS, verbose=0), axis=-1)
    answers = served(text=tf.constant(TEXTS))["label"].numpy()
    assert [answer.decode() for answer in answers] == [LABELS[index] for index in expected]


def test_a_text_may_have_several_labels(sigmoid):
    y = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    p = sigmoid.predict(TEXTS, verbose=0)
    loss, accuracy = sigmoid.evaluate(TEXTS, y, verbose=0)
    np.testing.assert_allclose(loss, -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)), 1e-4)
    np.testing.assert_allclose(accuracy, np.mean((p > 0.5) == y), 1e-5)
    with pytest.raises(ValueError, match=r"`y` must have shape \(batch, 3\).*shape=\(4,\)"):
        sigmoid.fit(TEXTS, [0, 1, 2, 0])


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_one_class_is_a_yes_or_no(tokenizer, activation):
    model = classifier(tokenizer, num_classes=1, activation=activation)
    y = np.array([1, 0, 0, 1])
    p = model.predict(TEXTS, verbose=0)[:, 0]
    p = p if activation else 1 / (1 + np.exp(-p))
    loss, accuracy = model.evaluate(TEXTS, y, verbose=0)
    np.testing.assert_allclose(loss, -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)), 1e-4)
    np.testing.assert_allclose(accuracy, np.mean((p > 0.5) == y), 1e-5)


def batches():
    yield np.array(TEXTS), np.array([0, 1, 1, 0])


IDS = [0, 1, 1, 0]
NOT_BATCHED = tf.data.Dataset.from_tensor_slices((TEXTS, IDS))


@pytest.mark.parametrize(
    "x, y, message",
    [
        (TEXTS, [0, 1, 2, 0], r"`y` must be class ids from 0 to 1, or .* Received: y\[2\]=2"),
        (TEXTS, [0, -1, 1, 0], r"y\[1\]=-1"),
        (TEXTS, ["low", "low", "middle", "low"], r"names of the labels \['high', 'low'\].*y\[2\]='middle'"),
        (["one", None, "two", "six"], IDS, r"All of `x` must be strings. Received: x\[1\]=None"),
        (np.array(["one", "two", float("nan"), "six"], object), IDS, r"x\[2\]=nan"),
        (["one", "two", float("nan"), "six"], IDS, r"x\[2\]=nan"),
        (TEXTS, ["low", None, "low", "low"], r"All of `y` must be strings. Received: y\[1\]=None"),
        (np.array([TEXTS, TEXTS]).T, IDS, r"texts of `x` must be in one row.*shape \(4, 2\)"),
        (batches(), None, r"`x` must be an array.* or a `tf.data.Dataset` of batches.*generator"),
        (NOT_BATCHED, None, r"batches of texts or tokens .*dataset.batch\(32\)"),
    ],
)
def test_wrong_data(named, x, y, message):
    with pytest.raises(ValueError, match=message):
        named.fit(x, y, verbose=0)


def test_wrong_labels_of_a_dataset(named):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="class ids from 0 to 1"):
        named.evaluate(tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 2, 0])).batch(4), verbose=0)


def test_wrong_data_elsewhere(named, tokenizer):
    with pytest.raises(ValueError, match="at least one. Received: 0 examples"):
        named.predict([])
    with pytest.raises(ValueError, match="a single example, not a list"):
        named.predict("one")
    with pytest.raises(ValueError, match=r"validation_data\[1\]\[0\]=7"):
        named.fit(TEXTS, NAMES, validation_data=(TEXTS, [7, 1, 1, 0]))
    with pytest.raises(ValueError, match="names of classes.*`labels="):
        classifier(tokenizer, num_classes=2).fit(TEXTS, NAMES)


@pytest.mark.parametrize("labels", ["ab", ["a"], ["a", "a"], ["a", 1]])
def test_wrong_names(named, labels, tmp_path):
    with pytest.raises(ValueError, match="`labels` must be 2 different strings"):
        models.SynthesizerTextClassifier(named.backbone, 2, labels=labels)
    with pytest.raises(ValueError, match="`labels` must be 2 different strings"):
        export(named, tmp_path, labels=labels)


def test_a_backbone_of_another_kind():
    with pytest.raises(ValueError, match="SynthesizerTextClassifier must be a SynthesizerEncoderBackbone"):
        models.SynthesizerTextClassifier(DECODER(**SIZES), 2)
    with pytest.raises(ValueError, match="SynthesizerCausalLM must be a SynthesizerDecoderBackbone"):
        models.SynthesizerCausalLM(BOTH(**SIZES))


def test_a_vocabulary_that_is_larger_than_that_of_the_backbone(tokenizer, masking_tokenizer):
    size = tokenizer.vocabulary_size()
    backbone = ENCODER(**{**SIZES, "vocabulary_size": size})
    preprocessor = models.SynthesizerMaskedLMPreprocessor(masking_tokenizer)
    message = f"at most vocabulary_size={size} tokens.*MaskingTokenizer with vocabulary_size..={size + 6}"
    with pytest.raises(ValueError, match=message):
        models.SynthesizerMaskedLM(backbone, preprocessor)
    model = models.SynthesizerTextClassifier(backbone, 2)
    with pytest.raises(ValueError, match=message):
        model.preprocessor = models.SynthesizerTextClassifierPreprocessor(masking_tokenizer)


@pytest.mark.parametrize("sampler", ["gredy", 3, keras_hub.samplers.GreedySampler, None])
def test_a_sampler_that_there_is_not(sampler, tmp_path):
    model = models.SynthesizerCausalLM(DECODER(**SIZES))
    with pytest.raises(ValueError, match="`sampler`.* one of 'beam', .*'greedy'.* Received: sampler="):
        model.compile(sampler=sampler)


def test_models_learn_from_scratch_by_default(named):
    assert float(models.SynthesizerTextClassifier(named.backbone, 2).optimizer.learning_rate) == (
        pytest.approx(1e-3)
    )
