import pytest

from keras_synth.models import (
    SynthesizerDecoderBackbone,
    SynthesizerEncoderBackbone,
    SynthesizerEncoderDecoderBackbone,
    control,
)

SIZES = dict(
    vocabulary_size=29, num_layers=2, num_heads=2, hidden_dim=14, intermediate_dim=19, max_length=13
)


@pytest.mark.parametrize("attention", ["random+dot_product", "dense", "dot_product"])
@pytest.mark.parametrize(
    "cls",
    [SynthesizerEncoderBackbone, SynthesizerDecoderBackbone, SynthesizerEncoderDecoderBackbone],
)
def test_the_control_has_as_many_parameters_and_dot_products(cls, attention):
    model = cls(**SIZES, attention=attention)
    same = control(model)
    assert type(same) is cls
    assert set(same.attention) == {"dot_product"}
    blocks = 2 * SIZES["num_layers"] if cls is SynthesizerEncoderDecoderBackbone else SIZES["num_layers"]
    of_one_unit = blocks * (2 * SIZES["hidden_dim"] + 1)
    assert abs(same.count_params() - model.count_params()) <= of_one_unit / 2
    assert same.hidden_dim == model.hidden_dim and same.max_length == model.max_length
