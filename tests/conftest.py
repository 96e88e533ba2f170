"""Fixtures that tests of several rooms share; modules that they share are in `support/`."""

import random

import keras
import numpy as np
import pytest

#: What takes longest begins first, so that no core waits for it in the end.
LONGEST = ("test_backends", "test_workers", "test_resume", "test_served", "test_learning")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.stem not in LONGEST)


def pytest_runtest_setup(item):
    if item.get_closest_marker("tensorflow") and keras.backend.backend() != "tensorflow":
        pytest.skip("needs the TensorFlow backend")


def pytest_sessionstart():
    if keras.backend.backend() == "torch":
        import torch

        torch.set_grad_enabled(False)  # so that NumPy takes tensors, as it does on the other backends


@pytest.fixture(autouse=True)
def seed():
    """Each test has the same weights and order of examples, whichever tests ran before.

    Keras draws its seeds from `random`, and `fit` of the tasks its order from NumPy.
    """
    random.seed(11)
    np.random.seed(11)


PAIRS = {
    "encoder_text": ["one two", "three", "four five six", "six one"] * 8,
    "decoder_text": ["eins zwei", "drei", "vier fünf sechs", "sechs eins"] * 8,
}


@pytest.fixture(scope="session")
def pairs():
    return PAIRS


@pytest.fixture(scope="session")
def tokenizer():
    from keras_synth.data import train_tokenizer

    # Not `keras.utils.set_random_seed`, which makes TensorFlow forget the models of SentencePiece.
    random.seed(11)
    return train_tokenizer(PAIRS["encoder_text"] + PAIRS["decoder_text"], vocabulary_size=300)


@pytest.fixture(scope="session")
def make_model(tokenizer):
    """Makes small models, which differ in the arguments given."""
    from keras_synth import models

    def make(preprocessor=True, **kwargs):
        arguments = dict(
            vocabulary_size=tokenizer.vocabulary_size(),
            num_layers=2,
            num_heads=2,
            hidden_dim=26,
            intermediate_dim=31,
            max_length=23,
        )
        backbone = models.SynthesizerEncoderDecoderBackbone(**{**arguments, **kwargs})
        return models.SynthesizerSeq2SeqLM(
            backbone,
            models.SynthesizerSeq2SeqLMPreprocessor(tokenizer, 19, 17) if preprocessor else None,
        )

    return make


@pytest.fixture(scope="session")
def trained(make_model):
    """A model that has learned `PAIRS` by heart. Tests must leave it as it is."""
    model = make_model(dropout=0.0)
    model.compile(keras.optimizers.Adam(1e-2), sampler="greedy", jit_compile=False)
    model.fit(PAIRS, batch_size=16, epochs=30, verbose=0, shuffle=False)
    return model
