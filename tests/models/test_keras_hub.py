"""What models of KerasHub have, ours have by the same names."""

import keras
import numpy as np
import pytest
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs, language_model, output

ARGUMENTS = {**SIZES, "num_layers": 2}


@pytest.fixture(scope="module")
def causal_lm():
    return language_model(DECODER, **ARGUMENTS)


@pytest.fixture(scope="module")
def seq2seq_lm():
    return language_model(BOTH, **ARGUMENTS)


def test_a_language_model_is_called_with_a_cache(causal_lm):
    x = inputs(DECODER, [5, 5])
    cache = causal_lm.backbone.init_cache(2, 7)
    logits, hidden, cache = causal_lm.call_with_cache(x["token_ids"][:, :3], cache, 0)
    more_logits, more_hidden, _ = causal_lm.call_with_cache(x["token_ids"][:, 3:], cache, 3)
    np.testing.assert_allclose(np.concatenate([logits, more_logits], 1), causal_lm(x), 1e-4, 1e-5)
    expected = output(causal_lm.backbone, x)
    np.testing.assert_allclose(np.concatenate([hidden, more_hidden], 1), expected, 1e-4, 1e-5)


def test_the_encoder_is_called_and_the_decoder_with_a_cache(seq2seq_lm):
    x = inputs(BOTH, [5, 5])
    mask = x["encoder_padding_mask"]
    encoded = seq2seq_lm.call_encoder(x["encoder_token_ids"], mask)
    outputs = seq2seq_lm.backbone(x)
    np.testing.assert_allclose(encoded, outputs["encoder_sequence_output"], 1e-4, 1e-5)
    cache = seq2seq_lm.backbone.init_cache(2, 7, mask)
    logits, _, cache = seq2seq_lm.call_with_cache(x["decoder_token_ids"][:, :4], cache, 0, encoded)
    last, _, _ = seq2seq_lm.call_with_cache(x["decoder_token_ids"][:, 4:], cache, 4)
    np.testing.assert_allclose(np.concatenate([logits, last], 1), seq2seq_lm(x), 1e-4, 1e-5)


def test_a_language_model_scores_tokens(causal_lm):
    x = inputs(DECODER, [5, 3])
    logits = np.array(causal_lm.score(**x))
    np.testing.assert_allclose(logits, causal_lm(x), 1e-5, 1e-6)
    targets = np.roll(x["token_ids"], -1, axis=1)
    losses = causal_lm.score(**x, scoring_mode="loss", target_ids=targets)
    chosen = np.take_along_axis(np.array(keras.ops.log_softmax(logits)), targets[..., None], axis=-1)
    np.testing.assert_allclose(losses, -chosen[..., 0], 1e-5, 1e-5)


def test_a_function_may_change_what_goes_from_block_to_block(causal_lm):
    x = inputs(DECODER, [5, 3])
    seen = []

    def intercept(hidden, number):
        seen.append((number, np.array(hidden)))
        return hidden * 2 if number == 0 else hidden

    changed = causal_lm.score(**x, layer_intercept_fn=intercept)
    assert [number for number, _ in seen] == [-1, 0, 1]
    np.testing.assert_allclose(seen[0][1], causal_lm.backbone.embedding(x["token_ids"]), 1e-6)
    second = causal_lm.backbone.decoder_layers[1]
    np.testing.assert_allclose(
        seen[2][1], second(2 * seen[1][1], decoder_padding_mask=x["padding_mask"]), 1e-5, 1e-5
    )
    assert np.abs(changed - causal_lm(x)).max() > 1e-3


@pytest.mark.parametrize("arguments", [{"scoring_mode": "probability"}, {"scoring_mode": "loss"}])
def test_wrong_arguments_of_score(causal_lm, arguments):
    with pytest.raises(ValueError, match="scoring_mode=|target_ids=None"):
        causal_lm.score(**inputs(DECODER, [5]), **arguments)


def test_backbones_name_their_blocks_and_their_length(causal_lm, seq2seq_lm):
    encoder = ENCODER(**SIZES)
    assert encoder.transformer_layers == encoder.encoder_layers
    assert causal_lm.backbone.transformer_layers == causal_lm.backbone.decoder_layers
    assert seq2seq_lm.backbone.encoder_transformer_layers == seq2seq_lm.backbone.encoder_layers
    assert seq2seq_lm.backbone.decoder_transformer_layers == seq2seq_lm.backbone.decoder_layers
    for backbone in (encoder, causal_lm.backbone, seq2seq_lm.backbone):
        assert backbone.max_sequence_length == backbone.max_length
