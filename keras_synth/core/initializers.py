"""Initializers that draw a weight as the matrices it acts as.

Keras takes the leading axes of a kernel with more than two axes for a receptive field, as in a
convolution. A `(D, H, k)` projection or a `(H, T, S)` table has none, so its Glorot or He scale would
be wrong by a factor of `sqrt(D)` or `sqrt(H)`. And a Keras initializer that has an integer seed, or is
used twice, draws the same numbers again, so that query and key, or two factors, would start equal.
"""

import math
import zlib

import keras
from keras import ops


def fork(initializer, name):
    """A copy of `initializer` that draws numbers of its own for the weight called `name`.

    Without a seed the copy draws afresh; with an integer seed it draws what `seed` and `name` say, the
    same in every process.
    """
    initializer = keras.initializers.get(initializer)
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer  # a plain function, which has no seed to fork
    config = initializer.get_config()
    if isinstance(config.get("seed"), dict):
        return initializer  # its seed is a generator, which never repeats itself
    if isinstance(config.get("seed"), int):
        config["seed"] = fork_seed(config["seed"], name)
    return type(initializer).from_config(config)


def fork_seed(seed, name):
    """A seed of its own for the part called `name`, so that two dropouts never drop the same entries."""
    # Below 2^31, because seeds are int32 on torch.
    return None if seed is None else zlib.crc32(f"{seed}/{name}".encode()) % 2**31


@keras.saving.register_keras_serializable("keras_synth")
class ProjectionInitializer(keras.initializers.Initializer):
    """Draws a projection kernel as the matrix from its input axes to its output axes.

    Args:
        initializer: The initializer of that matrix.
        input_rank: int. How many of the leading axes are inputs. Defaults to `1`.
    """

    def __init__(self, initializer, input_rank=1):
        self.initializer = keras.initializers.get(initializer)
        self.input_rank = input_rank

    def __call__(self, shape, dtype=None):
        inputs, outputs = shape[: self.input_rank], shape[self.input_rank :]
        matrix = self.initializer((math.prod(inputs), math.prod(outputs)), dtype=dtype)
        return ops.reshape(matrix, shape)

    def get_config(self):
        return {
            "initializer": keras.initializers.serialize(self.initializer),
            "input_rank": self.input_rank,
        }


@keras.saving.register_keras_serializable("keras_synth")
class PerHeadInitializer(keras.initializers.Initializer):
    """Draws a `(heads, rows, columns)` table as one matrix for each head, each with its own numbers.

    Args:
        initializer: The initializer of one head's matrix.
    """

    def __init__(self, initializer):
        self.initializer = keras.initializers.get(initializer)

    def __call__(self, shape, dtype=None):
        heads = [fork(self.initializer, head) for head in range(shape[0])]
        return ops.stack([head(shape[1:], dtype=dtype) for head in heads])

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer)}
