import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_synth.data import token_batches
from keras_synth.models import BeamSampler, SynthesizerSeq2SeqLM

ANSWERS = {"one two": "eins zwei", "three": "drei", "four five six": "vier fünf sechs"}


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


@pytest.mark.parametrize("num_beams, jit_compile", [(1, False), (3, True)])
def test_beam_search_finds_what_is_certain(trained, num_beams, jit_compile):
    model = SynthesizerSeq2SeqLM(trained.backbone, trained.preprocessor)
    model.compile(sampler=BeamSampler(num_beams), jit_compile=jit_compile)
    assert model.generate(list(ANSWERS)) == list(ANSWERS.values())
    assert model.generate("three") == "drei"


def test_all_beams_and_their_scores(trained):
    model = SynthesizerSeq2SeqLM(trained.backbone, trained.preprocessor)
    model.compile(sampler=BeamSampler(3, return_all_beams=True), jit_compile=False)
    beams, scores = model.generate(list(ANSWERS))
    assert [best for best, _, _ in beams] == list(ANSWERS.values())
    assert scores.shape == (3, 3) and np.all(np.diff(scores) <= 0)
    alone, scores_alone = model.generate("three")
    assert alone[0] == "drei" and len(alone) == 3 and scores_alone.shape == (3,)
    prompts = {"encoder_text": ["four five six"], "decoder_text": ["vier"]}
    assert model.generate(prompts, strip_prompt=True)[0][0][0].strip() == "fünf sechs"


def test_prompts_are_stripped_from_answers_and_stay_as_they_are(trained):
    prompts = {"encoder_text": "four five six", "decoder_text": "vier fünf"}
    before = dict(prompts)
    assert trained.generate(prompts, strip_prompt=True).strip() == "sechs"
    assert prompts == before
    assert trained.generate(["three"], strip_prompt=True) == ["drei"]


@pytest.mark.parametrize("nothing", [[], np.array([], str), {"encoder_text": [], "decoder_text": []}])
def test_no_prompts(trained, nothing):
    with pytest.raises(
        ValueError, match="`inputs` of `generate` must have at least one prompt. Received: "
    ):
        trained.generate(nothing)


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
    expected = -log_probs[np.arange(real.sum()), np.array(y[0])[real]].mean()
    results = trained.evaluate(short, batch_size=1, verbose=0, return_dict=True)
    np.testing.assert_allclose(results["loss"], expected, rtol=1e-4)
    hits = (logits[0, real].argmax(-1) == np.array(y[0])[real]).mean()
    np.testing.assert_allclose(results["sparse_categorical_accuracy"], hits, rtol=1e-6)


def test_fit_takes_batches_of_tokens(make_model, pairs):
    model = make_model(num_layers=1)
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
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
    "policy, how", [("mixed_float16", {"run_eagerly": True}), ("mixed_bfloat16", {"jit_compile": True})]
)
def test_training_in_mixed_precision_and_with_xla(make_model, pairs, policy, how):
    model = make_model(dtype=policy, num_layers=1)
    model.compile(keras.optimizers.Adam(1e-2), **how)
    losses = model.fit(pairs, batch_size=16, epochs=3, verbose=0, shuffle=False).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
