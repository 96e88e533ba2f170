"""Every alignment as a SavedModel, which answers at other batch sizes and lengths."""

import keras
import pytest
import tensorflow as tf
from helpers import HEADS, KEY_DIM, MAX_LENGTH, WIDTH, close, inputs, randomize

from keras_synth import alignments, layers

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("name", [*alignments.NAMES, "random+dense+dot_product"])
def test_an_exported_model_answers_at_another_batch_size_and_length(name, tmp_path):
    x = keras.Input((None, WIDTH), dtype="float32")
    layer = layers.SyntheticAttention(HEADS, KEY_DIM, name, max_length=MAX_LENGTH, dropout=0.2)
    model = keras.Model(x, layer(x, use_causal_mask=True))
    randomize(layer)
    model.export(tmp_path / "1", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "1")
    for batch, length in [(3, 5), (1, 1), (2, MAX_LENGTH)]:
        example = inputs(batch, length, dtype="float32")
        close(loaded.serve(example), model(example), 1e-5)
