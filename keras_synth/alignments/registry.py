"""The one place that turns the name of an alignment into a layer."""

import keras

from keras_synth.alignments.alignment import Alignment
from keras_synth.alignments.appendix import (
    BottleneckAlignment,
    ConvolutionalBottleneckAlignment,
    ConvolutionAlignment,
    GatedLinearAlignment,
)
from keras_synth.alignments.dense import DenseAlignment, FactorizedDenseAlignment
from keras_synth.alignments.dot_product import DotProductAlignment
from keras_synth.alignments.fixed_pattern import FixedPatternAlignment
from keras_synth.alignments.mixture import MixtureAlignment
from keras_synth.alignments.random import FactorizedRandomAlignment, RandomAlignment
from keras_synth.core.initializers import fork

# name: how to make it from num_heads, key_dim, max_length, the arguments that every layer takes, and
# the arguments of its projections.
_ALIGNMENTS = {
    "random": lambda heads, dim, length, layer, dense: RandomAlignment(heads, length, **layer),
    "fixed_random": lambda heads, dim, length, layer, dense: RandomAlignment(
        heads, length, trainable_alignment=False, **layer
    ),
    "factorized_random": lambda heads, dim, length, layer, dense: FactorizedRandomAlignment(
        heads, length, **layer
    ),
    "dense": lambda heads, dim, length, layer, dense: DenseAlignment(heads, dim, length, **layer, **dense),
    "factorized_dense": lambda heads, dim, length, layer, dense: FactorizedDenseAlignment(
        heads, dim, length, **layer, **dense
    ),
    "bottleneck": lambda heads, dim, length, layer, dense: BottleneckAlignment(
        heads, dim, length, **layer, **dense
    ),
    "convolution": lambda heads, dim, length, layer, dense: ConvolutionAlignment(
        heads, dim, length, **layer, **dense
    ),
    "convolutional_bottleneck": lambda heads, dim, length, layer, dense: ConvolutionalBottleneckAlignment(
        heads, dim, length, **layer, **dense
    ),
    "gated_linear": lambda heads, dim, length, layer, dense: GatedLinearAlignment(
        heads, dim, length, **layer, **dense
    ),
    "dot_product": lambda heads, dim, length, layer, dense: DotProductAlignment(
        heads, dim, **layer, **dense
    ),
    "fixed_pattern": lambda heads, dim, length, layer, dense: FixedPatternAlignment(heads, **layer),
}

#: The names that `get` knows.
NAMES = tuple(_ALIGNMENTS)
_ANY_LENGTH = {"dot_product", "fixed_pattern"}


def get(
    identifier: "Alignment | dict | str",
    num_heads: int,
    key_dim: int,
    max_length: int | None = None,
    dtype=None,
    **projection_arguments,
) -> Alignment:
    """Returns the alignment layer that `identifier` stands for.

    Args:
        identifier: An alignment layer, which is returned as it is; the serialized config of one; one
            of the names `"random"`, `"fixed_random"`, `"factorized_random"`, `"dense"`,
            `"factorized_dense"`, `"bottleneck"`, `"convolution"`, `"convolutional_bottleneck"`,
            `"gated_linear"`, `"dot_product"`, `"fixed_pattern"`; or several names joined by `+`, for a
            mixture.
        num_heads: int. The number of attention heads.
        key_dim: int. The width of a head.
        max_length: int. The longest sequence. Needed by every name but `"dot_product"` and
            `"fixed_pattern"`.
        dtype: The dtype policy of an alignment that is made from a name.
        **projection_arguments: `use_bias`, `kernel_initializer` and the like, for the alignments that
            have projections.

    Raises:
        ValueError: If the name is unknown, `max_length` is missing, or the layer has another number of
            heads.

    Example:

    >>> from keras_synth import alignments
    >>> mixture = alignments.get("random+dot_product", num_heads=8, key_dim=64, max_length=256)
    >>> [type(part).__name__ for part in mixture.alignments]
    ['RandomAlignment', 'DotProductAlignment']
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Alignment):
        if identifier.num_heads != num_heads:
            raise ValueError(
                f"{type(identifier).__name__} '{identifier.name}' has "
                f"num_heads={identifier.num_heads}, but the attention has num_heads={num_heads}."
            )
        return identifier
    names = [name.strip() for name in identifier.split("+")] if isinstance(identifier, str) else []
    unknown = [name for name in names if name not in _ALIGNMENTS]
    if unknown or not names:
        raise ValueError(
            "An alignment must be an alignment layer, its config, or one of the names "
            f"{', '.join(map(repr, NAMES))}, or several of them joined by '+'. "
            f"Received: {identifier!r}"
        )
    if max_length is None and not set(names) <= _ANY_LENGTH:
        raise ValueError(f"The alignment {identifier!r} needs `max_length`. Received: max_length=None")
    if len(names) > 1:
        return mixture(names, num_heads, key_dim, max_length, dtype, **projection_arguments)
    return _ALIGNMENTS[names[0]](num_heads, key_dim, max_length, {"dtype": dtype}, projection_arguments)


def mixture(
    identifiers: "list[Alignment | dict | str]",
    num_heads: int,
    key_dim: int,
    max_length: int | None = None,
    dtype=None,
    kernel_initializer="glorot_uniform",
    **projection_arguments,
) -> MixtureAlignment:
    """Returns the mixture of the alignments that the `identifiers` stand for; arguments as in `get`."""
    parts = [
        get(
            identifier,
            num_heads,
            key_dim,
            max_length,
            dtype,
            # Also with a seed, parts of the same kind must not start equal: they would stay so.
            kernel_initializer=fork(kernel_initializer, f"part_{i}"),
            **projection_arguments,
        )
        for i, identifier in enumerate(identifiers)
    ]
    return MixtureAlignment(parts, dtype=dtype)


def serialize(identifier: "keras.layers.Layer | dict | str") -> dict | str:
    """Returns what `get` takes in a form that JSON can hold: a layer becomes its config."""
    if isinstance(identifier, keras.layers.Layer):
        return keras.saving.serialize_keras_object(identifier)
    return identifier
