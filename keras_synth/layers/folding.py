"""Attention weights that do not depend on the input, computed once for many calls."""

import contextlib

import keras
from keras import ops

from keras_synth.layers import masks
from keras_synth.layers.attend import raised_softmax


class FinishedWeights:
    """The weights of an attention layer after the softmax, for all positions up to `max_length`.

    They are no weights of the layer: nothing trains or saves them. They stay in variables of their own, so
    that a function which was traced with them sees what `refresh` writes.

    Args:
        layer: A `SyntheticAttention` whose alignment does not depend on the input.
    """

    def __init__(self, layer):
        self.layer = layer
        self.in_use = False
        self.variables = {}

    def refresh(self):
        """Computes the weights, for the ways in which the layer was called: causally or not."""
        for causal in self.layer.called_causally:
            weights = self._compute(causal)
            if causal in self.variables:
                self.variables[causal].assign(weights)
            else:
                self.variables[causal] = keras.Variable(
                    weights, trainable=False, dtype=weights.dtype, name="finished_weights", autocast=False
                )

    def get(self, causal):
        """The variable `(H, N, N)` for attention that is causal or not, or `None`."""
        return self.variables.get(causal) if self.in_use else None

    def _compute(self, causal):
        alignment, length = self.layer.alignment, self.layer.max_length
        # Only its length is read.
        logits = alignment(ops.zeros((1, length, 1)), key_length=length, causal=causal)
        hidden = masks.combine(
            alignment.support(length, length), masks.causal_mask(length, length) if causal else None
        )
        # Numbers that are not normalized yet need the range of float32.
        dtype = "float32" if self.layer.compute_dtype == "float16" else self.layer.compute_dtype
        return ops.cast(raised_softmax(ops.cast(logits, "float32"), hidden), dtype)


@contextlib.contextmanager
def folded(model):
    """A context in which a model computes no attention weights that do not depend on its input.

    They are computed once, on entering, for all layers of `keras_synth` whose alignment is a table of
    weights with a `max_length`. For inference: in training, and where a call asks for scores or has a mask
    that is more than a padding mask, layers compute their weights as ever. `predict` and `generate` of the
    models in `keras_synth.models` do this by themselves, on one device of the TensorFlow backend.

    Args:
        model: A model or layer that has been called, if only symbolically.

    Yields:
        A list of the `keras.Variable`s that hold the weights, each `(H, N, N)`. A SavedModel that is traced
        in the context needs them.

    Example:

    >>> import numpy as np
    >>> from keras_synth.layers import RandomSynthesizer
    >>> layer, x = RandomSynthesizer(num_heads=2, key_dim=4, max_length=16), np.ones((3, 5, 8))
    >>> y = layer(x)
    >>> with folded(layer) as weights:
    ...     bool(np.allclose(layer(x), y, atol=1e-6)), [tuple(w.shape) for w in weights]
    (True, [(2, 16, 16)])
    """
    layers = [model, *model._flatten_layers(include_self=False, recursive=True)]
    finished = [f for f in (getattr(layer, "finished_weights", None) for layer in layers) if f is not None]
    before = [weights.in_use for weights in finished]
    for weights in finished:
        weights.refresh()
        weights.in_use = True
    try:
        yield [variable for weights in finished for variable in weights.variables.values()]
    finally:
        for weights, in_use in zip(finished, before, strict=True):
            weights.in_use = in_use
