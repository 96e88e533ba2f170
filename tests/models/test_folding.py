"""`predict` and `generate` with attention weights that are finished once for a call."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs, language_model, output

from keras_synth.layers.folding import folded

TABLES = ["random", "fixed_random", "factorized_random", "random+factorized_random"]


def tables(model):
    return [weight for weight in model.weights if "alignment" in weight.path]


def change(model, seed):
    for weight in tables(model):
        weight.assign(np.random.default_rng(seed).normal(size=weight.shape))


@pytest.mark.parametrize("cls", [ENCODER, DECODER, BOTH])
def test_predict_gives_what_the_model_gives_and_follows_its_weights(cls):
    model, x = cls(**SIZES | {"num_layers": 4}, attention=TABLES), inputs(cls, [5, 1, 7])
    for seed in range(2):
        change(model, seed)
        predicted = model.predict(x, verbose=0)
        if cls is BOTH:
            predicted = predicted["decoder_sequence_output"]
        np.testing.assert_allclose(predicted, output(model, x), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("cls", [DECODER, BOTH])
def test_generate_follows_the_weights(cls):
    model, x = language_model(cls, num_layers=4, attention=TABLES), inputs(cls, [4, 1, 9], 9)
    generated = []
    for seed in range(2):
        change(model, seed)
        model.compile(sampler="greedy", jit_compile=False)
        fresh = model.generate(x, stop_token_ids=None)
        change(model, 5)
        model.generate(x, stop_token_ids=None)
        change(model, seed)
        generated.append(model.generate(x, stop_token_ids=None))
        for name, tokens in fresh.items():
            np.testing.assert_array_equal(generated[-1][name], tokens)
    assert any((a != b).any() for a, b in zip(*map(dict.values, generated), strict=True))


def test_tables_are_not_read_inside():
    model, x = DECODER(**SIZES | {"num_layers": 4}, attention=TABLES), inputs(DECODER, [5, 1, 7])
    x = {name: tf.constant(value) for name, value in x.items()}

    def variables_read():
        graph = tf.function(lambda x: model(x)).get_concrete_function(x).graph
        return {id(variable) for variable in graph.variables}

    read = {id(weight.value) for weight in tables(model)}
    assert read and read <= variables_read()
    with folded(model) as weights:
        assert len(weights) == 4
        assert not read & variables_read()
