"""Trains each task, tiny, under one strategy after another, and saves what came of it.

    python replicas_program.py FOLDER SPEC...

A spec is one of `keras_synth.training.strategy`, or a number of logical CPUs to have a replica on each.
"""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.append(str(pathlib.Path(__file__).parents[1] / "models"))

import keras
import numpy as np
import tensorflow as tf
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs

from keras_synth import models
from keras_synth.training import is_chief, num_workers, strategy

LENGTHS = [7, 2, 9, 1, 4, 3, 8, 5, 6, 2]
CPUS = 4


def examples(cls):
    """Inputs, targets and weights of a language model, with much padding on some replicas."""
    x = inputs(cls, [min(length, 9) for length in LENGTHS], 9)
    y = np.random.default_rng(3).integers(4, SIZES["vocabulary_size"], (len(LENGTHS), 9))
    return x, y, x["decoder_padding_mask" if cls is BOTH else "padding_mask"].astype("float32")


def classifier():
    model = models.SynthesizerTextClassifier(ENCODER(**SIZES, attention="random", dropout=0.0), 3)
    model.pooled_dense.kernel.regularizer = keras.regularizers.L2(0.1)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.3), metrics=["accuracy"])
    x, y, _ = examples(ENCODER)
    return model, x, y[:, 0] % 3, None


def masked_language_model():
    model = models.SynthesizerMaskedLM(ENCODER(**SIZES, attention="dense", dropout=0.0))
    model.compile(keras.optimizers.SGD(0.5, clipvalue=0.01), metrics=["accuracy"])
    x, y, weight = examples(ENCODER)
    x["mask_positions"] = np.random.default_rng(4).integers(0, 9, (len(LENGTHS), 5))
    return model, x, y[:, :5], weight[:, :5]


def causal_language_model():
    model = models.SynthesizerCausalLM(DECODER(**SIZES, attention="factorized_random", dropout=0.0))
    schedule = keras.optimizers.schedules.CosineDecay(0.0, 9, warmup_target=0.05, warmup_steps=2)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.1, epsilon=1e-2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model, *examples(DECODER)


def sequence_to_sequence():
    model = models.SynthesizerSeq2SeqLM(BOTH(**SIZES, attention="random+dot_product", dropout=0.0))
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    optimizer = keras.optimizers.SGD(0.5, global_clipnorm=0.2)
    # Several workers do one step at a time.
    steps = 2 if num_workers(model.distribute_strategy) == 1 else 1
    model.compile(optimizer, loss, weighted_metrics=["accuracy"], steps_per_execution=steps)
    x, y, weight = examples(BOTH)
    return model, x, np.eye(SIZES["vocabulary_size"], dtype="float32")[y], weight


TASKS = {
    f.__name__: f for f in (classifier, masked_language_model, causal_language_model, sequence_to_sequence)
}


def train(make):
    """The losses and metrics of each epoch, and the weights in the end."""
    keras.utils.set_random_seed(1)
    model, *example = make()
    data = tf.data.Dataset.from_tensor_slices(tuple(part for part in example if part is not None))
    # The last batch has two examples: too few for four replicas, or three workers.
    data = data.batch(4)
    history = model.fit(data, validation_data=data, epochs=2, verbose=0, shuffle=False).history
    history["evaluate"] = model.evaluate(data, verbose=0)
    return {**history, **{f"weight {i}": weight for i, weight in enumerate(model.get_weights())}}


def replicas(count):
    devices = [f"CPU:{i}" for i in range(count)]
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, reduction) if count > 1 else strategy()


def main(folder, specs):
    if len(specs) > 1:
        strategy(f"cpu:{CPUS}")
    for spec in specs:
        where = replicas(int(spec)) if spec.isdecimal() else strategy(spec)
        for name, make in TASKS.items():
            with where.scope():
                results = train(make)
            if is_chief(where):
                np.savez(pathlib.Path(folder, f"{name} {spec}.npz"), **results)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
