"""`keras.RematScope`: activations that are computed anew in the backward pass change nothing but memory."""

import keras
import numpy as np
import pytest
from helpers import normal

from keras_synth import layers

IDS = np.random.default_rng(1).integers(0, 4, (4, 5))  # with padding
BLOCKS = {
    "encoder": lambda **kwargs: layers.SynthesizerEncoder(11, 2, "random+dense", max_length=8, **kwargs),
    "decoder": lambda **kwargs: layers.SynthesizerDecoder(11, 2, "dot_product", **kwargs),
    "baseline": lambda **kwargs: layers.SynthesizerDecoder(11, 2, "dynamic_convolution", **kwargs),
}


def trained(make, mode):
    keras.utils.set_random_seed(1)
    with keras.RematScope(mode=mode):
        layer = make()
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(keras.layers.Embedding(4, 8, mask_zero=True)(ids)))
    model.compile("sgd", "mse")
    model.fit(IDS, normal(4, 5, 8, dtype="float32"), verbose=0)
    return model.get_weights()


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_step_of_training_is_the_same(kind):
    for weights in zip(trained(BLOCKS[kind], "full"), trained(BLOCKS[kind], None), strict=True):
        np.testing.assert_allclose(*weights, 1e-5, 1e-6)


def test_dropout_is_refused():
    with pytest.raises(ValueError, match="rates of 0"):
        trained(lambda: BLOCKS["encoder"](dropout=0.1), "full")
    trained(lambda: BLOCKS["encoder"](dropout=0.1), "activations")
