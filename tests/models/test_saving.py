"""Models that are saved and loaded: all weights, in new processes, from their configurations."""

import json
import subprocess
import sys

import h5py
import keras
import keras_hub
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs

from keras_synth import alignments, data, models
from keras_synth.models.embedding import SynthesizerEmbedding
from keras_synth.models.text_classifier import MaskedAverage

ARGUMENTS = {
    **SIZES,
    "num_layers": 2,
    "attention": ["fixed_random+dense+dot_product", "lightweight_convolution"],
    "positions": "learned",
    "dropout": 0.0,
}
TASKS = {
    "classifier": lambda: models.SynthesizerTextClassifier(ENCODER(**ARGUMENTS), num_classes=3),
    "masked_lm": lambda: models.SynthesizerMaskedLM(ENCODER(**ARGUMENTS)),
    "causal_lm": lambda: models.SynthesizerCausalLM(DECODER(**ARGUMENTS)),
    "seq2seq_lm": lambda: models.SynthesizerSeq2SeqLM(BOTH(**ARGUMENTS)),
}
tasks = pytest.mark.parametrize("name", TASKS)


def task(name):
    """A task whose weights are all at random, also those that start equal."""
    model = TASKS[name]()
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=weight.shape, scale=0.3) for weight in model.weights])
    return model


def example(model):
    x = inputs(type(model.backbone), [5, 3])
    if isinstance(model, models.SynthesizerMaskedLM):
        x["mask_positions"] = np.array([[0, 3], [1, 2]])
    return x


@tasks
def test_files_hold_every_weight_once(name, tmp_path):
    model, path = task(name), tmp_path / "model.weights.h5"
    model.save_weights(path)
    found = []
    with h5py.File(path) as file:
        file.visititems(lambda _, item: found.append(item.size) if isinstance(item, h5py.Dataset) else None)
    # Those of the optimizer are there too.
    assert len(found) == len(model.weights) + len(model.optimizer.variables)
    other = TASKS[name]()
    other.load_weights(path)
    np.testing.assert_array_equal(other(example(model)), model(example(model)))


@tasks
def test_a_config_and_weights_make_the_same_model(name):
    model = task(name)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    copy = keras.saving.deserialize_keras_object(config)
    assert type(copy) is type(model) and copy.get_config() == model.get_config()
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(example(model)), model(example(model)))


LOAD = """
import pathlib
import sys
import keras
import numpy as np

folder = pathlib.Path(sys.argv[1])
for path in folder.glob("*.keras"):
    try:
        model = keras.saving.load_model(path)
    except TypeError as error:
        assert "keras_synth" in str(error) or "Synthesizer" in str(error), error
    else:
        raise AssertionError(f"{path} was loaded without its classes")

import keras_synth

assert "keras_hub" not in sys.modules
for path in folder.glob("*.keras"):
    x = dict(np.load(folder / f"{path.stem}_inputs.npz"))
    outputs = keras.saving.load_model(path)(x)
    np.testing.assert_allclose(outputs, np.load(folder / f"{path.stem}.npy"), rtol=1e-6, atol=1e-6)
"""

LOAD_PRESET = """
import sys
import keras_hub
import keras_synth

assert "keras_synth.models" not in sys.modules
model = keras_hub.models.CausalLM.from_preset(sys.argv[1])
assert type(model).__name__ == "SynthesizerCausalLM"
assert type(model.sampler).__name__ == "BeamSampler" and model.sampler.num_beams == 3
assert type(keras_hub.models.Backbone.from_preset(sys.argv[1])) is type(model.backbone)
"""


def test_a_preset_remembers_its_sampler_and_is_found_by_keras_hub(tokenizer, tmp_path):
    backbone = DECODER(**{**SIZES, "vocabulary_size": tokenizer.vocabulary_size()})
    preprocessor = models.SynthesizerCausalLMPreprocessor(tokenizer)
    model = models.SynthesizerCausalLM(backbone, preprocessor)
    model.compile(sampler=models.BeamSampler(3))
    model.save_to_preset(str(tmp_path / "preset"))
    subprocess.run([sys.executable, "-c", LOAD_PRESET, str(tmp_path / "preset")], check=True)


def test_every_class_of_a_file_is_found_before_its_room_is_imported():
    from keras_synth import training
    from keras_synth.core.deferred import ROOMS

    for room in (data, models, training):
        public = [item for item in vars(room).values() if isinstance(item, type)]
        names = {item.__name__ for item in public if "get_config" in dir(item)}
        assert names == set(ROOMS[room.__name__])


def test_a_new_process_needs_keras_synth_to_load_a_model(tmp_path):
    for name in TASKS:
        model = task(name)
        model.save(tmp_path / f"{name}.keras")
        np.savez(tmp_path / f"{name}_inputs.npz", **example(model))
        np.save(tmp_path / f"{name}.npy", model(example(model)))
    subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], check=True)


def test_objects_as_arguments_come_back_and_stay_the_callers():
    spec = alignments.RandomAlignment(
        2,
        12,
        alignment_initializer=keras.initializers.RandomUniform(seed=3),
        alignment_regularizer=keras.regularizers.L2(0.1),
    )
    before = spec.get_config()
    attention = [spec, alignments.MixtureAlignment([spec, alignments.DotProductAlignment(2, key_dim=7)])]
    backbone = DECODER(
        **{**SIZES, "num_layers": 2},
        attention=attention,
        activation=keras.activations.gelu,
        dtype=keras.DTypePolicy("mixed_bfloat16"),
    )
    assert attention[0] is spec and not spec.built and spec.get_config() == before
    config = backbone.get_config()
    for _ in range(2):
        backbone = DECODER.from_config(json.loads(json.dumps(config)))
        assert backbone.get_config() == config
    alignment = backbone.decoder_layers[0].self_attention.alignment
    assert type(alignment.alignment_initializer) is keras.initializers.RandomUniform
    assert alignment.alignment_regularizer.l2 == pytest.approx(0.1)
    assert backbone.activation is keras.activations.gelu
    assert backbone.dtype_policy.name == "mixed_bfloat16"


def trained_weights(model):
    return [i for i, weight in enumerate(model.weights) if weight.trainable]


@pytest.mark.parametrize("cls", [ENCODER, DECODER, BOTH])
def test_what_is_frozen_from_the_beginning(cls):
    backbone = cls(**SIZES, positions="relative_bias", tie_word_embeddings=False, trainable=False)
    assert trained_weights(backbone) == []
    assert trained_weights(cls.from_config(backbone.get_config())) == []


def test_what_is_frozen_in_a_model_comes_back_frozen(tmp_path):
    model = models.SynthesizerTextClassifier(ENCODER(**{**SIZES, "num_layers": 2}), 3)
    model.backbone.embedding.trainable = model.backbone.encoder_layers[0].trainable = False
    model.pooled_dense.trainable = False
    expected = trained_weights(model)
    assert 0 < len(expected) < len(model.weights)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(str(tmp_path / "preset"))
    for again in (
        keras.models.load_model(tmp_path / "model.keras", compile=False),
        models.SynthesizerTextClassifier.from_preset(str(tmp_path / "preset")),
    ):
        assert trained_weights(again) == expected
    model.trainable = False
    model.save(tmp_path / "model.keras")
    assert trained_weights(keras.models.load_model(tmp_path / "model.keras", compile=False)) == []


def test_every_public_class_is_registered_under_the_name_of_the_package():
    public = [getattr(module, name) for module in (models, data) for name in module.__all__]
    classes = [item for item in public if isinstance(item, type) and hasattr(item, "get_config")]
    assert len(classes) > 12
    for cls in (*classes, SynthesizerEmbedding, MaskedAverage):
        assert keras.saving.get_registered_name(cls) == f"keras_synth>{cls.__name__}"


def test_configs_of_what_belongs_to_a_model(tokenizer, masking_tokenizer):
    lengths = {"encoder_sequence_length": 7, "decoder_sequence_length": 9}
    for original in (
        models.SynthesizerCausalLMPreprocessor(tokenizer, 7, add_end_token=False),
        models.SynthesizerTextClassifierPreprocessor(tokenizer, 7, truncate="waterfall"),
        models.SynthesizerMaskedLMPreprocessor(masking_tokenizer, 7, mask_selection_rate=0.3),
        models.SynthesizerSeq2SeqLMPreprocessor(tokenizer, **lengths),
        models.SynthesizerSpanCorruptionPreprocessor(masking_tokenizer, **lengths, mean_span_length=2.0),
        SynthesizerEmbedding(29, 14, 12, "learned", False, 0.1, seed=3, dtype="mixed_float16"),
        MaskedAverage(dtype=keras.DTypePolicy("mixed_bfloat16")),
        models.BeamSampler(3, 0.7, return_all_beams=True),
    ):
        config = original.get_config()
        if "tokenizer" in config:  # its vocabulary is a file beside the config
            again = type(original).from_config({**config, "tokenizer": original.tokenizer})
        elif isinstance(original, keras_hub.samplers.Sampler):
            again = keras_hub.samplers.get(keras_hub.samplers.serialize(original))
        else:
            config = json.loads(json.dumps(config))
            again = type(original).from_config(config)
        assert type(again) is type(original) and again.get_config() == original.get_config()
