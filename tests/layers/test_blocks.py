"""Encoder and decoder blocks, against NumPy and KerasHub."""

import keras
import numpy as np
import oracle
import pytest
from helpers import BATCH, HEADS, LENGTH, MAX_LENGTH, PADDING, close, inputs, random_mask, randomize

from keras_synth import layers
from keras_synth.alignments import RelativeBiasAlignment

WIDTH, INNER, SOURCE_LENGTH = 14, 19, 11
NAMES = ["random", "dense", "dot_product", "random+dot_product"]
BLOCKS = [layers.SynthesizerEncoder, layers.SynthesizerDecoder]


def block(cls, name="random+dot_product", source=False, **kwargs):
    layer = cls(INNER, HEADS, name, max_length=MAX_LENGTH, **{"dtype": "float64", **kwargs})
    layer.build((None, None, WIDTH), *[(None, None, WIDTH)] * source)
    return randomize(layer)


def mask_argument(cls):
    return "padding_mask" if cls is layers.SynthesizerEncoder else "decoder_padding_mask"


def sequence(length=LENGTH, seed=1):
    return inputs(length=length, width=WIDTH, seed=seed)


def norm(x, layer):
    centered = x - x.mean(axis=-1, keepdims=True)
    scale = np.sqrt(centered.var(axis=-1, keepdims=True) + layer.epsilon)
    return centered / scale * oracle.array(layer.gamma) + oracle.array(layer.beta)


def residual(x, layer, sublayer):
    if layer.normalize_first:
        return x + sublayer(norm(x, layer.norm))
    return norm(x + sublayer(x), layer.norm)


def block_formula(layer, x, source=None, source_mask=None, **masks):
    """What a block with `tanh` as its activation computes, and the scores of its self-attention."""
    scores = []

    def self_attention(x):
        output, weights = oracle.attention(layer.self_attention, x, **masks)
        scores.append(weights)
        return output

    def cross_attention(x):
        return oracle.attention(layer.cross_attention, x, source, value_mask=source_mask)[0]

    def feedforward(x):
        hidden = np.tanh(oracle.dense("btd,de->bte", x, layer.feedforward.intermediate))
        return oracle.dense("bte,ed->btd", hidden, layer.feedforward.output_dense)

    x = residual(x, layer.self_attention_residual, self_attention)
    if source is not None:
        x = residual(x, layer.cross_attention_residual, cross_attention)
    return residual(x, layer.feedforward_residual, feedforward), scores[0]


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_encoder_equals_the_formula(name, normalize_first):
    layer = block(
        layers.SynthesizerEncoder,
        name,
        normalize_first=normalize_first,
        activation="tanh",
        layer_norm_epsilon=1e-2,
    )
    x, mask = sequence(), random_mask(BATCH, LENGTH, LENGTH)
    output, scores = layer(x, PADDING, mask, return_attention_scores=True)
    expected, expected_scores = block_formula(
        layer, x, query_mask=PADDING, value_mask=PADDING, attention_mask=mask
    )
    close(output, expected)
    close(scores, expected_scores)
    close(layer(x, PADDING, mask), expected)


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_decoder_equals_the_formula(name, normalize_first):
    options = {"normalize_first": normalize_first, "activation": "tanh"}
    x, source = sequence(), sequence(SOURCE_LENGTH, seed=5)
    source_mask = np.arange(SOURCE_LENGTH) < np.array([[11], [7], [1]])
    masks = {"query_mask": PADDING, "value_mask": PADDING}

    layer = block(layers.SynthesizerDecoder, name, source=True, **options)
    output = layer(x, source, decoder_padding_mask=PADDING, encoder_padding_mask=source_mask)
    close(output, block_formula(layer, x, source, source_mask, use_causal_mask=True, **masks)[0])

    layer = block(layers.SynthesizerDecoder, name, **options)
    output = layer(x, decoder_padding_mask=PADDING)
    close(output, block_formula(layer, x, use_causal_mask=True, **masks)[0])
    output = layer(x, decoder_padding_mask=PADDING, use_causal_mask=False)
    close(output, block_formula(layer, x, **masks)[0])


@pytest.mark.parametrize("normalize_first", [True, False])
def test_dot_product_encoder_is_that_of_keras_hub(normalize_first):
    keras_hub = pytest.importorskip("keras_hub")
    peer = keras_hub.layers.TransformerEncoder(INNER, HEADS, normalize_first=normalize_first)
    peer.build((None, None, WIDTH))
    randomize(peer)
    layer = block(
        layers.SynthesizerEncoder, "dot_product", normalize_first=normalize_first, dtype="float32"
    )
    attention, attention_norm, norm, feedforward = np.split(np.arange(16), [8, 10, 12])
    weights = peer.get_weights()
    layer.set_weights([weights[i] for i in (*attention, *attention_norm, *feedforward, *norm)])
    x, mask = sequence().astype("float32"), PADDING[:2]
    close(layer(x), peer(x), 1e-5)
    close(layer(x[:2], padding_mask=mask)[mask], peer(x[:2], padding_mask=mask)[mask], 1e-5)


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("source", [True, False])
def test_dot_product_decoder_is_that_of_keras_hub(source, normalize_first):
    keras_hub = pytest.importorskip("keras_hub")
    peer = keras_hub.layers.TransformerDecoder(INNER, HEADS, normalize_first=normalize_first)
    peer.build((None, None, WIDTH), (None, None, WIDTH) if source else None)
    randomize(peer)
    layer = block(
        layers.SynthesizerDecoder,
        "dot_product",
        source=source,
        normalize_first=normalize_first,
        dtype="float32",
    )
    layer.set_weights(peer.get_weights())
    x = sequence().astype("float32")
    sources = [sequence(SOURCE_LENGTH, seed=5).astype("float32")] * source
    close(layer(x, *sources), peer(x, *sources), 1e-5)


# Masks.

IDS = np.array([[3, 1, 4, 1, 5], [2, 6, 0, 0, 0], [1, 2, 3, 0, 0]])
SOURCE_IDS = np.array([[1, 2, 3, 4], [5, 6, 7, 0], [1, 0, 0, 0]])


def embedding():
    layer = keras.layers.Embedding(8, WIDTH, mask_zero=True, dtype="float64")
    layer.build((None, None))
    return layer


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("cls", BLOCKS)
def test_implicit_masks_go_through_a_stack_of_blocks(cls, normalize_first):
    stack = [
        block(cls, name, normalize_first=normalize_first) for name in ("random", "dense", "dot_product")
    ]
    x = embedding()(IDS)
    explicit = np.asarray(x)
    for layer in stack:
        x = layer(x)
        close(x._keras_mask, IDS != 0)
        explicit = layer(explicit, **{mask_argument(cls): IDS != 0})
        close(x, explicit)
    pooled = keras.layers.GlobalAveragePooling1D(dtype="float64")(x)
    close(pooled[1], np.asarray(explicit)[1, :2].mean(axis=0))


@pytest.mark.parametrize("cls", BLOCKS)
@pytest.mark.parametrize("name", NAMES)
def test_padding_changes_nothing(cls, name):
    layer, embed = block(cls, name), embedding()
    x = embed(IDS)
    output = layer(x)
    close(output[1:2, :2], layer(embed(IDS[1:2, :2])))
    other = np.where((IDS != 0)[..., None], x, 100.0)
    close(layer(other, **{mask_argument(cls): IDS != 0})[1, :2], output[1, :2])


@pytest.mark.parametrize("cls", BLOCKS)
def test_an_explicit_mask_wins_over_the_implicit_one(cls):
    layer, x = block(cls), embedding()(IDS)
    everything = np.ones_like(IDS)
    close(layer(x, **{mask_argument(cls): everything}), layer(np.asarray(x)))


@pytest.mark.parametrize(
    "call",
    [
        lambda layer, x, source: layer(x, source),
        lambda layer, x, source: layer(decoder_sequence=x, encoder_sequence=source),
    ],
    ids=["by position", "by keyword"],
)
def test_implicit_masks_of_both_sequences_reach_the_decoder(call):
    layer, embed = block(layers.SynthesizerDecoder, source=True), embedding()
    x, source = embed(IDS), embed(SOURCE_IDS)
    output = call(layer, x, source)
    expected = layer(
        np.asarray(x),
        np.asarray(source),
        decoder_padding_mask=IDS != 0,
        encoder_padding_mask=SOURCE_IDS != 0,
    )
    close(output[IDS != 0], expected[IDS != 0])
    close(output._keras_mask, IDS != 0)
    close(output[1:2, :2], call(layer, embed(IDS[1:2, :2]), embed(SOURCE_IDS[1:2, :3])))


@pytest.mark.parametrize("cls", BLOCKS)
def test_an_example_of_padding_alone_is_finite_and_leaves_the_others_as_they_are(cls):
    layer, x = block(cls), sequence()
    output = np.asarray(layer(x, **{mask_argument(cls): PADDING}))
    assert np.all(np.isfinite(output))
    close(output[:2], layer(x[:2], **{mask_argument(cls): PADDING[:2]}))


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_does_not_see_the_future(name):
    layer, x, changed = block(layers.SynthesizerDecoder, name), sequence(), sequence()
    changed[:, 3:] += 1
    close(layer(changed)[:, :3], layer(x)[:, :3])
    assert np.abs(layer(changed)[:, 3:] - layer(x)[:, 3:]).max() > 0.1


# Dropout and the start of weights.


@pytest.mark.parametrize("cls", BLOCKS)
@pytest.mark.parametrize("rates", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_both_kinds_of_dropout_act_in_training_alone(cls, rates):
    layer, x = block(cls, seed=1, **rates), sequence()
    expected = block(cls)(x)
    close(layer(x), expected)
    assert np.abs(layer(x, training=True) - expected).max() > 0.01
    again = block(cls, seed=1, **rates)
    close(again(x, training=True), block(cls, seed=1, **rates)(x, training=True), 0)


def test_attention_dropout_defaults_to_dropout():
    layer = layers.SynthesizerEncoder(INNER, HEADS, "dot_product", dropout=0.3)
    assert layer.attention_dropout == 0.3
    layer = layers.SynthesizerEncoder(INNER, HEADS, "dot_product", dropout=0.3, attention_dropout=0.0)
    assert layer.attention_dropout == 0.0


def test_kernels_of_one_shape_start_different_with_an_integer_seed():
    layer = layers.SynthesizerDecoder(
        WIDTH,
        HEADS,
        "dense+dot_product",
        max_length=WIDTH,
        kernel_initializer=keras.initializers.GlorotUniform(seed=7),
    )
    layer.build((None, None, WIDTH), (None, None, WIDTH))
    kernels = [w for w in layer.weights if w.path.endswith("kernel")]
    for i, first in enumerate(kernels):
        for second in kernels[:i]:
            if first.shape == second.shape:
                assert np.abs(np.asarray(first) - np.asarray(second)).max() > 1e-3, (
                    first.path,
                    second.path,
                )


# Errors.


@pytest.mark.parametrize("cls", BLOCKS)
def test_heads_must_divide_the_width(cls):
    with pytest.raises(ValueError, match="divisible by num_heads=2.*width 15"):
        cls(INNER, HEADS, "dot_product")(inputs(width=15))


def test_a_decoder_built_with_an_encoder_must_be_called_with_one():
    layer = block(layers.SynthesizerDecoder, source=True)
    with pytest.raises(ValueError, match="built with an encoder"):
        layer(sequence())


def test_a_decoder_built_without_an_encoder_must_be_called_without_one():
    layer = block(layers.SynthesizerDecoder)
    with pytest.raises(ValueError, match="built without an encoder"):
        layer(sequence(), sequence())


@pytest.mark.parametrize("cls", BLOCKS)
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"intermediate_dim": 0}, "`intermediate_dim` .* positive integer.*intermediate_dim=0"),
        ({"num_heads": 2.0}, "`num_heads` .* positive integer.*num_heads=2.0"),
        ({"attention": "randon"}, "'randon'"),
        ({"max_length": None}, "'random' needs `max_length`"),
        ({"dropout": 1.5}, "dropout.*1.5"),
        ({"attention_dropout": -0.5}, "dropout.*-0.5"),
    ],
    ids=str,
)
def test_wrong_arguments_are_errors_at_once(cls, arguments, message):
    right = {"intermediate_dim": 11, "num_heads": 2, "attention": "random", "max_length": 9}
    with pytest.raises(ValueError, match=message):
        cls(**{**right, **arguments})


# The choices in which the models of the literature differ.

CHOICES = {
    "feedforward_dropout": 0.3,
    "use_gated_activation": True,
    "normalization": "rms_norm",
    "use_bias": False,
}


@pytest.mark.parametrize("cls", BLOCKS)
def test_config_holds_the_choices(cls):
    config = block(cls, **CHOICES).get_config()
    assert {name: config[name] for name in CHOICES} == CHOICES
    assert cls.from_config(config).get_config() == config


def test_a_gated_block_without_biases_and_with_rms_norm_equals_the_formula():
    layer = block(layers.SynthesizerEncoder, normalize_first=True, activation="tanh", **CHOICES)
    assert not [weight.path for weight in layer.weights if "bias" in weight.path]

    def rms(x, layer):
        scale = np.sqrt((x**2).mean(axis=-1, keepdims=True) + layer.epsilon)
        return x / scale * oracle.array(layer.scale)

    def feedforward(x, network):
        gate = x @ oracle.array(network.gate.kernel)
        hidden = np.tanh(x @ oracle.array(network.intermediate.kernel)) * gate
        return hidden @ oracle.array(network.output_dense.kernel)

    x = sequence()
    attended, _ = oracle.attention(layer.self_attention, rms(x, layer.self_attention_residual.norm))
    middle = x + attended
    expected = middle + feedforward(rms(middle, layer.feedforward_residual.norm), layer.feedforward)
    close(layer(x), expected)


@pytest.mark.parametrize("cls", BLOCKS)
def test_feedforward_dropout_acts_in_training_alone(cls):
    layer, x = block(cls, seed=1, feedforward_dropout=0.5), sequence()
    close(layer(x), block(cls)(x))
    assert np.abs(layer(x, training=True) - layer(x)).max() > 0.01


def test_no_two_dropouts_of_a_seeded_block_are_the_same():
    layer = block(layers.SynthesizerDecoder, source=True, seed=1, dropout=0.5)
    dropouts = [sub for sub in layer._flatten_layers() if isinstance(sub, keras.layers.Dropout)]
    assert len({sub.seed for sub in dropouts}) == len(dropouts) == 6


@pytest.mark.parametrize("cls", BLOCKS)
def test_an_unknown_normalization_is_an_error_at_once(cls):
    with pytest.raises(ValueError, match="'layer_norm', 'rms_norm'.*normalization='rms'"):
        cls(11, 2, "dot_product", normalization="rms")


@pytest.mark.parametrize("name", ["random", "dot_product"])
def test_a_relative_bias_is_added_to_the_logits(name):
    bias = RelativeBiasAlignment(HEADS)
    layer = block(layers.SynthesizerDecoder, name, relative_bias=bias)
    alignment, part = layer.self_attention.alignment.alignments
    assert part is bias
    x = sequence()
    close(
        layer.self_attention.alignment(x, causal=True),
        np.asarray(alignment(x)) + np.asarray(bias(x, causal=True)),
    )
    close(layer(x)[:, :3], layer(x[:, :3]))


def test_the_buckets_of_a_relative_bias_are_those_of_t5():
    peer = pytest.importorskip("keras_hub.src.models.t5.t5_multi_head_attention").T5MultiHeadAttention
    bias = RelativeBiasAlignment(HEADS)
    bias.build((None, None, WIDTH))
    randomize(bias)
    for causal in (True, False):
        attention = peer(causal, WIDTH, 7, HEADS, 0.0, use_relative_attention_bias=True)
        attention.relative_attention_bias.assign(np.transpose(bias.table.numpy()))
        x = np.zeros((1, 300, WIDTH), "float32")
        close(bias(x, causal=causal), attention.compute_bias(300, 300)[0], 1e-6)
        part = bias(x[:, :2], start_index=7, key_length=11, causal=causal)
        close(part, bias(x[:, :11], causal=causal)[:, 7:9], 1e-6)


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("cls", [layers.SynthesizerEncoder, layers.SynthesizerDecoder])
def test_gates_weigh_what_enters_attention_and_what_leaves_it(cls, normalize_first):
    options = {"normalize_first": normalize_first, "dtype": "float64"}
    gated = cls(11, HEADS, "average", use_attention_gate=True, **options)
    plain = cls(11, HEADS, "average", **options)
    x, other = inputs(width=14), inputs(width=14, seed=5)
    for layer in (gated, plain):
        layer.build((None, None, 14))
    gate = gated.self_attention_gate.gate_dense
    rest = [weight for weight in gated.weights if "self_attention_gate" not in weight.path]
    for weight, same in zip(rest, plain.weights, strict=True):
        same.assign(weight)
    gate.kernel.assign(0 * gate.kernel)
    gate.bias.assign(np.repeat([-40.0, 40.0], 14))
    close(gated(x), plain(x))  # of the attention alone
    gate.bias.assign(np.repeat([40.0, -40.0], 14))
    changed = np.concatenate([other[:, :2], x[:, 2:]], axis=1)
    close(gated(changed)[:, 2:], gated(x)[:, 2:])  # of the tokens alone
