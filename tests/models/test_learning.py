"""Each task learns a small problem to near perfection, with synthesizers alone in self-attention."""

import random

import keras
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER

from keras_synth import models

SIZES = dict(
    vocabulary_size=12,
    num_layers=1,
    num_heads=2,
    hidden_dim=32,
    intermediate_dim=64,
    max_length=12,
    dropout=0.0,
)
EXAMPLES, LENGTH, START, MIDDLE, FIRST = 1024, 4, 2, 3, 4


@pytest.fixture(autouse=True)
def same_start():
    # Keras draws its seeds from here. `keras.utils.set_random_seed` would make TensorFlow forget the
    # tokenizers of other tests.
    random.seed(1)


def draw(seed, count=EXAMPLES, length=LENGTH):
    return np.random.default_rng(seed).integers(FIRST, SIZES["vocabulary_size"], (count, length))


def column(count, token):
    return np.full((count, 1), token)


def everything(name, token_ids):
    side = name.removesuffix("token_ids")
    return {name: token_ids, f"{side}padding_mask": np.ones_like(token_ids)}


def compile_for(model, steps, **kwargs):
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=1e-2, warmup_steps=steps // 10)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), **kwargs)


@pytest.mark.parametrize("attention", ["random", "dense"])
def test_a_language_model_learns_to_copy(attention):
    model = models.SynthesizerCausalLM(DECODER(**SIZES, attention=attention))
    x = draw(1)
    token_ids = np.concatenate([column(EXAMPLES, START), x, column(EXAMPLES, MIDDLE), x], axis=1)
    weight = np.arange(token_ids.shape[1] - 1) > LENGTH  # the copy alone can be predicted
    compile_for(model, 16 * 14, sampler="greedy", jit_compile=False)
    model.fit(
        everything("token_ids", token_ids[:, :-1]),
        token_ids[:, 1:],
        sample_weight=np.broadcast_to(weight, token_ids[:, 1:].shape),
        batch_size=64,
        epochs=14,
        verbose=0,
    )
    x = draw(2, 50)
    prompt = np.concatenate([column(50, START), x, column(50, MIDDLE), 0 * x], axis=1)
    answers = model.generate({"token_ids": prompt, "padding_mask": prompt > 0}, stop_token_ids=None)
    assert np.mean(answers["token_ids"][:, -LENGTH:] == x) > 0.98


@pytest.mark.parametrize(
    "attention, epochs, answer",
    [("random", 8, lambda x: x[:, ::-1]), ("factorized_random+dense", 14, lambda x: np.sort(x, axis=1))],
    ids=["reverse", "sort"],
)
def test_a_sequence_to_sequence_model_learns_to(attention, epochs, answer):
    model = models.SynthesizerSeq2SeqLM(BOTH(**SIZES, attention=attention))

    def inputs(x, y):
        return {**everything("encoder_token_ids", x), **everything("decoder_token_ids", y)}

    x = draw(1)
    y = np.concatenate([column(EXAMPLES, START), answer(x)], axis=1)
    compile_for(model, 16 * epochs, sampler="greedy", jit_compile=False)
    model.fit(inputs(x, y[:, :-1]), y[:, 1:], batch_size=64, epochs=epochs, verbose=0)
    x = draw(2, 50)
    prompt = np.concatenate([column(50, START), 0 * x], axis=1)
    outputs = {**inputs(x, prompt), "decoder_padding_mask": prompt > 0}
    answers = model.generate(outputs, stop_token_ids=None)
    assert np.mean(answers["decoder_token_ids"][:, 1:] == answer(x)) > 0.98


@pytest.mark.parametrize("attention", ["random", "factorized_dense"])
def test_a_classifier_learns_the_majority(attention):
    def examples(seed):
        rng = np.random.default_rng(seed)
        mask = np.arange(9) < rng.choice([3, 5, 7, 9], (EXAMPLES, 1))
        x = rng.integers(4, 6, mask.shape) * mask
        majority = np.sum(x == 5, axis=1) > np.sum(x == 4, axis=1)
        return {"token_ids": x, "padding_mask": mask}, majority.astype("int32")

    model = models.SynthesizerTextClassifier(ENCODER(**SIZES, attention=attention), num_classes=2)
    compile_for(model, 16 * 3, metrics=["accuracy"], jit_compile=False)
    model.fit(*examples(1), batch_size=64, epochs=3, verbose=0)
    assert model.evaluate(*examples(2), verbose=0, return_dict=True)["accuracy"] > 0.98


def test_a_masked_language_model_learns_to_complete():
    """Texts are palindromes, of which one half may be masked."""

    def examples(seed):
        x = draw(seed, length=4)
        x = np.concatenate([x, x[:, ::-1]], axis=1)
        positions = np.random.default_rng(seed).integers(0, 4, (EXAMPLES, 2))
        y = np.take_along_axis(x, positions, axis=1)
        masked = x.copy()
        np.put_along_axis(masked, positions, START, axis=1)
        return {**everything("token_ids", masked), "mask_positions": positions}, y

    model = models.SynthesizerMaskedLM(ENCODER(**SIZES, attention="random"))
    compile_for(model, 16 * 12, jit_compile=False)
    model.fit(*examples(1), batch_size=64, epochs=12, verbose=0)
    assert model.evaluate(*examples(2), verbose=0)[1] > 0.98
