"""Trains in processes that are killed, and in one that is not; also on two replicas and by two workers.

    python killed.py FOLDER KILLS

Importing takes most of the time of a short training. So it is done once, and the processes are forked from
here, before anything of TensorFlow runs.
"""

import itertools
import json
import multiprocessing
import os
import pathlib
import random
import socket
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from tiny import DECODER, SIZES, inputs

from keras_synth import models
from keras_synth.training import AdamW, Checkpoint, InverseSquareRoot, SmoothedCrossentropy, strategy

EPOCHS, STEPS, BATCH = 4, 12, 4


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


def train(folder, connection, spec, config):
    os.environ["TF_CONFIG"] = json.dumps(config)
    where = strategy(spec)
    keras.utils.set_random_seed(1)
    with where.scope():
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
    task = config.get("task", {}).get("index", 0)
    np.savez(folder / f"end {task}.npz", **arrays, val_loss=history.history["val_loss"])


def run(folder, spec="cpu", workers=1, steps=None, seconds=None):
    """Runs the processes of a training, and kills them after a step, unless they end before."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    processes = []
    ports = [free_port() for _ in range(workers)]
    for task in range(workers):
        cluster = {"worker": [f"localhost:{port}" for port in ports]}
        config = {"cluster": cluster, "task": {"type": "worker", "index": task}} if workers > 1 else {}
        arguments = (folder, theirs, spec, config)
        processes.append(multiprocessing.get_context("fork").Process(target=train, args=arguments))
        processes[-1].start()
    theirs.close()
    try:
        while steps is None or steps > 0:
            ours.recv()
            steps = steps and steps - 1
    except EOFError:
        pass
    processes[0].join(seconds)
    killed = processes[0].is_alive()
    for process in processes:
        process.kill() if killed else None
        process.join()
        assert killed or process.exitcode == 0
    return killed


def free_port():
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return server.getsockname()[1]


def kill_at_random_moments(folder, kills):
    names = (f"killed {i}" for i in itertools.count())
    moments = random.Random(kills)
    run(make(folder / "undisturbed"))
    killed = make(folder / next(names))
    while kills:
        # While the model is made, in a step, or while a checkpoint is saved.
        steps = moments.randint(0, 9)
        if run(killed, steps=steps, seconds=moments.uniform(0, 0.04 if steps else 4)):
            kills -= 1
        else:
            killed = make(folder / next(names))
    run(killed)


def kill_in_the_second_epoch(folder, spec, workers):
    run(make(folder / "undisturbed"), spec, workers)
    killed = make(folder / "killed")
    assert run(killed, spec, workers, workers * (STEPS + 5), 0)
    run(killed, spec, workers)


def make(folder):
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    kill_at_random_moments(where / "one process", int(sys.argv[2]))
    kill_in_the_second_epoch(where / "two replicas", "cpu:2", workers=1)
    kill_in_the_second_epoch(where / "two workers", "multi_worker", workers=2)
