"""The sequences of a preprocessor are as long as a backbone takes them, or it is an error at once."""

import keras_hub
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES

from keras_synth import models

TASKS = [
    (DECODER, models.SynthesizerCausalLM, "sequence_length"),
    (BOTH, models.SynthesizerSeq2SeqLM, "encoder_sequence_length"),
    (ENCODER, models.SynthesizerMaskedLM, "sequence_length"),
]


def backbone(cls, tokenizer):
    return cls(**{**SIZES, "vocabulary_size": tokenizer.vocabulary_size()})


@pytest.mark.parametrize("cls, task, argument", TASKS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_the_backbone_cannot_take(cls, task, argument, masking_tokenizer):
    preprocessor = task.preprocessor_cls(masking_tokenizer, **{argument: 13})
    with pytest.raises(ValueError, match=f"`{argument}` of .* must be at most max_length=12.*=13"):
        task(backbone(cls, masking_tokenizer), preprocessor)


@pytest.mark.parametrize("cls, task, argument", TASKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_preset_of_a_backbone_and_a_tokenizer(cls, task, argument, masking_tokenizer, tmp_path):
    backbone(cls, masking_tokenizer).save_to_preset(str(tmp_path))
    masking_tokenizer.save_to_preset(str(tmp_path))
    model = task.from_preset(str(tmp_path))
    assert getattr(model.preprocessor, argument) == SIZES["max_length"]
    alone = task.preprocessor_cls.from_preset(str(tmp_path), **{argument: 7})
    assert getattr(alone, argument) == 7
    text = "one two three four five six one two three"
    x = {"encoder_text": [text], "decoder_text": [text]} if cls is BOTH else [text]
    model.compile(run_eagerly=True)
    model.fit(x, verbose=0)
    if cls is DECODER:
        assert isinstance(keras_hub.models.CausalLM.from_preset(str(tmp_path)), task)
        assert isinstance(model.generate("one"), str)
