"""Weight decay leaves out norms, biases and the weights of mixtures."""

import keras
import numpy as np
import pytest
from tiny import BOTH, SIZES

from keras_synth.training import Adafactor, AdamW, decays


def names(variables):
    return {variable.path.split("/")[-1] for variable in variables}


@pytest.mark.parametrize(
    "options",
    [
        dict(attention="random+dense+dot_product"),
        dict(attention=["factorized_random+factorized_dense"], normalization="rms_norm"),
        dict(attention="dot_product", positions="relative_bias"),
    ],
)
def test_which_weights_decay(options):
    backbone = BOTH(**{**SIZES, **options})
    undecayed = [variable for variable in backbone.trainable_variables if not decays(variable)]
    for variable in backbone.trainable_variables:
        kind = variable.path.split("/")[-1]
        expected = kind.endswith("bias") or kind in ("gamma", "beta", "scale", "mixture_logits")
        assert decays(variable) != (expected or "relative_bias" in variable.path), variable.path
    assert names(undecayed) >= {"bias"}
    assert ("mixture_logits" in names(undecayed)) == ("+" in str(options["attention"]))
    assert ("table" in names(undecayed)) == ("positions" in options)


@pytest.mark.parametrize("cls", [AdamW, Adafactor])
def test_without_a_gradient_there_is_decay_alone(cls):
    dense = keras.layers.Dense(2, bias_initializer="ones")
    model = keras.Sequential([keras.Input((3,)), dense, keras.layers.LayerNormalization()])
    kernel, *others = model.get_weights()
    optimizer = cls(learning_rate=0.1, weight_decay=0.5)
    optimizer.build(model.trainable_variables)
    optimizer.apply([np.zeros(weight.shape, "float32") for weight in model.trainable_variables])
    decayed, *kept = model.get_weights()
    np.testing.assert_allclose(decayed, kernel * (1 - 0.1 * 0.5), rtol=1e-6)
    for before, after in zip(others, kept, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("cls", [AdamW, Adafactor])
def test_otherwise_it_is_the_optimizer_of_keras(cls):
    weights = []
    for optimizer in (cls, getattr(keras.optimizers, cls.__name__)):
        optimizer = optimizer(0.1, weight_decay=0.5)
        kernel = keras.Variable([[1.0, 2.0], [3.0, 4.0]], name="kernel")
        optimizer.build([kernel])
        for _ in range(3):
            optimizer.apply([np.array([[0.1, -0.2], [0.0, 0.5]], "float32")])
        weights.append(kernel.numpy())
    np.testing.assert_array_equal(*weights)


@pytest.mark.parametrize("cls", [AdamW, Adafactor])
def test_it_holds_after_loading(cls, tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, bias_initializer="ones")])
    model.compile(cls(0.1, weight_decay=0.5), "mse")
    model.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is cls
    assert type(keras.optimizers.deserialize(keras.optimizers.serialize(loaded.optimizer))) is cls
    for each in (model, loaded):
        each.fit(np.ones((2, 3)), np.zeros((2, 2)), verbose=0, epochs=2)
    for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    excluded = [loaded.optimizer._use_weight_decay(v) for v in loaded.trainable_variables]
    assert excluded == [True, False]


@pytest.mark.parametrize("cls", [AdamW, Adafactor])
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(cls, dtype):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, dtype=dtype), keras.layers.Dense(1, dtype="float32")]
    )
    optimizer = cls(0.01, weight_decay=0.1)
    if dtype == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", jit_compile=False)
    losses = model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=2, epochs=8, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]
