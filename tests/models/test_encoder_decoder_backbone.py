import json

import keras
import numpy as np
import pytest

from keras_synth.alignments import RandomAlignment
from keras_synth.models import SynthesizerEncoderDecoderBackbone

ATTENTIONS = [
    "random",
    "fixed_random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "dot_product",
    "random+dot_product",
    ["dense", "random+dense+dot_product"],
]
SIZES = dict(
    vocabulary_size=29, num_layers=2, num_heads=2, hidden_dim=14, intermediate_dim=19, max_length=13
)


def inputs(encoder_lengths, decoder_lengths, encoder_width=None, decoder_width=None):
    """Random tokens of the given lengths, padded on the right to the given widths."""
    rng = np.random.default_rng(5)

    def side(name, lengths, width):
        width = width or max(lengths)
        mask = np.arange(width) < np.array(lengths)[:, None]
        tokens = rng.integers(1, SIZES["vocabulary_size"], mask.shape)
        return {f"{name}_token_ids": tokens * mask, f"{name}_padding_mask": mask}

    return {
        **side("encoder", encoder_lengths, encoder_width),
        **side("decoder", decoder_lengths, decoder_width),
    }


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
@pytest.mark.parametrize("normalize_first", [True, False])
def test_a_padded_batch_equals_single_sentences(attention, normalize_first):
    backbone = SynthesizerEncoderDecoderBackbone(
        **SIZES, attention=attention, normalize_first=normalize_first
    )
    batch = inputs([3, 7, 5], [6, 2, 4], encoder_width=11, decoder_width=8)
    outputs = backbone(batch)["decoder_sequence_output"]
    for i, (source, target) in enumerate(zip([3, 7, 5], [6, 2, 4], strict=True)):
        alone = {
            name: value[i : i + 1, : source if name.startswith("encoder") else target]
            for name, value in batch.items()
        }
        expected = backbone(alone)["decoder_sequence_output"]
        np.testing.assert_allclose(outputs[i : i + 1, :target], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_decoding_with_caches_equals_the_full_pass(attention):
    backbone = SynthesizerEncoderDecoderBackbone(**SIZES, attention=attention)
    batch = inputs([3, 7], [6, 6])
    expected = backbone(batch)["decoder_sequence_output"]
    encoder_output = backbone.encode(batch["encoder_token_ids"], batch["encoder_padding_mask"])
    cache = backbone.init_cache(2, 9, 7)
    steps = []
    for start, stop in [(0, 3), (3, 4), (4, 5), (5, 6)]:
        step, cache = backbone.decode(
            batch["decoder_token_ids"][:, start:stop],
            batch["encoder_padding_mask"],
            cache,
            start,
            encoder_output if start == 0 else None,
        )
        steps.append(step)
    np.testing.assert_allclose(np.concatenate(steps, axis=1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_a_later_token_changes_nothing_before_it(attention):
    backbone = SynthesizerEncoderDecoderBackbone(**SIZES, attention=attention)
    batch = inputs([3, 7], [6, 6])
    before = backbone(batch)["decoder_sequence_output"]
    batch["decoder_token_ids"][:, 4] = 1 + batch["decoder_token_ids"][:, 4] % 7
    after = backbone(batch)["decoder_sequence_output"]
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4] - after[:, 4]).max() > 1e-3


def test_only_the_dot_product_caches_keys():
    def cache_size(attention):
        backbone = SynthesizerEncoderDecoderBackbone(**SIZES, attention=attention)
        own = [own for own, _ in backbone.init_cache(3, 11, 5)]
        return sum(np.size(leaf) for leaf in keras.tree.flatten(own))

    assert 2 * cache_size("random") == cache_size("dot_product")
    assert cache_size("dense") == cache_size("random")


def test_config_round_trip_with_everything_set():
    backbone = SynthesizerEncoderDecoderBackbone(
        **SIZES,
        attention=["dense", RandomAlignment(2, 13, trainable_alignment=False)],
        decoder_attention="factorized_random+dot_product",
        dropout=0.3,
        attention_dropout=0.2,
        activation="gelu",
        layer_norm_epsilon=1e-4,
        normalize_first=False,
        seed=3,
        dtype="mixed_bfloat16",
    )
    config = backbone.get_config()
    json.dumps(config)
    again = SynthesizerEncoderDecoderBackbone.from_config(config)
    assert again.get_config() == config
    assert [w.shape for w in again.weights] == [w.shape for w in backbone.weights]


def test_layers_that_share_a_spec_do_not_share_weights():
    backbone = SynthesizerEncoderDecoderBackbone(**SIZES, attention=RandomAlignment(2, 13))
    tables = [
        layer.self_attention.alignment.table for layer in backbone.encoder_layers + backbone.decoder_layers
    ]
    assert len({id(table) for table in tables}) == 4
    assert np.abs(tables[0] - tables[1]).max() > 0.1


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_dtype_policies(dtype):
    backbone = SynthesizerEncoderDecoderBackbone(**SIZES, dtype=dtype)
    outputs = backbone(inputs([3, 7, 0], [6, 2, 1]))["decoder_sequence_output"]
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype.removeprefix("mixed_")
    assert np.isfinite(np.asarray(outputs, "float32")).all()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`num_heads` must divide `hidden_dim`.*num_heads=3"):
        SynthesizerEncoderDecoderBackbone(**{**SIZES, "num_heads": 3})
    with pytest.raises(ValueError, match="one for each of the num_layers=2 layers.*a list of 1"):
        SynthesizerEncoderDecoderBackbone(**SIZES, attention=["random"])
    with pytest.raises(ValueError, match="'randm'"):
        SynthesizerEncoderDecoderBackbone(**SIZES, attention="randm")
    backbone = SynthesizerEncoderDecoderBackbone(**SIZES)
    with pytest.raises(ValueError, match="max_length=13.*length 14"):
        backbone.encode(np.ones((1, 14)), np.ones((1, 14)))
