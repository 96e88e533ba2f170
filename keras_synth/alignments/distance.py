"""Alignments whose logits depend on how far apart two tokens are, and on nothing else."""

import keras
from keras import ops

from keras_synth.alignments.alignment import Alignment
from keras_synth.core.checks import check_positive_int
from keras_synth.core.initializers import fork
from keras_synth.core.slices import reach, toeplitz


class DistanceAlignment(Alignment):
    """Base class: `B_ij = f(j - i)` for each head, with a function `f` that a subclass has in `at`.

    There is no longest sequence.
    """

    reads = "nothing"
    depends_on_input = False

    def at(self, distance, causal):
        """The logits of distances.

        Args:
            distance: int tensor of shape `(n,)`, of `j - i` for a row `i` and a column `j`.
            causal: bool. Whether no row may depend on tokens after its own.

        Returns:
            Tensor of shape `(H, n)`.
        """
        raise NotImplementedError

    def call(self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False):
        rows, columns = self._lengths(query, key_length)
        distance = ops.arange(rows + columns - 1, dtype="int32") - (rows - 1) - start_index
        return toeplitz(self.at(distance, causal), rows, columns)

    def window_logits(self, query, causal):
        distance = ops.arange(self.window, dtype="int32") - reach(self.window, causal)
        return ops.expand_dims(self.at(distance, causal), 1)

    def has_table(self, causal):
        return True


@keras.saving.register_keras_serializable("keras_synth")
class RelativeAlignment(DistanceAlignment):
    """A random synthesizer for texts of any length: a learned table over distances, clipped.

    `B_ij = r[clip(j - i, -max_distance, max_distance)]` for each head: a Toeplitz matrix, as in
    [Qin et al., 2023](https://arxiv.org/abs/2305.04749), of which all distances from `max_distance` on
    share one entry, as in [Shaw et al., 2018](https://arxiv.org/abs/1803.02155).
    `H (2 max_distance + 1)` parameters. `RelativeBiasAlignment` has buckets instead, which grow with the
    distance, and `RelativeKernelAlignment` a sum of Gaussians.

    Args:
        num_heads: int. The number of attention heads, `H`.
        max_distance: int. The distance from which on all share one entry. Defaults to `128`.
        alignment_initializer: Initializer of the table. Defaults to a normal distribution with standard
            deviation 0.1.
        alignment_regularizer: Regularizer of the table. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> RelativeAlignment(num_heads=2)(np.zeros((3, 500, 8))).shape
    TensorShape([2, 500, 500])
    """

    formula = "r[j - i]"

    def __init__(
        self,
        num_heads,
        max_distance=128,
        alignment_initializer=None,
        alignment_regularizer=None,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        self.max_distance = check_positive_int(self, "max_distance", max_distance)
        self.alignment_initializer = keras.initializers.get(alignment_initializer)
        self.alignment_regularizer = keras.regularizers.get(alignment_regularizer)

    def build(self, query_shape, keys_shape=None):
        initializer = self.alignment_initializer or keras.initializers.RandomNormal(stddev=0.1)
        # In float32 under mixed precision, as softmax is.
        self.table = self.add_weight(
            name="table",
            shape=(self.num_heads, 2 * self.max_distance + 1),
            initializer=fork(initializer, "table"),
            regularizer=self.alignment_regularizer,
            autocast=False,
        )

    def at(self, distance, causal):
        clipped = ops.clip(distance, -self.max_distance, self.max_distance)
        return ops.take(self.table, clipped + self.max_distance, axis=1)

    def get_config(self):
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "alignment_initializer": keras.initializers.serialize(self.alignment_initializer),
            "alignment_regularizer": keras.regularizers.serialize(self.alignment_regularizer),
        }


@keras.saving.register_keras_serializable("keras_synth")
class RelativeKernelAlignment(DistanceAlignment):
    """A sum of a few Gaussians over the distance.

    `B_ij = sum_s a_s exp(-|b_s| (j - i - c_s)^2)` for each head. TISA,
    [Wennberg and Henter, 2021](https://arxiv.org/abs/2106.01950). `3 H num_kernels` parameters. That the
    kernels start around distance zero with widths that double from one to the next is our choice.

    Args:
        num_heads: int. The number of attention heads, `H`.
        num_kernels: int. The number of Gaussians of each head. Defaults to `5`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> RelativeKernelAlignment(num_heads=2, num_kernels=3)(np.zeros((3, 5, 8))).shape
    TensorShape([2, 5, 5])
    """

    formula = "sum a exp(-|b| (j - i - c)^2)"

    def __init__(self, num_heads, num_kernels=5, **kwargs):
        super().__init__(num_heads, **kwargs)
        self.num_kernels = check_positive_int(self, "num_kernels", num_kernels)

    def build(self, query_shape, keys_shape=None):
        def widths(shape, dtype=None):
            doubled = 4.0 ** -ops.arange(self.num_kernels, dtype="float32")
            return ops.cast(ops.broadcast_to(0.5 * doubled, shape), dtype)

        self.amplitudes, self.sharpness, self.offsets = (
            self.add_weight(
                name=name,
                shape=(self.num_heads, self.num_kernels),
                initializer=initializer,
                autocast=False,
            )
            for name, initializer in (
                ("amplitudes", keras.initializers.RandomNormal(stddev=0.1)),
                ("sharpness", widths),
                ("offsets", "zeros"),
            )
        )

    def at(self, distance, causal):
        sharpness, offsets = (ops.expand_dims(x, -1) for x in (self.sharpness, self.offsets))
        apart = ops.cast(distance, offsets.dtype) - offsets
        kernels = ops.exp(-ops.abs(sharpness) * ops.square(apart))
        return ops.einsum("hs,hsn->hn", self.amplitudes, kernels)

    def get_config(self):
        return {**super().get_config(), "num_kernels": self.num_kernels}


@keras.saving.register_keras_serializable("keras_synth")
class DecayAlignment(DistanceAlignment):
    """Logits that fall with the distance, by a rate for each head.

    `B_ij = -rate |j - i|`, with `rate = exp(log_rate)`, which starts as the slopes of
    [Press et al., 2021](https://arxiv.org/abs/2108.12409), from `2^(-8 / H)` to `2^-8`. `H` parameters. No
    row looks at the input, so that a running sum computes all of them, at a cost that is linear in the
    length; decoding keeps one vector a head. Dropout of the attention weights takes all of them, `(T, S)`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        trainable_alignment: bool. Whether the rates are trained. Defaults to `True`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> alignment = DecayAlignment(num_heads=2)
    >>> alignment(np.zeros((3, 4, 8)), causal=True)[0, 3].numpy().tolist()
    [-0.1875, -0.125, -0.0625, -0.0]
    """

    formula = "-rate |j - i|"

    def __init__(self, num_heads, trainable_alignment=True, **kwargs):
        super().__init__(num_heads, **kwargs)
        self.trainable_alignment = trainable_alignment

    def build(self, query_shape, keys_shape=None):
        def slopes(shape, dtype=None):
            head = 1.0 + ops.arange(self.num_heads, dtype="float32")
            return ops.cast(-8.0 * head / self.num_heads * ops.log(2.0), dtype)

        self.log_rate = self.add_weight(
            name="log_rate",
            shape=(self.num_heads,),
            initializer=slopes,
            trainable=self.trainable_alignment,
            autocast=False,
        )

    def decay_rates(self):
        return ops.exp(self.log_rate)

    def at(self, distance, causal):
        rates = self.decay_rates()
        return -rates[:, None] * ops.cast(ops.abs(distance), rates.dtype)

    def get_config(self):
        return {**super().get_config(), "trainable_alignment": self.trainable_alignment}


@keras.saving.register_keras_serializable("keras_synth")
class AverageAlignment(DistanceAlignment):
    """All tokens weigh the same: the mean of the tokens so far where attention is causal, or else of all.

    `B_ij = 0`. No parameters. Average attention, [Zhang et al., 2018](https://arxiv.org/abs/1805.00631),
    whose gates are the option `use_attention_gate` of a block. As with `DecayAlignment`, the cost is linear
    in the length, and decoding keeps one vector a head.

    Args:
        num_heads: int. The number of attention heads, `H`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> AverageAlignment(num_heads=2)(np.zeros((3, 5, 8))).shape
    TensorShape([2, 5, 5])
    """

    formula = "0"

    def decay_rates(self):
        return ops.zeros(self.num_heads, keras.backend.result_type(self.compute_dtype, "float32"))

    def at(self, distance, causal):
        return ops.broadcast_to(self.decay_rates()[:, None], (self.num_heads, *ops.shape(distance)))
