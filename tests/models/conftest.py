"""Fixtures of the tests of the models."""

import pytest


@pytest.fixture(scope="session")
def masking_tokenizer(tokenizer):
    from keras_synth.data.masking_tokenizer import MaskingTokenizer

    return MaskingTokenizer(tokenizer.proto, num_sentinels=5)
