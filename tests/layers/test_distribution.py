"""Two replicas, in a process of their own because logical devices must be made before all else."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import sys
import keras
import numpy as np
import tensorflow as tf
from keras_synth.layers import SynthesizerEncoder

jit_compile = {"auto": "auto", "False": False}[sys.argv[1]]
devices = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
rng = np.random.default_rng(0)
x, y = rng.integers(1, 9, (8, 7)), rng.integers(0, 2, 8)
x[1, 3:] = 0  # unequal padding
data = tf.data.Dataset.from_tensor_slices((x, y))
losses = []
for strategy in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
    with strategy.scope():
        keras.utils.set_random_seed(1)
        tokens = keras.Input((None,), dtype="int32")
        hidden = keras.layers.Embedding(9, 6, mask_zero=True)(tokens)
        hidden = SynthesizerEncoder(11, 2, "random+dense+dot_product", max_length=8)(hidden)
        pooled = keras.layers.GlobalAveragePooling1D()(hidden)
        model = keras.Model(tokens, keras.layers.Dense(2)(pooled))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
    losses.append(model.fit(data.batch(4), epochs=2, verbose=0, shuffle=False).history["loss"])
    # The last batch leaves one replica without an example, which must add nothing.
    losses[-1].append(model.evaluate(data.take(5).batch(4), verbose=0))
np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
"""


@pytest.mark.parametrize("jit_compile", ["auto", "False"])
def test_two_replicas_have_the_losses_of_one(jit_compile):
    command = [sys.executable, "-c", PROGRAM, jit_compile]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
