"""What the alignments of a model are, as a table."""

import dataclasses
import math

import keras

from keras_synth.alignments.alignment import Alignment

#: The bytes of an entry.
_BYTES = {"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclasses.dataclass(frozen=True)
class Description:
    """One alignment, in the terms of the paper's Table 1.

    Args:
        path: The path of the layer in its model.
        alignment: The name of its class.
        formula: How it makes the logits.
        trained: The number of its trained parameters.
        fixed: The number of its parameters that are not trained.
        reads: What a row of logits is made from: `"nothing"`, its own `"token"`, that and its
            `"neighbours"`, or `"all tokens"`.
        sample: `"local"` if each example has logits of its own, `"global"` if all share the same.
        interacts: Whether logits come from several tokens together.
        cache: The bytes of the cache of one text in decoding that are there for any length, and of which
            each token adds some, as `"1024"` or `"128 a token"`: of the values and keys where the alignment
            is that of an attention layer, else of the keys alone.
    """

    path: str
    alignment: str
    formula: str
    trained: int
    fixed: int
    reads: str
    sample: str
    interacts: bool
    cache: str


class Table(list):
    """A list of dataclass instances that prints as a table."""

    def __str__(self):
        if not self:
            return "no alignments"
        names = [field.name for field in dataclasses.fields(self[0])]
        lines = [names, *(list(map(_show, dataclasses.astuple(row))) for row in self)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def describe(layer: keras.layers.Layer) -> Table:
    """Lists the alignments in a model or layer: what they are, what they see, and what they cost.

    An alignment that is made of others, such as a mixture, is one row, with the parameters of all. The
    numbers are those of the weights that are there.

    Args:
        layer: A model, or any built layer. Layers that are not attention are passed over.

    Returns:
        A list of `Description`, which prints as a table.

    Raises:
        ValueError: If an alignment has no weights yet, because it is not built.

    Example:

    >>> import keras
    >>> from keras_synth.layers import DotProductAttention, RandomSynthesizer
    >>> x = keras.Input((None, 8))
    >>> y = DotProductAttention(2, 4, name="dot")(RandomSynthesizer(2, 4, 16, name="random")(x))
    >>> table = describe(keras.Model(x, y))
    >>> [(row.formula, row.trained, row.interacts) for row in table]
    [('R', 512, False), ('Q K^T / sqrt(key_dim)', 144, True)]
    """
    return Table(_describe(*found) for found in _alignments(layer, seen=set()))


def _alignments(layer, seen):
    """The outermost alignments in a layer, each once, in their order, and what has the cache of each."""
    if id(layer) in seen:
        return
    seen.add(id(layer))
    if isinstance(layer, Alignment):
        yield layer, layer
    elif isinstance(getattr(layer, "alignment", None), Alignment):
        for alignment, _ in _alignments(layer.alignment, seen):
            yield alignment, layer
    else:
        for sublayer in layer._flatten_layers(include_self=False, recursive=False):
            yield from _alignments(sublayer, seen)


def _describe(alignment, layer):
    if not alignment.built:
        raise ValueError(
            f"{type(alignment).__name__} '{alignment.name}' has no weights yet. Build its model or call "
            "it once before `describe`."
        )
    return Description(
        path=alignment.path,
        alignment=type(alignment).__name__,
        formula=alignment.formula,
        trained=_count(alignment.trainable_weights),
        fixed=_count(alignment.non_trainable_weights),
        reads=alignment.reads,
        sample="local" if alignment.depends_on_input else "global",
        interacts=alignment.reads in ("neighbours", "all tokens"),
        cache=_measure_cache(layer),
    )


def _measure_cache(layer):
    one, two = (
        sum(
            math.prod(tensor.shape) * _BYTES[keras.backend.standardize_dtype(tensor.dtype)]
            for tensor in keras.tree.flatten(layer.init_cache(1, length))
        )
        for length in (1, 2)
    )
    return f"{two - one} a token" if two > one else str(one)


def _count(weights):
    return sum(math.prod(weight.shape) for weight in weights)


def _show(value):
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
