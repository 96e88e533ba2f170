"""The three backbones: padding, causality, caches, options, configurations."""

import json

import keras
import numpy as np
import pytest
from tiny import ATTENTIONS, BOTH, DECODER, ENCODER, OPTIONS, SIZES, inputs, output, tokens

from keras_synth.alignments import RandomAlignment
from keras_synth.models import SIZES as LITERATURE

backbones = pytest.mark.parametrize("cls", [ENCODER, DECODER, BOTH])
decoders = pytest.mark.parametrize("cls", [DECODER, BOTH])
EVERYTHING = dict(
    attention=["dense", RandomAlignment(2, 12, trainable_alignment=False)],
    num_layers=2,
    dropout=0.3,
    attention_dropout=0.2,
    feedforward_dropout=0.4,
    activation="gelu",
    use_gated_activation=True,
    normalization="rms_norm",
    layer_norm_epsilon=1e-4,
    normalize_first=False,
    use_bias=False,
    positions="learned",
    tie_word_embeddings=False,
    seed=3,
    dtype="mixed_bfloat16",
)


def check_padding(backbone, cls):
    lengths = [6, 2, 4]
    batch = inputs(cls, lengths, width=8)
    outputs = output(backbone, batch)
    for i, length in enumerate(lengths):
        alone = {}
        for name, value in batch.items():
            mask = batch[name.replace("token_ids", "padding_mask")]
            alone[name] = value[i : i + 1, : mask[i].sum()]
        np.testing.assert_allclose(outputs[i : i + 1, :length], output(backbone, alone), 1e-4, 1e-5)


def check_cache(backbone, cls):
    batch = inputs(cls, [6, 6])
    token_ids = batch["decoder_token_ids" if cls is BOTH else "token_ids"]
    encoder_sequence, encoder_padding_mask = None, batch.get("encoder_padding_mask")
    if cls is BOTH:
        encoder_sequence = backbone.encode(batch["encoder_token_ids"], encoder_padding_mask)
    cache = backbone.init_cache(2, 9, encoder_padding_mask)
    steps = []
    for start, stop in [(0, 3), (3, 4), (4, 6)]:
        step, cache = backbone.decode_with_cache(
            token_ids[:, start:stop], cache, start, encoder_sequence if start == 0 else None
        )
        steps.append(step)
    np.testing.assert_allclose(np.concatenate(steps, axis=1), output(backbone, batch), 1e-4, 1e-5)


def check_causality(backbone, cls):
    batch = inputs(cls, [6, 6])
    before = output(backbone, batch)
    batch["decoder_token_ids" if cls is BOTH else "token_ids"][:, 4] += 1
    after = output(backbone, {k: v % SIZES["vocabulary_size"] for k, v in batch.items()})
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.abs(before[:, 4] - after[:, 4]).max() > 1e-3


@pytest.mark.parametrize("attention", [*ATTENTIONS, "linear"])
def test_encoder_ignores_padding(attention):
    check_padding(ENCODER(**SIZES, attention=attention), ENCODER)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_decoder_ignores_padding_and_future_and_decodes_with_a_cache(attention):
    backbone = DECODER(**SIZES, attention=attention)
    check_padding(backbone, DECODER)
    check_causality(backbone, DECODER)
    check_cache(backbone, DECODER)


@pytest.mark.parametrize("options", OPTIONS)
def test_encoder_decoder_does_so_too_with_all_options(options):
    backbone = BOTH(**{**SIZES, "num_layers": 2}, attention=["dense", "random+dot_product"], **options)
    check_padding(backbone, BOTH)
    check_causality(backbone, BOTH)
    check_cache(backbone, BOTH)


def test_encoder_and_decoder_attend_apart():
    backbone = BOTH(**SIZES, attention="linear", decoder_attention="random")
    names = [
        type(getattr(layer.self_attention, "alignment", layer.self_attention)).__name__
        for layer in (*backbone.encoder_layers, *backbone.decoder_layers)
    ]
    assert names == ["LinearAttention", "RandomAlignment"]
    assert output(backbone, inputs(BOTH, [3, 5])).shape == (2, 5, 14)


def test_only_the_dot_product_caches_keys():
    def cache_size(attention):
        cache = DECODER(**SIZES, attention=attention).init_cache(3, 11)
        return sum(np.size(leaf) for leaf in keras.tree.flatten(cache))

    assert 2 * cache_size("random") == cache_size("dot_product")
    assert cache_size("dense") == cache_size("random")


@backbones
def test_config_round_trip_with_everything_set(cls):
    extra = {"decoder_attention": "factorized_random+dot_product"} if cls is BOTH else {}
    backbone = cls(**{**SIZES, **EVERYTHING, **extra})
    config = backbone.get_config()
    assert {name: config[name] for name in EVERYTHING if name not in ("attention", "dtype")} == {
        name: value for name, value in EVERYTHING.items() if name not in ("attention", "dtype")
    }
    again = cls.from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config
    assert [w.shape for w in again.weights] == [w.shape for w in backbone.weights]


@backbones
def test_keras_file(cls, tmp_path):
    backbone = cls(**{**SIZES, **EVERYTHING, "dtype": "float32"})
    backbone.save(tmp_path / "backbone.keras")
    loaded = keras.models.load_model(tmp_path / "backbone.keras")
    assert type(loaded) is cls
    x = inputs(cls, [3, 5])
    np.testing.assert_array_equal(output(backbone, x), output(loaded, x))


def test_separate_embeddings_are_two_matrices():
    tied, separate = DECODER(**SIZES), DECODER(**SIZES, tie_word_embeddings=False)
    assert separate.count_params() - tied.count_params() == 29 * 14


def test_layers_that_share_a_spec_do_not_share_weights():
    backbone = BOTH(**{**SIZES, "num_layers": 2}, attention=RandomAlignment(2, 13))
    tables = [
        layer.self_attention.alignment.table for layer in backbone.encoder_layers + backbone.decoder_layers
    ]
    assert len({id(table) for table in tables}) == 4
    assert np.abs(tables[0] - tables[1]).max() > 0.1


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_dtype_policies(dtype):
    backbone = BOTH(**SIZES, positions="learned", normalization="rms_norm", dtype=dtype)
    outputs = backbone(inputs(BOTH, [6, 2, 0]))["decoder_sequence_output"]
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype.removeprefix("mixed_")
    assert np.isfinite(np.asarray(outputs, "float32")).all()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 3}, "`num_heads` must divide `hidden_dim`.*num_heads=3"),
        ({"num_heads": 0}, "`num_heads` of .* must be a positive integer.*num_heads=0"),
        ({"num_layers": 0}, "`num_layers` of .* must be a positive integer.*num_layers=0"),
        ({"max_length": None}, "`max_length` of .* must be a positive integer.*max_length=None"),
        ({"num_layers": 2, "attention": ["random"]}, "one for each of the num_layers=2 .*a list of 1"),
        ({"attention": "randm"}, "'randm'"),
        ({"positions": "sine"}, "`positions`.*'learned', 'relative_bias', None.*positions='sine'"),
        ({"normalization": "rms"}, "'layer_norm', 'rms_norm'.*normalization='rms'"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"drop_out": 0.1}, "passed to SynthesizerEncoderBackbone: {'drop_out': 0.1}"),
        ({"kernel_initializer": "zeros"}, "passed to SynthesizerEncoderBackbone: {'kernel_initializer'"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ENCODER(**{**SIZES, **arguments})


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative_bias", None])
def test_a_sequence_that_is_too_long(positions):
    backbone = ENCODER(**SIZES, attention="dot_product", positions=positions)
    with pytest.raises(ValueError, match="max_length=12.*length 13"):
        backbone(tokens([13]))


def test_sizes():
    for name in LITERATURE:
        assert {"num_layers", "num_heads", "hidden_dim", "intermediate_dim", "max_length"} <= set(
            LITERATURE[name]
        )
    backbone = ENCODER.from_size("tiny", vocabulary_size=29, num_layers=1, attention="random")
    assert (backbone.hidden_dim, backbone.num_layers, backbone.vocabulary_size) == (128, 1, 29)
    with pytest.raises(ValueError, match="'t5_base'.*size='huge'"):
        ENCODER.from_size("huge")


@pytest.mark.parametrize(
    "cls, size, arguments, published, rounding",
    [
        # With the 37,000 tokens of https://arxiv.org/abs/1706.03762, which counts 65 million.
        (BOTH, "transformer_base", {"vocabulary_size": 37000}, 63_000_000, 1_000_000),
        (DECODER, "lm1b_base", {}, 50_000_000, 10_000_000),
        # The released checkpoints.
        (BOTH, "t5_small", {}, 60_506_624, 1),
        (BOTH, "t5_base", {}, 222_903_552, 1),
        (BOTH, "t5_1_1_base", {}, 247_577_856, 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sizes_have_the_published_number_of_parameters(cls, size, arguments, published, rounding):
    def count(num_layers, vocabulary_size):
        sizes = {"num_layers": num_layers, "vocabulary_size": vocabulary_size}
        return cls.from_size(size, attention="dot_product", **sizes).count_params()

    # Each further layer and token adds as many, and whole models would take gigabytes.
    whole = {**LITERATURE[size], **arguments}
    total = count(1, 1)
    total += (whole["num_layers"] - 1) * (count(2, 1) - count(1, 1))
    total += (whole["vocabulary_size"] - 1) * (count(1, 2) - count(1, 1))
    assert round(total / rounding) * rounding == published


@pytest.mark.parametrize("cls", [ENCODER, BOTH])
def test_the_blocks_of_a_stack_share_a_relative_bias(cls, tmp_path):
    arguments = {**SIZES, "num_layers": 3, "num_heads": 2}
    without = cls(**arguments, positions=None)
    backbone = cls(**arguments, positions="relative_bias")
    stacks = 2 if cls is BOTH else 1
    assert backbone.count_params() - without.count_params() == stacks * 2 * 32
    biases = [weight for weight in backbone.weights if "relative_bias" in weight.path]
    for i, bias in enumerate(biases):
        bias.assign(np.random.default_rng(i).normal(size=bias.shape))
    x = inputs(cls, [6, 3])
    backbone.save(tmp_path / "backbone.keras")
    loaded = keras.models.load_model(tmp_path / "backbone.keras")
    np.testing.assert_array_equal(output(loaded, x), output(backbone, x))
    assert [w.shape for w in loaded.weights] == [w.shape for w in backbone.weights]
