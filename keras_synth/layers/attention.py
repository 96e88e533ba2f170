"""The one place that turns what a block's `attention` says into a layer."""

import keras

from keras_synth import alignments
from keras_synth.alignments.registry import ALIGNMENTS, Registry
from keras_synth.core.checks import check_positive_int
from keras_synth.core.projections import PROJECTION_ARGUMENTS
from keras_synth.layers.baselines import DynamicConvolution, LightweightConvolution, LinearAttention
from keras_synth.layers.baselines.baseline import Baseline
from keras_synth.layers.synthetic_attention import SyntheticAttention

_BASELINES = Registry(
    {
        "lightweight_convolution": LightweightConvolution,
        "dynamic_convolution": DynamicConvolution,
        "linear": LinearAttention,
    },
    bases=(Baseline,),
)
_ALL = Registry({**ALIGNMENTS.table, **_BASELINES.table}, bases=(*ALIGNMENTS.bases, *_BASELINES.bases))

#: The names that `attention` of a block may be; those of alignments may also be joined by `+`.
ATTENTIONS = _ALL.names


def check_attention(
    attention: "keras.layers.Layer | dict | str",
    num_heads: int,
    max_length: int | None = None,
    relative_bias: "alignments.Alignment | None" = None,
    use_causal_mask: bool = False,
) -> None:
    """Checks what is to be the `attention` of a block, and builds nothing.

    Args:
        attention: As in `keras_synth.layers.SynthesizerBlock`.
        num_heads: int. The number of attention heads.
        max_length: int. The longest sequence, for an `attention` given by a name that needs it.
        relative_bias: An alignment that is to be added to the logits. Defaults to `None`.
        use_causal_mask: bool. Whether it is to be causal, as in a decoder. Defaults to `False`.

    Raises:
        ValueError: If the name is unknown, `max_length` is missing, a layer has another number of heads,
            there are no logits to add a `relative_bias` to, or it cannot be causal.

    Example:

    >>> check_attention("random+dot_product", num_heads=2, max_length=16)
    >>> check_attention("random", num_heads=2)
    Traceback (most recent call last):
        ...
    ValueError: 'random' needs `max_length`, which must be a positive integer. Received: max_length=None
    """
    check_positive_int(check_attention, "num_heads", num_heads)
    if isinstance(attention, dict):
        attention = keras.saving.deserialize_keras_object(attention)
    _ALL.check(attention, num_heads, max_length)
    if relative_bias is not None:
        # A baseline is refused, because it has no logits.
        ALIGNMENTS.check(attention, num_heads, max_length)
        if not isinstance(relative_bias, alignments.Alignment):
            raise ValueError(
                f"`relative_bias` must be an alignment layer. Received: relative_bias={relative_bias!r}"
            )
        ALIGNMENTS.check(relative_bias, num_heads)
    cls = _BASELINES.table.get(attention.strip()) if isinstance(attention, str) else type(attention)
    if use_causal_mask and not getattr(cls, "supports_causal_mask", True):
        raise ValueError(f"{cls.__name__} cannot be causal. Received: attention={attention!r}")


def make_self_attention(num_heads, key_dim, attention, max_length=None, relative_bias=None, **kwargs):
    """Makes the self-attention layer of a block.

    Args:
        num_heads: int. The number of attention heads.
        key_dim: int. The width of a head.
        attention: The name of a baseline; a baseline or the serialized config of one, which is taken as it
            is; or else the alignment of a `keras_synth.layers.SyntheticAttention`.
        max_length: int. The longest sequence.
        relative_bias: An alignment that is added to the logits. Defaults to `None`.
        **kwargs: Keyword arguments of the layer.

    Raises:
        ValueError: As `check_attention`.
    """
    if isinstance(attention, dict):
        attention = keras.saving.deserialize_keras_object(attention)
    check_attention(attention, num_heads, max_length, relative_bias)
    if isinstance(attention, Baseline):
        return attention
    if isinstance(attention, str) and attention.strip() in _BASELINES.names:
        sizes = {"num_heads": num_heads, "key_dim": key_dim, "max_length": max_length}
        return _BASELINES.make(attention.strip(), **sizes, **kwargs)
    if relative_bias is not None:
        dtype = kwargs.get("dtype")
        arguments = {name: kwargs[name] for name in PROJECTION_ARGUMENTS if name in kwargs}
        attention = alignments.get(attention, num_heads, key_dim, max_length, dtype, **arguments)
        attention = alignments.SumAlignment([attention, relative_bias], dtype=dtype)
    return SyntheticAttention(num_heads, key_dim, attention, max_length=max_length, **kwargs)


def resize_attention(attention, layer, max_length, relative_bias=None):
    """Returns what to say instead of `attention` for sequences of another length.

    Args:
        attention: What the `layer` was made from: a name or a serialized config.
        layer: What `make_self_attention` made of it.
        max_length: int. The longest sequence.
        relative_bias: As in `make_self_attention`.

    Raises:
        ValueError: If the layer cannot have this `max_length`.
    """
    if not isinstance(layer, Baseline):
        layer = layer.alignment if relative_bias is None else layer.alignment.alignments[0]
    if isinstance(attention, str) and layer.resizes_by_name:
        return attention
    return alignments.serialize(layer.resize(max_length))
