"""Models that are made of other models: for sequences of another length, and to compare with."""

import keras
import keras_hub

from keras_synth.core.checks import check_positive_int
from keras_synth.models.backbone import SynthesizerBackbone
from keras_synth.models.preprocessors import LENGTHS


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
    check_positive_int(resize, "max_length", max_length)
    is_task = isinstance(model, keras_hub.models.Task)
    backbone = model.backbone if is_task else model
    if not isinstance(backbone, SynthesizerBackbone):
        raise ValueError(
            f"`model` must be a backbone or a task of `keras_synth.models`. Received: model={model!r}"
        )
    copy = type(backbone).from_config(_resize_config(backbone, max_length))
    if is_task:
        config = {
            **model.get_config(),
            "backbone": copy,
            "preprocessor": _resize_preprocessor(model.preprocessor, max_length),
        }
        copy = type(model).from_config(config)
    for old, new in zip(model.weights, copy.weights, strict=True):
        _copy_corner(old, new)
    return copy


def _resize_config(backbone, max_length):
    config = {**backbone.get_config(), "max_length": max_length}
    for side, name in (("encoder", "attention"), ("decoder", "decoder_attention")):
        blocks = getattr(backbone, f"{side}_layers", ())
        if blocks:
            config[name if name in config else "attention"] = [
                block.resize_attention(max_length) for block in blocks
            ]
    return config


def _resize_preprocessor(preprocessor, max_length):
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


def control(backbone: SynthesizerBackbone) -> SynthesizerBackbone:
    """Makes the control of a model: dot-product attention, and as many parameters as the model has.

    What the alignments of the model have more, or less, goes to the width of the feed-forward networks,
    as in the "control" Transformers of [Tay et al., 2021](https://arxiv.org/abs/2005.00743). All else is
    the same, but the weights are new.

    Args:
        backbone: A backbone of `keras_synth.models`.

    Returns:
        A backbone of the same class. Its number of parameters, trained or not, differs by less than that
        of one unit in each feed-forward network.

    Example:

    >>> from keras_synth.models import SynthesizerEncoderBackbone
    >>> model = SynthesizerEncoderBackbone(
    ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
    ...     max_length=32, attention="random+dot_product",
    ... )
    >>> control(model).intermediate_dim
    94
    """
    config = {**backbone.get_config(), "attention": "dot_product"}
    if "decoder_attention" in config:
        config["decoder_attention"] = "dot_product"
    del config["name"]

    def make(intermediate_dim):
        return type(backbone).from_config({**config, "intermediate_dim": intermediate_dim})

    width = backbone.intermediate_dim
    same_width = make(width).count_params()
    of_one_unit = make(width + 1).count_params() - same_width
    return make(width + round((backbone.count_params() - same_width) / of_one_unit))
