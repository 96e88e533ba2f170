"""Transformers to compare synthesizers with, at the same number of parameters."""

from keras_synth.models.backbone import SynthesizerBackbone


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
