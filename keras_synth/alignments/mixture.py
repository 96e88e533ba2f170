"""Learned mixtures of alignments."""

import keras
from keras import ops

from keras_synth.alignments.alignment import Alignment


@keras.saving.register_keras_serializable("keras_synth")
class MixtureAlignment(Alignment):
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

    def __init__(self, alignments, **kwargs):
        parts = [
            keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
            for part in alignments
        ]
        if len(parts) < 2 or not all(isinstance(part, Alignment) for part in parts):
            raise ValueError(
                "`alignments` of MixtureAlignment must be a list of at least two alignment layers. "
                f"Received: alignments={alignments}"
            )
        heads = [part.num_heads for part in parts]
        if len(set(heads)) > 1:
            raise ValueError(
                "All `alignments` of MixtureAlignment must have the same number of heads. "
                f"Received: num_heads={heads}"
            )
        super().__init__(heads[0], **kwargs)
        self.alignments = parts

    @property
    def depends_on_input(self):
        return any(part.depends_on_input for part in self.alignments)

    @property
    def supports_cross_attention(self):
        return all(part.supports_cross_attention for part in self.alignments)

    @property
    def max_length(self):
        return min((p.max_length for p in self.alignments if p.max_length is not None), default=None)

    def build(self, query_shape, key_shape=None):
        for part in self.alignments:
            if not part.built:
                part.build(query_shape, key_shape)
        self.mixture_logits = self.add_weight(
            name="mixture_logits",
            shape=(len(self.alignments), self.num_heads, 1, 1),
            initializer="zeros",
            autocast=False,
        )

    def project_key(self, key):
        return tuple(part.project_key(key) for part in self.alignments)

    def init_cache(self, batch_size, length):
        return tuple(part.init_cache(batch_size, length) for part in self.alignments)

    def call(self, query, keys=None, start_index=0, key_length=None):
        keys = self.project_key(query) if keys is None else keys
        weights = ops.unstack(ops.softmax(self.mixture_logits, axis=0))
        terms = {False: [], True: []}
        for part, part_keys, weight in zip(self.alignments, keys, weights, strict=True):
            logits = part(query, keys=part_keys, start_index=start_index, key_length=key_length)
            terms[part.depends_on_input].append(weight * ops.cast(logits, weight.dtype))
        # What has no batch axis is added up before the rest joins it.
        first, *others = terms[False] + terms[True]
        return sum(others, start=first)

    def get_config(self):
        config = super().get_config()
        del config["num_heads"]
        parts = [keras.saving.serialize_keras_object(part) for part in self.alignments]
        return {**config, "alignments": parts}
