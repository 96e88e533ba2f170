"""Attention layers with one alignment each: what `SyntheticAttention` does, under the paper's names."""

import keras

from keras_synth import alignments
from keras_synth.alignments.registry import mixture
from keras_synth.core.projections import PROJECTION_ARGUMENTS
from keras_synth.core.serialization import to_plain
from keras_synth.layers.synthetic_attention import SyntheticAttention


@keras.saving.register_keras_serializable("keras_synth")
class RandomSynthesizer(SyntheticAttention):
    """Attention with a table of logits, trained or fixed: `Y = softmax(R) G(X)`.

    The random synthesizer, and with `trainable_alignment=False` the fixed random synthesizer, of
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743). See `keras_synth.alignments.RandomAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        max_length: int. The longest sequence, `N`.
        trainable_alignment: bool. Whether the table is trained. Defaults to `True`.
        alignment_initializer: Initializer of the table. Defaults to `None`, the alignment's own.
        alignment_regularizer: Regularizer of the table. Defaults to `None`.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Example:

    >>> import numpy as np
    >>> RandomSynthesizer(num_heads=2, key_dim=4, max_length=16)(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = (
        "max_length",
        "trainable_alignment",
        "alignment_initializer",
        "alignment_regularizer",
    )

    def __init__(
        self,
        num_heads,
        key_dim,
        max_length,
        trainable_alignment=True,
        alignment_initializer=None,
        alignment_regularizer=None,
        **kwargs,
    ):
        alignment = alignments.RandomAlignment(
            num_heads,
            max_length,
            trainable_alignment,
            alignment_initializer,
            alignment_regularizer,
            dtype=kwargs.get("dtype"),
        )
        super().__init__(num_heads, key_dim, alignment, **kwargs)


@keras.saving.register_keras_serializable("keras_synth")
class FactorizedRandomSynthesizer(SyntheticAttention):
    """Attention with a low-rank table of logits: `Y = softmax(R1 R2^T) G(X)`.

    The factorized random synthesizer of [Tay et al., 2021](https://arxiv.org/abs/2005.00743). See
    `keras_synth.alignments.FactorizedRandomAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        max_length: int. The longest sequence, `N`.
        rank: int. The number of columns of a factor, `k` in the paper. Defaults to `8`.
        trainable_alignment: bool. Whether the factors are trained. Defaults to `True`.
        alignment_initializer: Initializer of the factors. Defaults to `None`, the alignment's own.
        alignment_regularizer: Regularizer of the factors. Defaults to `None`.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Example:

    >>> import numpy as np
    >>> FactorizedRandomSynthesizer(2, 4, max_length=16, rank=3)(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = (
        "max_length",
        "rank",
        "trainable_alignment",
        "alignment_initializer",
        "alignment_regularizer",
    )

    def __init__(
        self,
        num_heads,
        key_dim,
        max_length,
        rank=8,
        trainable_alignment=True,
        alignment_initializer=None,
        alignment_regularizer=None,
        **kwargs,
    ):
        alignment = alignments.FactorizedRandomAlignment(
            num_heads,
            max_length,
            rank,
            trainable_alignment,
            alignment_initializer,
            alignment_regularizer,
            dtype=kwargs.get("dtype"),
        )
        super().__init__(num_heads, key_dim, alignment, **kwargs)


@keras.saving.register_keras_serializable("keras_synth")
class DenseSynthesizer(SyntheticAttention):
    """Attention whose logits each token predicts: `Y = softmax(W2 relu(W1 X + b1) + b2) G(X)`.

    The dense synthesizer of [Tay et al., 2021](https://arxiv.org/abs/2005.00743). See
    `keras_synth.alignments.DenseAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head, also of the hidden layer.
        max_length: int. The longest sequence, `N`.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Example:

    >>> import numpy as np
    >>> DenseSynthesizer(num_heads=2, key_dim=4, max_length=16)(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = ("max_length", "activation")

    def __init__(self, num_heads, key_dim, max_length, activation="relu", **kwargs):
        alignment = alignments.DenseAlignment(num_heads, key_dim, max_length, activation, **_shared(kwargs))
        super().__init__(num_heads, key_dim, alignment, **kwargs)


@keras.saving.register_keras_serializable("keras_synth")
class FactorizedDenseSynthesizer(SyntheticAttention):
    """Attention whose logits each token predicts as two short factors, one tiled, one repeated.

    The factorized dense synthesizer of [Tay et al., 2021](https://arxiv.org/abs/2005.00743). See
    `keras_synth.alignments.FactorizedDenseAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head, also of the hidden layer.
        max_length: int. The longest sequence, `N`.
        factors: A pair of ints whose product is `max_length`. Defaults to the squarest one.
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Example:

    >>> import numpy as np
    >>> FactorizedDenseSynthesizer(2, 4, max_length=16, factors=(2, 8))(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = ("max_length", "factors", "activation")

    def __init__(self, num_heads, key_dim, max_length, factors=None, activation="relu", **kwargs):
        alignment = alignments.FactorizedDenseAlignment(
            num_heads, key_dim, max_length, factors, activation, **_shared(kwargs)
        )
        super().__init__(num_heads, key_dim, alignment, **kwargs)


@keras.saving.register_keras_serializable("keras_synth")
class DotProductAttention(SyntheticAttention):
    """Scaled dot-product attention: `Y = softmax(Q K^T / sqrt(key_dim)) G(X)`.

    What `keras.layers.MultiHeadAttention` computes, for comparisons and for cross-attention. See
    `keras_synth.alignments.DotProductAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Example:

    >>> import numpy as np
    >>> DotProductAttention(num_heads=2, key_dim=4)(np.ones((3, 5, 8)), np.ones((3, 7, 6))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = ()

    def __init__(self, num_heads, key_dim, **kwargs):
        alignment = alignments.DotProductAlignment(num_heads, key_dim, **_shared(kwargs))
        super().__init__(num_heads, key_dim, alignment, **kwargs)

    @property
    def query_dense(self):
        """The projection of queries."""
        return self.alignment.query_dense

    @property
    def key_dense(self):
        """The projection of keys."""
        return self.alignment.key_dense


@keras.saving.register_keras_serializable("keras_synth")
class FixedPatternAttention(SyntheticAttention):
    """Attention whose heads follow patterns made by hand: `Y = P G(X)`.

    The fixed heads of [Raganato et al., 2020](https://arxiv.org/abs/2002.10260). There, seven heads of
    eight are fixed and the last is learned; that is `num_heads=8` with
    `patterns=keras_synth.alignments.PATTERNS`. See `keras_synth.alignments.FixedPatternAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        patterns: A list with the name of a pattern for each head. Heads that are left over are
            dot-product attention. Defaults to the seven patterns of the paper over and over again.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Raises:
        ValueError: If a pattern is unknown, or there are more patterns than heads.

    Example:

    >>> import numpy as np
    >>> layer = FixedPatternAttention(num_heads=3, key_dim=4, patterns=["previous", "next"])
    >>> layer(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = ()

    def __init__(self, num_heads, key_dim, patterns=None, **kwargs):
        fixed = num_heads if not patterns else min(len(patterns), num_heads)
        alignment = alignments.FixedPatternAlignment(fixed, patterns, dtype=kwargs.get("dtype"))
        if fixed < num_heads:
            learned = alignments.DotProductAlignment(num_heads - fixed, key_dim, **_shared(kwargs))
            alignment = alignments.HeadwiseAlignment([alignment, learned], dtype=kwargs.get("dtype"))
        super().__init__(num_heads, key_dim, alignment, **kwargs)
        self.patterns = None if patterns is None else list(patterns)

    def get_config(self):
        return {**super().get_config(), "patterns": to_plain(self.patterns)}


@keras.saving.register_keras_serializable("keras_synth")
class MixtureSynthesizer(SyntheticAttention):
    """Attention with a learned mixture of alignments: `Y = softmax(sum_i alpha_i B_i) G(X)`.

    The mixtures of [Tay et al., 2021](https://arxiv.org/abs/2005.00743), such as random + vanilla. See
    `keras_synth.alignments.MixtureAlignment`.

    Args:
        num_heads: int. The number of attention heads, `H`.
        key_dim: int. The width of a head.
        alignments: A list of at least two alignments: layers, serialized configs or names; or names joined
            by `+`.
        max_length: int. The longest sequence, for alignments given by a name that needs it.
        **kwargs: Keyword arguments of `keras_synth.layers.SyntheticAttention`.

    Example:

    >>> import numpy as np
    >>> layer = MixtureSynthesizer(2, 4, alignments=["random", "dot_product"], max_length=16)
    >>> layer(np.ones((3, 5, 8))).shape
    TensorShape([3, 5, 8])
    """

    alignment_arguments = ("alignments",)

    def __init__(self, num_heads, key_dim, alignments, max_length=None, **kwargs):
        alignment = mixture(alignments, num_heads, key_dim, max_length, **_shared(kwargs))
        super().__init__(num_heads, key_dim, alignment, **kwargs)


def _shared(kwargs):
    """Those arguments of an attention layer that its alignment's projections share."""
    return {name: kwargs[name] for name in (*PROJECTION_ARGUMENTS, "dtype") if name in kwargs}
