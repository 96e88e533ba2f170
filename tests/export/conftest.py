"""A model of each task."""

import warnings

import pytest

from keras_synth import data, models
from keras_synth.data.masking_tokenizer import MaskingTokenizer

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=22, intermediate_dim=29, max_length=23)


@pytest.fixture(scope="session")
def make_task(tokenizer):
    """Makes a small model of a task, untrained, which differs in the arguments given."""

    def make(task, tokenizer=tokenizer, preprocessor=True, **kwargs):
        kwargs = {**SIZES, "attention": "random", **kwargs}
        if task == "masked_lm":
            tokenizer = MaskingTokenizer(tokenizer.proto, num_sentinels=3)
        backbone, head, preprocess = {
            "classifier": (
                models.SynthesizerEncoderBackbone,
                lambda *args: models.SynthesizerTextClassifier(args[0], 3, args[1]),
                lambda: models.SynthesizerTextClassifierPreprocessor(tokenizer, 19),
            ),
            "masked_lm": (
                models.SynthesizerEncoderBackbone,
                models.SynthesizerMaskedLM,
                lambda: models.SynthesizerMaskedLMPreprocessor(tokenizer, 17),
            ),
            "causal_lm": (
                models.SynthesizerDecoderBackbone,
                models.SynthesizerCausalLM,
                lambda: models.SynthesizerCausalLMPreprocessor(tokenizer, 13),
            ),
            "seq2seq_lm": (
                models.SynthesizerEncoderDecoderBackbone,
                models.SynthesizerSeq2SeqLM,
                lambda: models.SynthesizerSeq2SeqLMPreprocessor(tokenizer, 19, 11),
            ),
        }[task]
        backbone = backbone(tokenizer.vocabulary_size(), **kwargs)
        return head(backbone, preprocess() if preprocessor else None)

    return make


@pytest.fixture(scope="session")
def file_tokenizer(tokenizer, tmp_path_factory):
    """A tokenizer that was read from a file, and the file."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.spm"
    path.write_bytes(tokenizer.proto)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # KerasHub leaves it to Python to close the file
        return data.SynthesizerTokenizer(str(path)), path
