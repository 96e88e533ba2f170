"""Masks and lengths in whole models. Those of layers are in `tests/layers/test_masks.py`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs, language_model, output, tokens

from keras_synth import models

MIXED = "random+dense+dot_product"
backbones = pytest.mark.parametrize("cls", [ENCODER, DECODER, BOTH])


def task(cls, **kwargs):
    """A task on a backbone of this class, and how many outputs it has for each token."""
    if cls is not ENCODER:
        return language_model(cls, **kwargs)
    model = models.SynthesizerMaskedLM(ENCODER(**{**SIZES, **kwargs}))
    model.compile(run_eagerly=True)
    return model


def example(cls, lengths, width=None):
    """Inputs, targets and weights for the task."""
    x = inputs(cls, lengths, width)
    weight = x["decoder_padding_mask" if cls is BOTH else "padding_mask"]
    y = np.random.default_rng(2).integers(4, SIZES["vocabulary_size"], weight.shape)
    if cls is ENCODER:
        x["mask_positions"] = np.tile(np.arange(weight.shape[1]), (len(lengths), 1))
    return x, y, weight


@backbones
def test_masks_may_be_numbers(cls):
    backbone, x = cls(**SIZES, attention=MIXED), inputs(cls, [6, 2, 4])
    expected = output(backbone, x)
    for dtype in ("int32", "float32"):
        numbers = {name: value.astype(dtype) if "mask" in name else value for name, value in x.items()}
        np.testing.assert_array_equal(output(backbone, numbers), expected)


@backbones
def test_what_stands_in_padding_changes_nothing(cls):
    backbone, x = cls(**{**SIZES, "num_layers": 3}, attention=MIXED), inputs(cls, [6, 2, 4])
    expected = output(backbone, x)
    other = {}
    for name, value in x.items():
        mask = x[name.replace("token_ids", "padding_mask")]
        other[name] = np.where(mask, value, 7) if "token_ids" in name else value
    mask = x["decoder_padding_mask" if cls is BOTH else "padding_mask"]
    np.testing.assert_array_equal(output(backbone, other)[mask], expected[mask])


@pytest.mark.parametrize("cls", [DECODER, BOTH])
def test_no_logits_change_with_a_later_token_whatever_the_padding(cls):
    model, x = language_model(cls, attention=MIXED), inputs(cls, [9, 6], width=9)
    before = np.array(model(x))
    x["decoder_token_ids" if cls is BOTH else "token_ids"][:, 5] = 3
    after = np.array(model(x))
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.abs(before[:, 5] - after[:, 5]).max() > 1e-3


@backbones
def test_an_example_of_padding_alone_disturbs_no_other_and_no_gradient(cls):
    model = task(cls, attention=["random", "dot_product"], num_layers=2, dropout=0.0)
    x, y, weight = example(cls, [5, 0, 3])
    if cls is BOTH:
        x["encoder_padding_mask"][1] = False
    logits = np.array(model(x))
    others = {name: value[[0, 2]] for name, value in x.items()}
    np.testing.assert_allclose(logits[[0, 2]], model(others), 1e-4, 1e-5)
    assert np.isfinite(logits).all()
    assert np.isfinite(model.train_on_batch(x, y, sample_weight=weight)[0])
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize("cls", [ENCODER, DECODER])
def test_one_traced_step_serves_all_lengths_and_batches(cls):
    model = task(cls, attention=MIXED, dropout=0.0)
    assert model.output.shape[:2] == (None, None)
    batches = [example(cls, lengths) for lengths in ([12], [5, 3], [1], [9, 12, 2], [1, 1])]
    spec = keras.tree.map_structure(lambda array: tf.TensorSpec((None, None), array.dtype), batches[0])
    data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    data = data.apply(tf.data.experimental.assert_cardinality(len(batches)))
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    history = model.fit(data, verbose=0).history
    # Each batch by itself, without a graph that could remember another length.
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    losses = []
    for x, y, weight in batches:
        losses.append(model.test_on_batch(x, y, sample_weight=weight)[0])
        model.reset_metrics()
    counts = [weight.sum() for _, _, weight in batches]
    np.testing.assert_allclose(history["loss"], [np.average(losses, weights=counts)], rtol=1e-5)


def test_tables_learn_and_fixed_tables_do_not():
    model = language_model(DECODER, attention=["random", "fixed_random"], num_layers=2)
    learned, fixed = (block.self_attention.alignment.table for block in model.backbone.decoder_layers)
    assert learned.shape == fixed.shape == (2, 12, 12)
    before = learned.numpy(), fixed.numpy()
    x, y, weight = example(DECODER, [6, 4])
    model.train_on_batch(x, y, sample_weight=weight)
    assert np.abs(learned.numpy() - before[0]).max() > 0
    np.testing.assert_array_equal(fixed, before[1])


def test_logits_have_no_mask_of_their_own():
    model = language_model(DECODER)
    assert getattr(model(tokens([6, 2])), "_keras_mask", None) is None
