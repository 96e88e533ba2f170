"""Alignments that attend to the neighbours of a token alone."""

import keras
from keras import ops

from keras_synth.alignments.alignment import OUTSIDE
from keras_synth.alignments.dense import TokenAlignment, head_dense
from keras_synth.alignments.distance import DistanceAlignment
from keras_synth.core.checks import check_positive_int
from keras_synth.core.slices import place_windows, reach


@keras.saving.register_keras_serializable("keras_synth")
class LocalDenseAlignment(TokenAlignment):
    """A dense synthesizer for texts of any length: each token predicts logits for a window around it.

    `B_t = W2 relu(W1 x_t + b1) + b2` for each head, with `W1` from `D` to `key_dim` and `W2` from `key_dim`
    to the `window` positions that have the token in their middle, or, where attention is causal, at their
    end; of an even number one more is on the right. LDSA,
    [Xu et al., 2020](https://arxiv.org/abs/2010.12155). `D^2 + D window` parameters for
    `D = H * key_dim`, and `D + H window` biases. What the window has outside of the text, or of padding,
    takes no weight. The cost is linear in the length, and decoding keeps the last `window - 1` values. In a
    mixture, what lies outside of the window has a low logit, so that other parts can lead there.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of the hidden layer for each head.
        window: int. The number of positions. Defaults to `15`.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: `use_bias` and the initializers, regularizers and constraints of
            `keras.layers.Dense`, and keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = LocalDenseAlignment(num_heads=2, key_dim=4, window=3)
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    formula = "W2 relu(W1 x) near t"

    def __init__(self, num_heads, key_dim, window=15, activation="relu", **kwargs):
        super().__init__(num_heads, key_dim, activation, **kwargs)
        self.window = check_positive_int(self, "window", window)

    def build(self, query_shape, keys_shape=None):
        super().build(query_shape, keys_shape)
        shape = (self.num_heads, self.key_dim, self.window)
        self.logits_kernel, self.logits_bias = self.add_head_weights("logits", shape)

    def window_logits(self, query, causal, scale=1.0):
        return head_dense(self.hidden(query), self.logits_kernel, self.logits_bias, self.window, scale)

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=1.0
    ):
        _, columns = self._lengths(query, key_length)
        logits = self.window_logits(query, causal, scale)
        first = start_index - reach(self.window, causal)
        return place_windows(logits, first, columns, fill=OUTSIDE)

    def get_config(self):
        return {**super().get_config(), "window": self.window}


@keras.saving.register_keras_serializable("keras_synth")
class GaussianAlignment(DistanceAlignment):
    """Hard-coded attention: a normal density around a position near the token.

    `B_ij = -(j - i - offset)^2 / (2 stddev^2)` for each head, within `window` positions that have the token
    in their middle, or, where attention is causal, at their end.
    [You et al., 2020](https://arxiv.org/abs/2005.00742). `H` parameters, the offsets, which are trained if
    `trainable_alignment`. With a window the cost is linear in the length, and decoding keeps the last
    `window - 1` values.

    Args:
        num_heads: int. The number of attention heads, `H`.
        offsets: A list with a number for each head. Defaults to `-1, 0, 1` over and over again.
        stddev: float. Defaults to `1.0`.
        window: int. The number of positions, or `None` for all. Defaults to `15`, outside of which lie
            weights below `1e-7`, with the other defaults.
        trainable_alignment: bool. Whether the offsets are trained. Defaults to `False`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If there is not one offset for each head, or `stddev` is not positive.

    Example:

    >>> import numpy as np
    >>> alignment = GaussianAlignment(num_heads=1, offsets=[-1])
    >>> alignment(np.zeros((1, 3, 8)))[0].numpy().tolist()
    [[-0.5, -2.0, -4.5], [-0.0, -0.5, -2.0], [-0.5, -0.0, -0.5]]
    """

    formula = "-(j - i - d)^2 / 2 s^2"

    def __init__(self, num_heads, offsets=None, stddev=1.0, window=15, trainable_alignment=False, **kwargs):
        super().__init__(num_heads, **kwargs)
        offsets = [head % 3 - 1 for head in range(num_heads)] if offsets is None else list(offsets)
        if len(offsets) != num_heads or not all(isinstance(offset, (int, float)) for offset in offsets):
            raise ValueError(
                f"`offsets` of {type(self).__name__} '{self.name}' must be a list with a number for each "
                f"of the num_heads={num_heads} heads. Received: offsets={offsets}"
            )
        if isinstance(stddev, bool) or not isinstance(stddev, (int, float)) or stddev <= 0:
            raise ValueError(
                f"`stddev` of {type(self).__name__} '{self.name}' must be a positive number. "
                f"Received: stddev={stddev!r}"
            )
        self.initial_offsets = offsets
        self.stddev = stddev
        self.window = None if window is None else check_positive_int(self, "window", window)
        self.trainable_alignment = trainable_alignment

    def build(self, query_shape, keys_shape=None):
        self.offsets = self.add_weight(
            name="offsets",
            shape=(self.num_heads,),
            initializer=lambda shape, dtype=None: ops.convert_to_tensor(self.initial_offsets, dtype),
            trainable=self.trainable_alignment,
            autocast=False,
        )

    def at(self, distance, causal):
        offsets = ops.expand_dims(self.offsets, 1)
        apart = (ops.cast(distance, offsets.dtype) - offsets) / self.stddev
        logits = -0.5 * ops.square(apart)
        if self.window is None:
            return logits
        first = -reach(self.window, causal)
        inside = ops.logical_and(distance >= first, distance < first + self.window)
        return ops.where(inside, logits, OUTSIDE)

    def get_config(self):
        return {
            **super().get_config(),
            "offsets": list(self.initial_offsets),
            "stddev": self.stddev,
            "window": self.window,
            "trainable_alignment": self.trainable_alignment,
        }
