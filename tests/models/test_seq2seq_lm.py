import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from keras_synth.data import token_batches
from keras_synth.models import SynthesizerSeq2SeqLM

ANSWERS = {"one two": "eins zwei", "three": "drei", "four five six": "vier fünf sechs"}


def as_arrays(tokens):
    return {name: np.array(value) for name, value in tokens.items()}


def test_fit_on_strings_learns_and_generate_answers(trained):
    assert trained.generate(list(ANSWERS)) == list(ANSWERS.values())


def test_generate_takes_one_string_and_unequal_batches(trained):
    assert trained.generate("three") == "drei"
    assert trained.generate(["three"]) == ["drei"]
    assert trained.generate(["four five six", "three"]) == ["vier fünf sechs", "drei"]


def test_generate_goes_on_from_prompts_of_unequal_length(trained):
    answers = trained.generate(
        {"encoder_text": ["four five six", "one two"], "decoder_text": ["vier fünf", ""]}
    )
    assert answers == ["vier fünf sechs", "eins zwei"]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_beam_search_finds_what_is_certain(trained, num_beams, jit_compile):
    model = SynthesizerSeq2SeqLM(trained.backbone, trained.preprocessor)
    model.compile(sampler=keras_hub.samplers.BeamSampler(num_beams), jit_compile=jit_compile)
    assert model.generate(list(ANSWERS)) == list(ANSWERS.values())
    assert model.generate("three") == "drei"


@pytest.mark.parametrize("attention", ["random", "dense", "random+dot_product"])
def test_one_beam_equals_greedy_for_an_untrained_model(make_model, attention):
    model = make_model(attention=attention)
    tokens = model.preprocessor.generate_preprocess(["one", "five six two", ""])
    outputs = []
    for sampler in ("greedy", keras_hub.samplers.BeamSampler(1)):
        model.compile(sampler=sampler, jit_compile=False)
        outputs.append(model.generate_step(tokens, stop_token_ids=(3,))["decoder_token_ids"])
    np.testing.assert_array_equal(*outputs)


def test_generation_with_caches_equals_full_passes(make_model):
    model = make_model()
    model.compile(sampler="greedy", jit_compile=False)
    tokens = as_arrays(model.preprocessor.generate_preprocess(["one", "five six two"]))
    generated = np.array(model.generate_step(tokens)["decoder_token_ids"])
    expected = np.array(tokens["decoder_token_ids"])
    for i in range(1, expected.shape[1]):
        inputs = {
            **tokens,
            "decoder_token_ids": expected[:, :i],
            "decoder_padding_mask": np.ones_like(expected[:, :i]),
        }
        expected[:, i] = np.argmax(model(inputs)[:, -1], axis=-1)
    np.testing.assert_array_equal(generated, expected)


def test_a_beam_that_has_ended_keeps_its_probability(trained):
    """The best beam's probability is that of its tokens up to the end, by a full pass."""
    sampler = keras_hub.samplers.BeamSampler(3, return_all_beams=True)
    model = SynthesizerSeq2SeqLM(trained.backbone, trained.preprocessor)
    scores = {}

    class Recorder(keras_hub.samplers.BeamSampler):
        def __call__(self, *args, **kwargs):
            beams, scores["log_probs"] = sampler(*args, **kwargs)
            scores["beams"] = beams
            return beams[:, 0]

    model.compile(sampler=Recorder(3), run_eagerly=True)
    end = model.preprocessor.tokenizer.end_token_id
    tokens = as_arrays(model.preprocessor.generate_preprocess(["three"]))
    model.generate_step(tokens, stop_token_ids=(end,))
    for beam, log_prob in zip(scores["beams"][0], scores["log_probs"][0], strict=True):
        beam = np.array(beam)
        length = int(np.argmax(beam == end)) + 1
        assert (beam[1:length] != 0).all() and beam[length - 1] == end
        inputs = {
            **tokens,
            "decoder_token_ids": beam[None, : length - 1],
            "decoder_padding_mask": np.ones((1, length - 1)),
        }
        log_probs = np.array(keras.ops.log_softmax(model(inputs)))[0]
        expected = sum(log_probs[i, beam[i + 1]] for i in range(length - 1))
        np.testing.assert_allclose(log_prob, expected, rtol=1e-3, atol=1e-3)


def test_generation_ends_at_max_length_without_an_end(make_model):
    model = make_model()
    model.compile(sampler="greedy", jit_compile=False)
    tokens = model.preprocessor.generate_preprocess(["one"])
    outputs = model.generate_step(tokens, stop_token_ids=None)
    assert outputs["decoder_token_ids"].shape == (1, 17)
    assert np.all(outputs["decoder_padding_mask"])
    assert len(model.generate("one", max_length=5)) < 40


def test_padding_never_counts_in_loss_or_metrics(trained, pairs):
    short = {name: texts[1:2] for name, texts in pairs.items()}
    x, y, weight = trained.preprocessor(short)
    logits = np.array(trained(x))
    real = np.array(weight[0])
    log_probs = np.array(keras.ops.log_softmax(logits[0, real]))
    expected = -log_probs[np.arange(real.sum()), np.array(y[0])[real]].sum() / real.size
    results = trained.evaluate(short, batch_size=1, verbose=0, return_dict=True)
    np.testing.assert_allclose(results["loss"], expected, rtol=1e-4)
    hits = (logits[0, real].argmax(-1) == np.array(y[0])[real]).mean()
    np.testing.assert_allclose(results["sparse_categorical_accuracy"], hits, rtol=1e-6)


def test_fit_takes_batches_of_tokens(make_model, pairs):
    model = make_model()
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=False)
    batches = token_batches(tf.data.Dataset.from_tensor_slices(pairs), model.preprocessor, batch_size=8)
    losses = model.fit(batches, epochs=3, verbose=0, shuffle=False).history["loss"]
    assert losses[-1] < losses[0]
    assert model.generate("one") is not None


def test_keras_file_brings_back_everything(trained, tmp_path):
    trained.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is SynthesizerSeq2SeqLM
    assert type(loaded.sampler) is type(trained.sampler)
    assert loaded.preprocessor.encoder_sequence_length == 19
    assert loaded.preprocessor.decoder_sequence_length == 17
    assert loaded.generate(list(ANSWERS)) == list(ANSWERS.values())
    assert len(loaded.optimizer.variables) == len(trained.optimizer.variables)
    for mine, other in zip(loaded.optimizer.variables, trained.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_preset_round_trip(trained, tmp_path):
    trained.save_to_preset(str(tmp_path / "preset"))
    loaded = SynthesizerSeq2SeqLM.from_preset(str(tmp_path / "preset"))
    loaded.compile(sampler="greedy", jit_compile=False)
    assert loaded.generate(list(ANSWERS)) == list(ANSWERS.values())
    assert loaded.preprocessor.decoder_sequence_length == 17


def test_output_projection_is_tied_to_the_embedding_after_reloading(trained, tmp_path):
    trained.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(trained.weights) == len(trained.backbone.weights)
    kernel = loaded.backbone.token_embedding.embeddings
    kernel.assign(kernel * 0)
    tokens = loaded.preprocessor.generate_preprocess(["one"])
    assert np.all(np.array(loaded(tokens)) == 0)


@pytest.mark.parametrize(
    "policy, jit_compile", [("mixed_float16", False), ("mixed_bfloat16", False), ("mixed_bfloat16", True)]
)
def test_training_in_mixed_precision_and_with_xla(make_model, pairs, policy, jit_compile):
    model = make_model(dtype=policy, num_layers=1)
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=jit_compile)
    losses = model.fit(pairs, batch_size=16, epochs=3, verbose=0, shuffle=False).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
