"""Makes the module `tiny` importable from the tests of the models."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def masking_tokenizer(tokenizer):
    from keras_synth.data.masking_tokenizer import MaskingTokenizer

    return MaskingTokenizer(tokenizer.proto, num_sentinels=5)
