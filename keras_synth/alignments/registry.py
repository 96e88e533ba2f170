"""The one place that turns the name of an alignment into a layer."""

import functools

import keras

from keras_synth.alignments.alignment import Alignment
from keras_synth.alignments.appendix import (
    BottleneckAlignment,
    ConvolutionalBottleneckAlignment,
    ConvolutionAlignment,
    GatedLinearAlignment,
)
from keras_synth.alignments.dense import DenseAlignment, FactorizedDenseAlignment
from keras_synth.alignments.distance import AverageAlignment, DecayAlignment, RelativeAlignment
from keras_synth.alignments.dot_product import DotProductAlignment
from keras_synth.alignments.fixed_pattern import FixedPatternAlignment
from keras_synth.alignments.mixture import MixtureAlignment
from keras_synth.alignments.random import FactorizedRandomAlignment, RandomAlignment, RoutedRandomAlignment
from keras_synth.alignments.window import GaussianAlignment, LocalDenseAlignment
from keras_synth.core.checks import check_positive_int
from keras_synth.core.initializers import fork
from keras_synth.core.signatures import parameters, requires


class Registry:
    """Layers that have names, and the check of what may stand for one of them.

    What a layer takes, and whether it needs `max_length`, follows from the constructor of its class.

    Args:
        table: A dict from names to classes; a class with an argument set is a `functools.partial` of it.
        bases: A tuple of the classes of the layers that may be given instead of a name.
    """

    def __init__(self, table, bases):
        self.table = table
        self.bases = bases
        #: The names, in the order of the table.
        self.names = tuple(table)

    def check(self, identifier, num_heads, max_length=None):
        """Checks what is to become a layer. Builds nothing.

        Args:
            identifier: A layer, the serialized config of one, a name, or names of alignments joined by `+`.
            num_heads: int. The number of attention heads.
            max_length: int. The longest sequence, for names that need it.

        Raises:
            ValueError: If there is no such name, `max_length` is missing, or the layer has another number
                of heads.
        """
        if isinstance(identifier, dict):
            identifier = keras.saving.deserialize_keras_object(identifier)
        if isinstance(identifier, self.bases):
            if identifier.num_heads != num_heads:
                raise ValueError(
                    f"{type(identifier).__name__} '{identifier.name}' has "
                    f"num_heads={identifier.num_heads}, but the attention has num_heads={num_heads}."
                )
            return
        names = split(identifier) if isinstance(identifier, str) else []
        known = [n for n in self.table if len(names) == 1 or issubclass(self._class(n), Alignment)]
        if not names or not set(names) <= set(known):
            raise ValueError(
                f"The attention must be an {' or '.join(base.__name__ for base in self.bases)} layer, its "
                f"config, one of the names {', '.join(map(repr, self.names))}, or several alignments "
                f"joined by '+'. Received: {identifier!r}"
            )
        for cls in map(self._class, names):
            if requires(cls, "max_length"):
                if max_length is None:
                    raise ValueError(
                        f"{identifier!r} needs `max_length`, which must be a positive integer. "
                        "Received: max_length=None"
                    )
                check_positive_int(cls, "max_length", max_length)

    def make(self, name, /, **arguments):
        """Makes the layer that has this name, with those of the `arguments` that its class takes."""
        taken = parameters(self._class(name))
        unknown = set(arguments) - set().union(*(parameters(self._class(other)) for other in self.table))
        if unknown:
            raise ValueError(
                f"No layer takes an argument {', '.join(map(repr, sorted(unknown)))}. "
                f"Received: {name!r} with {arguments}"
            )
        return self.table[name](**{key: arguments[key] for key in arguments if key in taken})

    def _class(self, name):
        entry = self.table[name]
        return entry.func if isinstance(entry, functools.partial) else entry


#: The alignments that have names.
ALIGNMENTS = Registry(
    {
        "random": RandomAlignment,
        "fixed_random": functools.partial(RandomAlignment, trainable_alignment=False),
        "factorized_random": FactorizedRandomAlignment,
        "dense": DenseAlignment,
        "factorized_dense": FactorizedDenseAlignment,
        "bottleneck": BottleneckAlignment,
        "convolution": ConvolutionAlignment,
        "convolutional_bottleneck": ConvolutionalBottleneckAlignment,
        "gated_linear": GatedLinearAlignment,
        "dot_product": DotProductAlignment,
        "fixed_pattern": FixedPatternAlignment,
        "local_dense": LocalDenseAlignment,
        "relative": RelativeAlignment,
        "decay": DecayAlignment,
        "average": AverageAlignment,
        "gaussian": GaussianAlignment,
        "routed_random": RoutedRandomAlignment,
    },
    bases=(Alignment,),
)

#: The names that `get` knows.
NAMES = ALIGNMENTS.names


def get(
    identifier: "Alignment | dict | str",
    num_heads: int,
    key_dim: int,
    max_length: int | None = None,
    dtype=None,
    **arguments,
) -> Alignment:
    """Returns the alignment layer that `identifier` stands for.

    Args:
        identifier: An alignment layer, which is returned as it is; the serialized config of one; one
            of the names `"random"`, `"fixed_random"`, `"factorized_random"`, `"dense"`,
            `"factorized_dense"`, `"bottleneck"`, `"convolution"`, `"convolutional_bottleneck"`,
            `"gated_linear"`, `"dot_product"`, `"fixed_pattern"`, `"local_dense"`, `"relative"`, `"decay"`,
            `"average"`, `"gaussian"`, `"routed_random"`; or several names joined by `+`, for a mixture.
        num_heads: int. The number of attention heads.
        key_dim: int. The width of a head.
        max_length: int. The longest sequence, for the names that stand for weights for each position: those
            of the random and dense synthesizers and their variants, but for `"local_dense"`.
        dtype: The dtype policy of an alignment that is made from a name.
        **arguments: `use_bias`, `kernel_initializer` and the like, for those of the named alignments that
            take them.

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
    ALIGNMENTS.check(identifier, num_heads, max_length)
    if isinstance(identifier, Alignment):
        return identifier
    sizes = {"num_heads": num_heads, "key_dim": key_dim, "max_length": max_length, "dtype": dtype}
    names = split(identifier)
    if len(names) > 1:
        return mixture(names, **sizes, **arguments)
    return ALIGNMENTS.make(names[0], **sizes, **arguments)


def mixture(
    identifiers: "list[Alignment | dict | str] | str",
    num_heads: int,
    key_dim: int,
    max_length: int | None = None,
    dtype=None,
    kernel_initializer="glorot_uniform",
    **arguments,
) -> MixtureAlignment:
    """Returns the mixture of the alignments that the `identifiers` stand for; arguments as in `get`."""
    if isinstance(identifiers, str):
        identifiers = split(identifiers)
    if not isinstance(identifiers, (list, tuple)):
        return MixtureAlignment(identifiers)
    parts = [
        get(
            identifier,
            num_heads,
            key_dim,
            max_length,
            dtype,
            # Also with a seed, parts of the same kind must not start equal: they would stay so.
            kernel_initializer=fork(kernel_initializer, f"part_{i}"),
            **arguments,
        )
        for i, identifier in enumerate(identifiers)
    ]
    return MixtureAlignment(parts, dtype=dtype)


def split(names):
    """The names in `names`, which are joined by `+`."""
    return [name.strip() for name in names.split("+")]


def serialize(identifier: "keras.layers.Layer | dict | str") -> dict | str:
    """Returns what `get` takes in a form that JSON can hold: a layer becomes its config."""
    if isinstance(identifier, keras.layers.Layer):
        return keras.saving.serialize_keras_object(identifier)
    return identifier
