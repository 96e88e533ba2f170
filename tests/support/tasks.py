"""Each task, and a model of one's own, tiny and compiled, with a few examples of unequal lengths."""

import keras
import numpy as np
from tiny import BOTH, DECODER, ENCODER, SIZES, inputs

from keras_synth import layers, models
from keras_synth.training import InverseSquareRoot, ReplicaTraining

#: In batches of four, replicas have different numbers of tokens, and the last batch has two examples.
LENGTHS = [7, 2, 9, 1, 4, 3, 8, 5, 6, 2]


def examples(cls, lengths=LENGTHS):
    """Inputs, targets and weights of a language model."""
    x = inputs(cls, lengths, 9)
    y = np.random.default_rng(3).integers(4, SIZES["vocabulary_size"], (len(lengths), 9))
    weight = x["decoder_padding_mask" if cls is BOTH else "padding_mask"].astype("float32")
    x = {name: array.astype("int32" if "ids" in name else "bool") for name, array in x.items()}
    return x, y.astype("int32"), weight


def classifier(**kwargs):
    model = models.SynthesizerTextClassifier(ENCODER(**SIZES, attention="random", dropout=0.0), 3)
    model.pooled_dense.kernel.regularizer = keras.regularizers.L2(0.1)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.3), metrics=["accuracy"], **kwargs)
    x, y, _ = examples(ENCODER)
    return model, (x, y[:, 0] % 3)


class Own(ReplicaTraining, keras.Model):
    """A model of one's own."""


def model_of_ones_own(**kwargs):
    """Classes of tokens, with a mask of Keras."""
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(SIZES["vocabulary_size"], 14, mask_zero=True)(inputs)
    x = layers.RandomSynthesizer(2, 7, SIZES["max_length"])(x)
    model = Own(inputs, keras.layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5, clipnorm=0.3), loss, metrics=["accuracy"], **kwargs)
    x, y, _ = examples(ENCODER)
    return model, (x["token_ids"], y % 3)


def masked_language_model(**kwargs):
    model = models.SynthesizerMaskedLM(ENCODER(**SIZES, attention="dense", dropout=0.0))
    model.compile(keras.optimizers.SGD(0.5, clipvalue=0.01), metrics=["accuracy"], **kwargs)
    x, y, weight = examples(ENCODER)
    x["mask_positions"] = np.random.default_rng(4).integers(0, 9, (len(LENGTHS), 5)).astype("int32")
    return model, (x, y[:, :5], weight[:, :5])


def causal_language_model(dtype=None, **kwargs):
    backbone = DECODER(**SIZES, attention="factorized_random", dropout=0.0, dtype=dtype)
    model = models.SynthesizerCausalLM(backbone)
    schedule = InverseSquareRoot(peak=0.05, warmup_steps=2)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.1, epsilon=1e-2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(optimizer, loss, metrics=["accuracy"], sampler="greedy", **kwargs)
    return model, examples(DECODER)


def sequence_to_sequence(**kwargs):
    model = models.SynthesizerSeq2SeqLM(BOTH(**SIZES, attention="random+dot_product", dropout=0.0))
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    optimizer = keras.optimizers.SGD(0.5, global_clipnorm=0.2)
    model.compile(optimizer, loss, weighted_metrics=["accuracy"], sampler="greedy", **kwargs)
    x, y, weight = examples(BOTH)
    return model, (x, np.eye(SIZES["vocabulary_size"], dtype="float32")[y], weight)


TASKS = {
    make.__name__: make
    for make in (
        classifier,
        model_of_ones_own,
        masked_language_model,
        causal_language_model,
        sequence_to_sequence,
    )
}
