"""The positions of T5: a bias of the logits that depends on the distance alone."""

import math

import keras
from keras import ops

from keras_synth.alignments.distance import DistanceAlignment
from keras_synth.alignments.mixture import CompoundAlignment
from keras_synth.core.checks import check_positive_int


@keras.saving.register_keras_serializable("keras_synth")
class RelativeBiasAlignment(DistanceAlignment):
    """Logits that depend on how far apart two tokens are.

    `B_ij = b[bucket(j - i)]` for each head. Half of the buckets hold one distance each, the others grow
    with the distance, up to `max_distance`, from which on all distances share one. Where attention is
    causal, all buckets are for the past, otherwise half of them. The relative position bias of
    [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), which adds it to other logits; see
    `SumAlignment`. `H * num_buckets` parameters, which start at zero.

    Args:
        num_heads: int. The number of attention heads, `H`.
        num_buckets: int. Defaults to `32`.
        max_distance: int. Defaults to `128`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    >>> import numpy as np
    >>> RelativeBiasAlignment(num_heads=2)(np.zeros((3, 5, 8))).shape
    TensorShape([2, 5, 5])
    """

    formula = "b[j - i]"

    def __init__(self, num_heads, num_buckets=32, max_distance=128, **kwargs):
        super().__init__(num_heads, **kwargs)
        self.num_buckets = check_positive_int(self, "num_buckets", num_buckets)
        self.max_distance = check_positive_int(self, "max_distance", max_distance)

    def build(self, query_shape, keys_shape=None):
        # In float32 under mixed precision, as softmax is.
        self.table = self.add_weight(
            name="table", shape=(self.num_heads, self.num_buckets), initializer="zeros", autocast=False
        )

    def at(self, distance, causal):
        if causal:
            bucket = self._bucket(ops.maximum(-distance, 0), self.num_buckets)
        else:
            half = self.num_buckets // 2
            bucket = self._bucket(ops.abs(distance), half) + ops.where(distance > 0, half, 0)
        return ops.take(self.table, bucket, axis=1)

    def _bucket(self, distance, buckets):
        """The bucket of a distance that is not negative."""
        exact = buckets // 2
        scale = (buckets - exact) / math.log(self.max_distance / exact)
        far = scale * ops.log(ops.cast(ops.maximum(distance, 1), "float32") / exact)
        far = ops.minimum(exact + ops.cast(far, "int32"), buckets - 1)
        return ops.where(distance < exact, distance, far)

    def get_config(self):
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
        }


@keras.saving.register_keras_serializable("keras_synth")
class SumAlignment(CompoundAlignment):
    """A plain sum of alignments: `B = sum_i B_i`, without weights of its own.

    Args:
        alignments: A list of at least two alignment layers, with the same number of heads.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If there are fewer than two parts, or parts with different numbers of heads.

    Example:

    >>> import numpy as np
    >>> from keras_synth.alignments import DotProductAlignment
    >>> parts = [DotProductAlignment(2, key_dim=4), RelativeBiasAlignment(2)]
    >>> SumAlignment(parts)(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    @property
    def formula(self):
        return " + ".join(part.formula for part in self.alignments)

    def join(self, query, logits):
        dtype = keras.backend.result_type(*(part.dtype for part in logits), "float32")
        # What has no batch axis is added up before the rest joins it.
        return sum(ops.cast(part, dtype) for part in sorted(logits, key=lambda part: len(part.shape)))
