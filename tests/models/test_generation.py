"""Generation with both language models: caches, samplers, prompts, ends."""

import keras
import keras_hub
import numpy as np
import pytest
from tiny import ATTENTIONS, BOTH, DECODER, SIZES, inputs, language_model

from keras_synth.alignments import NAMES, LocalDenseAlignment
from keras_synth.models import BeamSampler

decoders = pytest.mark.parametrize("cls", [DECODER, BOTH])


def names(cls):
    side = "decoder_" if cls is BOTH else ""
    return f"{side}token_ids", f"{side}padding_mask"


def prompts(cls, lengths=(4, 1, 9), width=9):
    """Prompts of unequal length, one of them of full length, with room up to `width`."""
    return inputs(cls, list(lengths), width)


def generate(model, cls, x, stop_token_ids=None):
    return np.array(model.generate(x, stop_token_ids=stop_token_ids)[names(cls)[0]])


def generate_without_cache(model, cls, x):
    """The likeliest token after each prefix, by one full pass for each."""
    token_ids, padding_mask = names(cls)
    tokens, prompt = x[token_ids].copy(), x[padding_mask]
    for i in range(1, tokens.shape[1]):
        prefix = {**x, token_ids: tokens[:, :i], padding_mask: np.ones_like(tokens[:, :i])}
        likeliest = np.argmax(model(prefix)[:, -1], axis=-1)
        tokens[:, i] = np.where(prompt[:, i], tokens[:, i], likeliest)
    return tokens


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_cache_changes_no_token(attention):
    model, x = language_model(DECODER, attention=attention), prompts(DECODER)
    np.testing.assert_array_equal(generate(model, DECODER, x), generate_without_cache(model, DECODER, x))


@pytest.mark.parametrize("cls, jit_compile", [(DECODER, False), (DECODER, True), (BOTH, True)])
def test_the_cache_changes_no_token_when_compiled(cls, jit_compile):
    convolutions = ["lightweight_convolution", "dynamic_convolution"]
    model = language_model(cls, num_layers=3, attention=["+".join(NAMES), *convolutions])
    model.compile(sampler="greedy", jit_compile=jit_compile)
    x = prompts(cls)
    np.testing.assert_array_equal(generate(model, cls, x), generate_without_cache(model, cls, x))


#: Caches of constant size, of which one is shorter than the prompts.
CONSTANT = ["decay", "average", LocalDenseAlignment(SIZES["num_heads"], key_dim=7, window=3)]


@pytest.mark.parametrize("cls, jit_compile", [(DECODER, False), (BOTH, True)])
def test_caches_of_constant_size_change_no_token(cls, jit_compile):
    """Where all prompts are longer than a window, but not as long as each other."""
    model = language_model(cls, num_layers=3, attention=CONSTANT)
    x = prompts(cls, (7, 5, 9), width=SIZES["max_length"])
    expected = generate_without_cache(model, cls, x)
    samplers = ["greedy", BeamSampler(1), keras_hub.samplers.ContrastiveSampler(1, 0.0)]
    for sampler in samplers[:1] if jit_compile else samplers:
        model.compile(sampler=sampler, jit_compile=jit_compile, run_eagerly=not jit_compile)
        np.testing.assert_array_equal(generate(model, cls, x), expected)


def test_beams_with_caches_of_constant_size_are_those_of_full_passes():
    model = language_model(DECODER, num_layers=3, attention=CONSTANT)
    x = prompts(DECODER, (6, 5), width=SIZES["max_length"])
    model.compile(sampler=BeamSampler(3, 0.0, return_all_beams=True), run_eagerly=True)
    outputs, all_scores = model.generate(x, stop_token_ids=None)
    for i, start in enumerate((6, 5)):
        for beam, score in zip(outputs["token_ids"][i], all_scores[i], strict=True):
            expected = log_probability(model, DECODER, x, i, beam, start)
            np.testing.assert_allclose(score, expected, 1e-4)


@decoders
def test_prompts_are_kept_and_do_not_disturb_each_other(cls):
    model, x = language_model(cls), prompts(cls)
    token_ids, padding_mask = names(cls)
    together = generate(model, cls, x)
    np.testing.assert_array_equal(together[x[padding_mask]], x[token_ids][x[padding_mask]])
    for i in range(3):
        alone = generate(model, cls, {name: value[i : i + 1] for name, value in x.items()})
        np.testing.assert_array_equal(alone[0], together[i])


@decoders
def test_prompts_are_stripped(cls):
    model, x = language_model(cls), prompts(cls)
    token_ids, padding_mask = names(cls)
    whole = model.generate(x, stop_token_ids=(7, 9))
    stripped = model.generate(x, stop_token_ids=(7, 9), strip_prompt=True)
    for i, start in enumerate((4, 1, 9)):
        size = whole[padding_mask][i].sum() - start
        np.testing.assert_array_equal(stripped[padding_mask][i], np.arange(9) < size)
        np.testing.assert_array_equal(stripped[token_ids][i, : 9 - start], whole[token_ids][i, start:])


@decoders
def test_generation_goes_up_to_max_length(cls):
    model = language_model(cls)
    x = prompts(cls, width=SIZES["max_length"])
    assert generate(model, cls, x).shape == (3, 12)
    with pytest.raises(ValueError, match="max_length=12.*length 13"):
        generate(model, cls, prompts(cls, width=13))


@decoders
def test_generation_stops_at_any_of_the_stop_tokens(cls):
    model, x = language_model(cls), prompts(cls, (4, 1, 6))
    token_ids, padding_mask = names(cls)
    free = generate(model, cls, x)
    stops = (int(free[0, 6]), int(free[1, 3]))
    outputs = model.generate(x, stop_token_ids=stops)
    for i in range(3):
        new = ~x[padding_mask][i] & np.isin(free[i], stops)
        end = int(np.argmax(new)) + 1 if new.any() else 9
        np.testing.assert_array_equal(outputs[token_ids][i, :end], free[i, :end])
        np.testing.assert_array_equal(outputs[padding_mask][i], np.arange(9) < end)


@decoders
def test_an_end_in_the_prompt_ends_nothing(cls):
    """Some tokenizers begin each text with the token that also ends it."""
    model, x = language_model(cls), prompts(cls, (4, 1, 6))
    model.compile(sampler=keras_hub.samplers.BeamSampler(1), run_eagerly=True)
    for end in range(4, 29):
        x[names(cls)[0]][:, 0] = end
        expected = generate(model, cls, x)
        if end not in expected[:, 1:]:
            break  # An end that the model itself does not generate after this prompt.
    np.testing.assert_array_equal(generate(model, cls, x, (end,)), expected)


@decoders
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_one_beam_is_greedy(cls, length_penalty):
    model, x = language_model(cls), prompts(cls)
    greedy = generate(model, cls, x, (7, 9))
    model.compile(sampler=BeamSampler(1, length_penalty), run_eagerly=True)
    beam = generate(model, cls, x, (7, 9))
    np.testing.assert_array_equal(beam, greedy)


@decoders
def test_beams_of_different_prompts_do_not_disturb_each_other(cls):
    model, x = language_model(cls), prompts(cls)
    model.compile(sampler=BeamSampler(3), run_eagerly=True)
    together = generate(model, cls, x, (7, 9))
    for i in range(2):
        alone = generate(model, cls, {name: value[i : i + 1] for name, value in x.items()}, (7, 9))
        np.testing.assert_array_equal(alone[0], together[i])


def log_probability(model, cls, x, i, tokens, start):
    token_ids, padding_mask = names(cls)
    alone = {name: value[i : i + 1] for name, value in x.items()}
    alone |= {token_ids: tokens[None, :-1], padding_mask: np.ones((1, len(tokens) - 1), "int32")}
    log_probs = np.array(keras.ops.log_softmax(model(alone)))[0]
    return sum(log_probs[j - 1, tokens[j]] for j in range(start, len(tokens)))


@decoders
@pytest.mark.parametrize("length_penalty", [0.0, 1.5])
def test_beams_are_ranked_by_probability_and_length(cls, length_penalty):
    model, x = language_model(cls), prompts(cls, (3, 2), width=8)
    stops = (5, 6, 7, 8, 9, 10, 11, 12)  # so that beams end early and late
    model.compile(sampler=BeamSampler(4, length_penalty, return_all_beams=True), run_eagerly=True)
    outputs, all_scores = model.generate(x, stop_token_ids=stops)
    token_ids, padding_mask = (outputs[name] for name in names(cls))
    lengths = set()
    for i, start in enumerate((3, 2)):
        scores = []
        for beam, mask, score in zip(token_ids[i], padding_mask[i], all_scores[i], strict=True):
            end = mask.sum()
            assert end == 8 or beam[end - 1] in stops
            assert not np.isin(beam[start : end - 1], stops).any()
            lengths.add(end - start)
            log_prob = log_probability(model, cls, x, i, beam[:end], start)
            scores.append((log_prob / ((5 + end - start) / 6) ** length_penalty, float(score)))
        scores = np.array(scores)
        ratio = scores[:, 1] / scores[:, 0]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)  # the penalty of the longest beam
        assert np.all(np.diff(scores[:, 0]) <= 1e-6)
        if not length_penalty:
            np.testing.assert_allclose(ratio, 1.0, rtol=1e-4)
    assert len(lengths) > 1


@pytest.mark.parametrize(
    "cls, sampler",
    [
        (DECODER, keras_hub.samplers.BeamSampler(3)),
        (BOTH, BeamSampler(3)),
        (DECODER, keras_hub.samplers.TopKSampler(3, seed=1)),
        (BOTH, keras_hub.samplers.TopPSampler(0.5, seed=1)),
        (DECODER, keras_hub.samplers.RandomSampler(seed=1)),
        (DECODER, keras_hub.samplers.ContrastiveSampler(3, 0.4)),
        (BOTH, keras_hub.samplers.ContrastiveSampler(3, 0.4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_sampler_of_keras_hub(cls, sampler):
    model, x = language_model(cls), prompts(cls)
    model.compile(sampler=sampler, jit_compile=False)
    generated = generate(model, cls, x, (7, 9))
    assert generated.shape == (3, 9)
    assert np.all((generated >= 0) & (generated < SIZES["vocabulary_size"]))
    np.testing.assert_array_equal(generated[2], x[names(cls)[0]][2])


def test_top_1_is_greedy():
    model, x = language_model(DECODER), prompts(DECODER)
    greedy = generate(model, DECODER, x)
    for sampler in (keras_hub.samplers.TopKSampler(1), keras_hub.samplers.ContrastiveSampler(1, 0.0)):
        model.compile(sampler=sampler, run_eagerly=True)
        np.testing.assert_array_equal(generate(model, DECODER, x), greedy)


def test_beam_sampler_config():
    sampler = BeamSampler(3, 0.7, temperature=0.5)
    again = keras_hub.samplers.get(keras_hub.samplers.serialize(sampler))
    assert type(again) is BeamSampler and again.get_config() == sampler.get_config()
