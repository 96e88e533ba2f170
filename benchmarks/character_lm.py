"""A small causal language model of characters, for what is best decided by training one."""

import gzip

import keras
import numpy as np


def held_out_loss(path, make_block, steps, num_layers=2, width=128, length=128, batch_size=16):
    """Trains on the first nine tenths of a text, and returns the loss on the rest, in nats a character.

    Args:
        path: A `pathlib.Path`. A text, which may be packed by gzip.
        make_block: A function without arguments that makes a decoder block.
        steps: int. The number of training steps.
        num_layers: int. The number of blocks.
        width: int. The width of the embedding.
        length: int. The number of characters that the model sees.
        batch_size: int. The number of windows in a step.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        text = np.array(list(file.read()))
    characters, ids = np.unique(text, return_inverse=True)
    training, validation = np.split(ids, [int(0.9 * len(ids))])

    def windows(ids, starts):
        rows = ids[starts[:, None] + np.arange(length + 1)]
        return rows[:, :-1], rows[:, 1:]

    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(len(characters), width)(tokens)
    for _ in range(num_layers):
        x = make_block()(x)
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model(tokens, keras.layers.Dense(len(characters))(x))
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    rng = np.random.default_rng(0)
    x, y = windows(training, rng.integers(0, len(training) - length - 1, batch_size * steps))
    model.fit(x, y, batch_size=batch_size, epochs=1, verbose=0)
    x, y = windows(validation, np.arange(0, len(validation) - length - 1, length))
    return model.evaluate(x, y, batch_size=64, verbose=0)
