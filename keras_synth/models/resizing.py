"""Models for longer or shorter sequences than they were trained with."""

import keras
import keras_hub

from keras_synth import alignments
from keras_synth.models.backbone import SynthesizerBackbone, check_positive_int
from keras_synth.models.sequence_length import LENGTHS


def resize(model: keras.Model, max_length: int) -> keras.Model:
    """Returns a copy of a trained model that takes sequences of another length.

    Every table over positions is cropped or extended at its end: those of the random and dense
    synthesizers, learned positions, and the projections of linear attention. What is new in a larger table
    is drawn by the table's initializer, as in a new model. All other weights are copied. So the copy
    computes what the model computes, for sequences that both can take; for longer ones it should be
    trained further. The factors `(a, b)` of a factorized dense alignment become
    `(a, max_length / a)`.

    The copy of a task is compiled as a new task is. Its preprocessor has the tokenizer of the old one, and
    sequence lengths that are cut to `max_length`.

    Args:
        model: A backbone or a task of `keras_synth.models`. It stays as it is.
        max_length: int. The longest sequence of the copy.

    Returns:
        A model of the same class.

    Raises:
        ValueError: If `max_length` is not a positive integer, or not a multiple of the first factor of a
            factorized dense alignment, or `model` is another model.

    Example:

    >>> from keras_synth.models import SynthesizerEncoderBackbone
    >>> backbone = SynthesizerEncoderBackbone(
    ...     vocabulary_size=100, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=64,
    ... )
    >>> resize(backbone, 128).max_length
    128
    """
    check_positive_int("max_length", max_length)
    is_task = isinstance(model, keras_hub.models.Task)
    backbone = model.backbone if is_task else model
    if not isinstance(backbone, SynthesizerBackbone):
        raise ValueError(
            f"`model` must be a backbone or a task of `keras_synth.models`. Received: model={model!r}"
        )
    copy = type(backbone).from_config(_resized_config(backbone, max_length))
    if is_task:
        config = {
            **model.get_config(),
            "backbone": copy,
            "preprocessor": _resized_preprocessor(model.preprocessor, max_length),
        }
        copy = type(model).from_config(config)
    for old, new in zip(model.weights, copy.weights, strict=True):
        _copy_corner(old, new)
    return copy


def _resized_config(backbone, max_length):
    config = {**backbone.get_config(), "max_length": max_length}
    for side, name in (("encoder", "attention"), ("decoder", "decoder_attention")):
        name = name if name in config else "attention"
        blocks = getattr(backbone, f"{side}_layers", None)
        if blocks is not None:
            config[name] = [_resized_spec(block, max_length) for block in blocks]
    return config


def _resized_spec(block, max_length):
    """The spec of a block's attention, with another `max_length`."""
    spec = block.attention
    if isinstance(spec, str) and "factorized_dense" in spec:
        # By name it would get other factors, and then columns of other meanings.
        alignment = block.self_attention.alignment
        spec = alignments.serialize(alignment.alignments[0] if block.relative_bias else alignment)
    return _with_length(spec, max_length)


def _with_length(config, max_length):
    """A copy of a serialized layer in which every `max_length` is another."""
    if isinstance(config, (list, tuple)):
        return [_with_length(item, max_length) for item in config]
    if not isinstance(config, dict):
        return config
    resized = {key: _with_length(value, max_length) for key, value in config.items()}
    if "max_length" in resized:
        resized["max_length"] = max_length
    if "factors" in resized:
        first = resized["factors"][0]
        if max_length % first:
            raise ValueError(
                f"`max_length` must be a multiple of {first}, the first factor of a factorized dense "
                f"alignment. Received: max_length={max_length}"
            )
        resized["factors"] = [first, max_length // first]
    return resized


def _resized_preprocessor(preprocessor, max_length):
    if preprocessor is None:
        return None
    config = preprocessor.get_config()
    for name in LENGTHS:
        if name in config:
            config[name] = min(config[name], max_length)
    # The tokenizer itself, because its config is without its vocabulary.
    return type(preprocessor).from_config({**config, "tokenizer": preprocessor.tokenizer})


def _copy_corner(old, new):
    """Copies what two variables have in common: the positions from 0 on."""
    corner = tuple(slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True))
    value = keras.ops.convert_to_numpy(new.value).copy()
    value[corner] = keras.ops.convert_to_numpy(old.value)[corner]
    new.assign(value)
