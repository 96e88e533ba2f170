"""The mean of several checkpoints."""

import os
from collections.abc import Iterable

import keras
import numpy as np


def average_weights(model: keras.Model, paths: Iterable[str | os.PathLike]):
    """Sets the weights of a model to the mean of those in several files.

    Section 6.1 of [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) scores the mean of the last
    checkpoints, 5 for the base model and 20 for the big one. The mean is computed in float64; weights that
    are not floating point numbers are those of the last file. The optimizer is left as it is. A mean over
    all of training needs no checkpoints: `use_ema` of Keras's optimizers, and
    `keras.callbacks.SwapEMAWeights`.

    Args:
        model: keras.Model. A built model.
        paths: The files, `.keras` or `.weights.h5`, as the `paths` of a `Checkpoint`.

    Raises:
        ValueError: If there are no paths, or the weights of one do not fit the model.

    Example:

    >>> import tempfile
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    >>> paths = [f"{tempfile.mkdtemp()}/{value}.weights.h5" for value in (1, 2, 6)]
    >>> for value, path in zip((1, 2, 6), paths):
    ...     model.set_weights([np.full((1, 1), value)])
    ...     model.save_weights(path)
    >>> average_weights(model, paths)
    >>> float(model.get_weights()[0][0, 0])
    3.0
    """
    paths = list(paths)
    if not paths:
        raise ValueError("There must be at least one file to average. Received: paths=[]")
    optimizer = getattr(model, "optimizer", None)
    model.optimizer = None  # so that it is not loaded
    try:
        sums = [0.0] * len(model.weights)
        for path in paths:
            model.load_weights(path)
            sums = [
                total + np.asarray(weight, "float64")
                for total, weight in zip(sums, model.get_weights(), strict=True)
            ]
    finally:
        model.optimizer = optimizer
    for weight, total in zip(model.weights, sums, strict=True):
        if keras.backend.is_float_dtype(weight.dtype):
            weight.assign(total / len(paths))
