"""Each task learns a small problem to near perfection, with every alignment that can solve it in one layer.

What decides is what a row of the alignment can be made of:

- A row of a trained table belongs to a place: enough to copy, reverse and mirror, where the source is at a
  known place. It cannot look for content; but where each place has a meaning of its own, as in an
  expression, the feed-forward network computes with what the table brings from there.
- The dense family reads the row's own token, whose embedding holds the place, so that it can do the same.
- The dot product compares the embeddings of two tokens, and so finds places too.
- What nobody trained, the fixed table and the fixed patterns, averages all places by given weights. These
  differ, so that nothing is lost, but to tell apart what was averaged takes more heads and a wider
  feed-forward network.
- Those that fall off with the distance, and the plain average, see neighbours or a bag of tokens alone; one
  table for all rows, by distance, has no row that looks elsewhere. They are left out.
- Convolutions reach as far as their kernel; linear attention has no causal form.

Solved means: for inputs that were not in the training data.
"""

import itertools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import BOTH, DECODER, ENCODER

from keras_synth import alignments, models

START, MIDDLE, FIRST = 2, 3, 4
SIZES = dict(
    vocabulary_size=12,
    num_layers=1,
    max_length=12,
    dropout=0.0,
    positions="learned",
    # Less to trace, which is most of the time.
    use_bias=False,
    normalization="rms_norm",
)
NARROW = dict(num_heads=4, hidden_dim=32, intermediate_dim=64)
WIDE = dict(num_heads=7, hidden_dim=56, intermediate_dim=128)
UNTRAINED = ("fixed_random", "fixed_pattern")
CONVOLUTIONS = ("lightweight_convolution", "dynamic_convolution")
BY_DISTANCE = ("relative", "decay", "average", "gaussian")
ALIGNMENTS = (*(name for name in alignments.NAMES if name not in BY_DISTANCE), "random+dense+dot_product")


@pytest.fixture(autouse=True)
def same_start():
    # Keras draws its seeds from here. `keras.utils.set_random_seed` would make TensorFlow forget the
    # tokenizers of other tests.
    random.seed(2)


def backbone(cls, attention, **kwargs):
    untrained = {attention, kwargs.get("decoder_attention")} & set(UNTRAINED)
    return cls(**SIZES, **(WIDE if untrained else NARROW), attention=attention, **kwargs)


def split(problems, held_out):
    """Training data, and what is held out of them."""
    problems = np.random.default_rng(0).permutation(problems)
    return problems[held_out:], problems[:held_out]


def strings(length):
    """All strings of so many of eight letters."""
    return FIRST + np.array(list(itertools.product(range(8), repeat=length)))


def column(like, token):
    return np.full((len(like), 1), token)


def inputs(token_ids, side=""):
    return {f"{side}token_ids": token_ids, f"{side}padding_mask": (token_ids > 0).astype("int32")}


def learn(model, attention, x, y, weight=None):
    """Trains on batches that are drawn from the examples."""
    batch, steps = 64, 400 if attention in UNTRAINED else 250
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=1e-2, warmup_steps=steps // 10)
    model.compile(keras.optimizers.Adam(rate), weighted_metrics=[], jit_compile=False)
    drawn = np.random.default_rng(1).integers(len(y), size=batch * steps)
    data = (x, y) if weight is None else (x, y, weight)
    data = tf.data.Dataset.from_tensor_slices(keras.tree.map_structure(lambda array: array[drawn], data))
    model.fit(data.batch(batch), verbose=0)


def generated(model, prompt):
    """The tokens that follow the prompts, greedily."""
    model.compile(sampler="greedy", run_eagerly=True)
    outputs = model.generate(prompt, stop_token_ids=None)
    return next(value for name, value in outputs.items() if name.endswith("token_ids"))


@pytest.mark.parametrize("attention", [*ALIGNMENTS, *CONVOLUTIONS])
def test_a_language_model_learns_to_copy(attention):
    train, test = split(strings(3), 64)
    model = models.SynthesizerCausalLM(backbone(DECODER, attention))
    token_ids = np.concatenate([column(train, START), train, column(train, MIDDLE), train], axis=1)
    weight = np.zeros_like(token_ids)
    weight[:, -3:] = 1  # the copy alone can be predicted
    learn(model, attention, inputs(token_ids[:, :-1]), token_ids[:, 1:], weight[:, 1:])
    prompt = np.concatenate([column(test, START), test, column(test, MIDDLE), 0 * test], axis=1)
    assert np.mean(generated(model, inputs(prompt))[:, -3:] == test) > 0.98


# Cross-attention, a dot product in every model, finds each token. So both sides may have any alignments.
@pytest.mark.parametrize(
    "attention, decoder_attention",
    [
        ("linear", "dynamic_convolution"),
        ("lightweight_convolution", "random"),
        *zip(ALIGNMENTS[::2], ALIGNMENTS[1::2], strict=True),
    ],
)
def test_a_sequence_to_sequence_model_learns_to_reverse_and_to_sort(attention, decoder_attention):
    """Which of the two, says the first token, as in T5."""

    def pairs(problems):
        reverse, text = problems[:, :1] == START, problems[:, 1:]
        return inputs(problems, "encoder_"), np.where(reverse, text[:, ::-1], np.sort(text, axis=1))

    text = strings(3)
    problems = [np.concatenate([column(text, what), text], axis=1) for what in (START, MIDDLE)]
    train, test = split(np.concatenate(problems), 128)
    model = models.SynthesizerSeq2SeqLM(backbone(BOTH, attention, decoder_attention=decoder_attention))
    x, y = pairs(train)
    target = np.concatenate([column(y, START), y[:, :-1]], axis=1)
    learn(model, attention, {**x, **inputs(target, "decoder_")}, y)
    x, y = pairs(test)
    prompt = np.concatenate([column(y, START), 0 * y], axis=1)
    assert np.mean(generated(model, {**x, **inputs(prompt, "decoder_")})[:, 1:] == y) > 0.98


MINIMUM, MAXIMUM, MAJORITY, END, ZERO = range(2, 7)


def nested_expressions():
    """All of `max(2, min(3, 1))` and the like, with the values."""
    functions = {MINIMUM: min, MAXIMUM: max}
    for outer, inner in itertools.product(functions, repeat=2):
        for a, b, c in itertools.product(range(4), repeat=3):
            value = functions[outer](a, functions[inner](b, c))
            parts = [[ZERO + a], [inner, ZERO + b, ZERO + c, END]]
            for first, second in (parts, parts[::-1]):
                yield [outer, *first, *second, END], value


def majorities():
    """All strings of three to nine bits, with what most of them are."""
    for length in (3, 5, 7, 9):
        for bits in itertools.product(range(2), repeat=length):
            yield [MAJORITY, *(ZERO + bit for bit in bits), END], int(2 * sum(bits) > length)


def examples(expressions):
    """Rows of padded expressions, with the value at the end."""
    rows = np.zeros((len(expressions), 12), "int32")
    for row, (tokens, value) in zip(rows, expressions, strict=True):
        row[: len(tokens)] = tokens
        row[-1] = value
    return rows


@pytest.mark.parametrize("attention", [*ALIGNMENTS, *CONVOLUTIONS, "linear"])
def test_a_classifier_learns_nested_expressions_and_majorities(attention):
    """Two kinds of expressions, as in ListOps of https://arxiv.org/abs/2011.04006."""
    kinds = [split(examples(list(kind)), 48) for kind in (nested_expressions(), majorities())]
    model = models.SynthesizerTextClassifier(backbone(ENCODER, attention), num_classes=4)
    train = np.concatenate([train for train, _ in kinds])
    learn(model, attention, inputs(train[:, :-1]), train[:, -1])
    for _, test in kinds:
        assert np.mean(np.argmax(model(inputs(test[:, :-1])), axis=-1) == test[:, -1]) > 0.95


# Not the convolutions: their kernels of 7 reach 3 tokens, the first and the last are 5 apart.
@pytest.mark.parametrize("attention", [*ALIGNMENTS, "linear"])
def test_a_masked_language_model_learns_to_complete_palindromes(attention):
    def masked(half):
        text = np.repeat(np.concatenate([half, half[:, ::-1]], axis=1), 3, axis=0)
        positions = np.tile([[0], [1], [2]], (len(half), 1))
        y = np.take_along_axis(text, positions, axis=1)
        np.put_along_axis(text, positions, START, axis=1)
        return {**inputs(text), "mask_positions": positions}, y

    train, test = split(strings(3), 64)
    model = models.SynthesizerMaskedLM(backbone(ENCODER, attention))
    learn(model, attention, *masked(train))
    x, y = masked(test)
    assert np.mean(np.argmax(model(x), axis=-1) == y) > 0.98
