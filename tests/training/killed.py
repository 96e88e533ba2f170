"""Trains a model in processes that are killed at random moments, and once in one that is not.

    python killed.py FOLDER KILLS

Importing takes most of the time of a short training. So it is done once, and the processes are forked from
here, before anything of TensorFlow runs.
"""

import itertools
import multiprocessing
import os
import pathlib
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.append(str(pathlib.Path(__file__).parents[1] / "models"))

import keras
import numpy as np
import tensorflow as tf
from tiny import DECODER, SIZES, inputs

from keras_synth import models
from keras_synth.training import AdamW, Checkpoint, InverseSquareRoot, SmoothedCrossentropy

EPOCHS, STEPS, BATCH = 4, 12, 3


class Progress(keras.callbacks.Callback):
    """Tells the parent process of each step that is trained, and not skipped."""

    def __init__(self, connection):
        super().__init__()
        self.connection = connection

    def on_train_batch_end(self, batch, logs=None):
        if logs:
            self.connection.send(batch)


def data(first_epoch):
    x = inputs(DECODER, [1 + i % 9 for i in range(STEPS * BATCH)], 9)
    y = np.random.default_rng(3).integers(4, SIZES["vocabulary_size"], (STEPS * BATCH, 9))
    examples = tf.data.Dataset.from_tensor_slices((x, y, x["padding_mask"]))

    def shuffled(epoch):
        return examples.shuffle(STEPS * BATCH, seed=epoch, reshuffle_each_iteration=False).batch(BATCH)

    return tf.data.Dataset.range(first_epoch, EPOCHS).flat_map(shuffled), examples.batch(BATCH)


def train(folder, connection):
    keras.utils.set_random_seed(1)
    model = models.SynthesizerCausalLM(DECODER(**SIZES, attention="random", dropout=0.3))
    optimizer = AdamW(InverseSquareRoot(1e-2, 9), weight_decay=1e-2)
    model.compile(optimizer, SmoothedCrossentropy(), weighted_metrics=None, jit_compile=False)
    history = keras.callbacks.History()
    checkpoint = Checkpoint(folder / "checkpoints", every_steps=3, also=[history])
    batches, validation = data(checkpoint.epoch)
    model.fit(
        batches,
        validation_data=validation,
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        callbacks=[history, checkpoint, Progress(connection)],
        verbose=0,
        shuffle=False,
    )
    variables = [*model.variables, *model.optimizer.variables]
    arrays = {str(i): keras.ops.convert_to_numpy(variable) for i, variable in enumerate(variables)}
    np.savez(folder / "end.npz", **arrays, val_loss=history.history["val_loss"])


def run(folder, steps=None, seconds=None):
    """Runs a process, and kills it some time after a step. Returns whether it had to be killed."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=train, args=(folder, theirs))
    process.start()
    theirs.close()
    try:
        while steps is None or steps > 0:
            ours.recv()
            steps = steps and steps - 1
    except EOFError:
        pass
    process.join(seconds)
    killed = process.is_alive()
    process.kill()
    process.join()
    assert killed or process.exitcode == 0
    return killed


def main(folder, kills):
    names = (f"killed {i}" for i in itertools.count())
    moments = random.Random(kills)
    run(make(folder / "undisturbed"))
    killed = make(folder / next(names))
    while kills:
        # While the model is made, in a step, or while a checkpoint is saved.
        steps = moments.randint(0, 9)
        if run(killed, steps, moments.uniform(0, 0.04 if steps else 4)):
            kills -= 1
        else:
            killed = make(folder / next(names))
    run(killed)


def make(folder):
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
