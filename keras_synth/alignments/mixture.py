"""Alignments made of other alignments: weighted sums of them, and heads of different kinds."""

import keras
import numpy as np
from keras import ops

from keras_synth.alignments.alignment import Alignment
from keras_synth.core.serialization import serialize_layer

#: What `Alignment.reads` can be, from the narrowest to the widest.
READS = ("nothing", "token", "neighbours", "all tokens")


class CompoundAlignment(Alignment):
    """Base class of the alignments that are made of others.

    Args:
        alignments: A list of at least two alignment layers, or serialized configs of some.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    takes_scale = True

    def __init__(self, alignments, **kwargs):
        parts = [
            keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
            for part in (alignments if isinstance(alignments, (list, tuple)) else ())
        ]
        if len(parts) < 2 or not all(isinstance(part, Alignment) for part in parts):
            raise ValueError(
                f"`alignments` of {type(self).__name__} must be a list of at least two alignment layers. "
                f"Received: alignments={alignments!r}"
            )
        super().__init__(self.count_heads([part.num_heads for part in parts]), **kwargs)
        self.alignments = parts

    def count_heads(self, heads):
        """The number of heads that parts with so many `heads` make together: as many as each has."""
        if len(set(heads)) > 1:
            raise ValueError(
                f"All `alignments` of {type(self).__name__} must have the same number of heads. "
                f"Received: num_heads={heads}"
            )
        return heads[0]

    @property
    def reads(self):
        return max((part.reads for part in self.alignments), key=READS.index)

    @property
    def depends_on_input(self):
        return any(part.depends_on_input for part in self.alignments)

    @property
    def supports_cross_attention(self):
        return all(part.supports_cross_attention for part in self.alignments)

    @property
    def max_length(self):
        return min((p.max_length for p in self.alignments if p.max_length is not None), default=None)

    @property
    def resizes_by_name(self):
        return all(part.resizes_by_name for part in self.alignments)

    def resize(self, max_length):
        parts = [part.resize(max_length) for part in self.alignments]
        return self.from_config({**self.get_config(), "alignments": parts})

    def has_table(self, causal):
        return all(part.has_table(causal) for part in self.alignments)

    def build(self, query_shape, keys_shape=None):
        for part in self.alignments:
            if not part.built:
                part.build(query_shape, keys_shape)

    def project_key(self, key, query=None):
        return tuple(part.project_key(key, query) for part in self.alignments)

    def init_cache(self, batch_size, length):
        return tuple(part.init_cache(batch_size, length) for part in self.alignments)

    def call(
        self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False, scale=None
    ):
        keys = self.project_key(query) if keys is None else keys
        arguments = dict(start_index=start_index, key_length=key_length, key_mask=key_mask, causal=causal)
        logits = [
            _scale_logits(part, part_scale, query, keys=part_keys, **arguments)
            for part, part_scale, part_keys in zip(
                self.alignments, self.scale_parts(scale), keys, strict=True
            )
        ]
        return self.join(query, logits)

    def scale_parts(self, scale):
        """What the logits of each part are multiplied by, where those of the whole are by `scale`."""
        return [scale] * len(self.alignments)

    def join(self, query, logits):
        """Makes one tensor of the `logits` of the parts, a list of `(H, T, S)` and `(batch, H, T, S)`."""
        raise NotImplementedError

    def get_config(self):
        config = super().get_config()
        del config["num_heads"]
        parts = [serialize_layer(part) for part in self.alignments]
        return {**config, "alignments": parts}


@keras.saving.register_keras_serializable("keras_synth")
class MixtureAlignment(CompoundAlignment):
    """A weighted sum of alignments, with weights that each head learns.

    `B = sum_i alpha_i B_i`, where `alpha` is the softmax of a learned vector for each head, so that
    the weights of a head sum to one for any number of parts. They start equal. Section 3.1.4 of
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743). The parameters of the parts, and `H` for
    each part. What does not depend on the input is added up once, before the rest.

    Args:
        alignments: A list of at least two alignment layers, with the same number of heads. A part may
            be a mixture itself.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If there are fewer than two parts, or parts with different numbers of heads.

    Example:

    >>> import numpy as np
    >>> from keras_synth.alignments import DotProductAlignment, RandomAlignment
    >>> parts = [RandomAlignment(2, max_length=16), DotProductAlignment(2, key_dim=4)]
    >>> MixtureAlignment(parts)(np.zeros((3, 5, 8))).shape
    TensorShape([3, 2, 5, 5])
    """

    @property
    def formula(self):
        return " + ".join(f"a{i} [{part.formula}]" for i, part in enumerate(self.alignments, 1))

    def build(self, query_shape, keys_shape=None):
        super().build(query_shape, keys_shape)
        self.mixture_logits = self.add_weight(
            name="mixture_logits",
            shape=(len(self.alignments), self.num_heads, 1, 1),
            initializer="zeros",
            autocast=False,
        )

    def scale_parts(self, scale):
        weights = ops.softmax(self.mixture_logits, axis=0)
        weights = weights if scale is None else weights * ops.cast(scale, weights.dtype)
        return [weights[i] for i in range(len(self.alignments))]

    def join(self, query, logits):
        # What has no batch axis is added up before the rest joins it.
        first, *others = sorted(logits, key=lambda part: len(part.shape))
        return sum(others, start=first)


@keras.saving.register_keras_serializable("keras_synth")
class HeadwiseAlignment(CompoundAlignment):
    """Heads of different kinds, side by side: the first heads are those of the first alignment.

    `B_h` is that of the part that head `h` belongs to. Such as the fixed heads beside a learned one of
    [Raganato et al., 2020](https://arxiv.org/abs/2002.10260). The parameters of the parts.

    Args:
        alignments: A list of at least two alignment layers. They have as many heads together as the
            attention has.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If there are fewer than two parts.

    Example:

    >>> import numpy as np
    >>> from keras_synth.alignments import DotProductAlignment, FixedPatternAlignment
    >>> alignment = HeadwiseAlignment([FixedPatternAlignment(7), DotProductAlignment(1, key_dim=4)])
    >>> alignment(np.zeros((3, 5, 8))).shape
    TensorShape([3, 8, 5, 5])
    """

    def count_heads(self, heads):
        return sum(heads)

    @property
    def formula(self):
        return "; ".join(f"{part.num_heads} x [{part.formula}]" for part in self.alignments)

    def support(self, query_length, key_length, start_index=0, causal=False):
        supports = [part.support(query_length, key_length, start_index, causal) for part in self.alignments]
        if all(support is None for support in supports):
            return None
        everywhere = [
            ops.ones((part.num_heads, query_length, key_length), dtype="bool")
            if support is None
            else support
            for part, support in zip(self.alignments, supports, strict=True)
        ]
        return ops.concatenate(everywhere, axis=0)

    def scale_parts(self, scale):
        if scale is None:
            return super().scale_parts(scale)
        ends = np.cumsum([part.num_heads for part in self.alignments])
        return [scale[end - part.num_heads : end] for part, end in zip(self.alignments, ends, strict=True)]

    def join(self, query, logits):
        dtype = keras.backend.result_type(*(part.dtype for part in logits))
        if any(len(part.shape) == 4 for part in logits):
            batch = ops.shape(query)[0]
            logits = [ops.broadcast_to(part, (batch, *ops.shape(part)[-3:])) for part in logits]
        return ops.concatenate([ops.cast(part, dtype) for part in logits], axis=-3)


def _scale_logits(alignment, scale, query, **arguments):
    """The logits of an alignment times a scale, which may be `None`."""
    if scale is None:
        return alignment(query, **arguments)
    if alignment.takes_scale:
        return ops.cast(alignment(query, scale=scale, **arguments), scale.dtype)
    return scale * ops.cast(alignment(query, **arguments), scale.dtype)
