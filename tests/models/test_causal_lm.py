"""The language model: strings, metrics, saving. What it generates is in `test_generation`."""

import subprocess
import sys

import keras
import keras_hub
import numpy as np
import pytest
from tiny import DECODER, SIZES

from keras_synth import models

TEXTS = ["one two three four", "six one six"]


@pytest.fixture(scope="module")
def model(tokenizer):
    """A language model that knows `TEXTS` by heart."""
    arguments = {**SIZES, "vocabulary_size": tokenizer.vocabulary_size(), "max_length": 30, "dropout": 0.0}
    preprocessor = models.SynthesizerCausalLMPreprocessor(tokenizer, 24)
    backbone = DECODER(**{**arguments, "hidden_dim": 32, "attention": "random+dense"})
    model = models.SynthesizerCausalLM(backbone, preprocessor)
    model.compile(
        keras.optimizers.Adam(1e-2), sampler=models.BeamSampler(2, length_penalty=0.5), jit_compile=False
    )
    model.fit(TEXTS * 8 * 40, batch_size=16, verbose=0)
    return model


def test_fit_and_generate_on_strings(model):
    assert model.generate(["one", "six"]) == TEXTS
    assert model.generate("one two") == TEXTS[0]
    assert model.generate("six one", strip_prompt=True).strip() == "six"
    assert model.generate("one", max_length=6).startswith("one")


def test_fit_traces_its_step_once():
    traced = []

    class Counting(models.SynthesizerCausalLM):
        def compute_loss(self, *args, **kwargs):
            traced.append(1)
            return super().compute_loss(*args, **kwargs)

    model = Counting(DECODER(**SIZES))
    model.compile("adam", jit_compile=False)
    x = np.ones((4, 5), "int32")
    model.fit({"token_ids": x, "padding_mask": x}, x, batch_size=2, verbose=0)
    assert len(traced) == 1 and model.optimizer.iterations == 2


def test_keras_file(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.sampler) is models.BeamSampler
    assert loaded.sampler.length_penalty == 0.5
    assert loaded.generate(["one", "six"]) == TEXTS
    assert len(loaded.weights) == len(loaded.backbone.weights)  # the output projection is the embedding
    assert loaded.preprocessor.sequence_length == 24


def test_a_preset_generates_the_same_in_another_process(model, tmp_path):
    model.save_to_preset(str(tmp_path / "preset"))
    program = (
        "from keras_synth.models import SynthesizerCausalLM\n"
        f"model = SynthesizerCausalLM.from_preset({str(tmp_path / 'preset')!r})\n"
        "model.compile(sampler='greedy', jit_compile=False)\n"
        "print(model.generate(['one', 'six']))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == str(TEXTS)
    assert isinstance(keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset")), type(model))


@pytest.mark.parametrize("kind", ["weighted_metrics", "metrics"])
def test_padding_counts_in_no_loss_and_no_metric(model, kind):
    x, y, weight = (keras.tree.map_structure(np.array, part) for part in model.preprocessor(TEXTS))
    logits = np.array(model(x))
    log_probs = np.array(keras.ops.log_softmax(logits))
    chosen = np.take_along_axis(log_probs, y[..., None].astype(int), axis=-1)[..., 0]
    again = models.SynthesizerCausalLM(model.backbone, model.preprocessor)
    perplexity = keras_hub.metrics.Perplexity(from_logits=True, name="perplexity")
    again.compile(**{kind: [perplexity, "accuracy"]}, jit_compile=False)
    results = again.evaluate(TEXTS, verbose=0, return_dict=True)
    np.testing.assert_allclose(results["loss"], -chosen[weight].mean(), rtol=1e-4)
    np.testing.assert_allclose(results["perplexity"], np.exp(-chosen[weight].mean()), rtol=1e-4)
    hits = np.argmax(logits, axis=-1) == y
    np.testing.assert_allclose(results["accuracy"], hits[weight].mean(), rtol=1e-6)


def test_separate_embeddings_stay_separate(tmp_path):
    model = models.SynthesizerCausalLM(DECODER(**SIZES, tie_word_embeddings=False))
    x = {"token_ids": np.array([[5, 6, 7]]), "padding_mask": np.ones((1, 3))}
    expected = np.array(model(x))
    model.backbone.save(tmp_path / "backbone.keras")
    loaded = models.SynthesizerCausalLM(keras.models.load_model(tmp_path / "backbone.keras"))
    np.testing.assert_array_equal(loaded(x), expected)
    embedding = loaded.backbone.token_embedding
    embedding.reverse_embeddings.assign(embedding.reverse_embeddings * 0)
    assert np.all(np.array(loaded(x)) == 0) and np.any(embedding.embeddings.numpy() != 0)
