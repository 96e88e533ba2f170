import keras
import numpy as np
import pytest

from keras_synth.training import Checkpoint, InverseSquareRoot, TimeLimit, save_model


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def fit(model, **kwargs):
    return model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=2, verbose=0, **kwargs)


def test_inverse_square_root():
    schedule = InverseSquareRoot(peak=0.3, warmup_steps=10)
    steps = np.array([0, 4, 9, 39, 89])
    np.testing.assert_allclose(
        [float(schedule(step)) for step in steps], [0.03, 0.15, 0.3, 0.15, 0.1], rtol=1e-6
    )
    again = InverseSquareRoot.from_config(schedule.get_config())
    assert float(again(7)) == float(schedule(7))
    with pytest.raises(ValueError, match="`warmup_steps` must be at least 1.*warmup_steps=0"):
        InverseSquareRoot(0.1, 0)


def test_time_limit_stops(model):
    history = fit(model, epochs=10_000, callbacks=[TimeLimit(minutes=0.5 / 60)])
    assert 0 < len(history.history["loss"]) < 10_000


def test_checkpoint_is_the_whole_model_with_its_optimizer(model, tmp_path):
    fit(model, epochs=2, callbacks=[Checkpoint(tmp_path / "model.keras")])
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 8
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


def test_checkpoint_within_an_epoch(model, tmp_path):
    saved = []

    class Recorder(Checkpoint):
        def save(self):
            super().save()
            saved.append(int(self.model.optimizer.iterations))

    fit(model, callbacks=[Recorder(tmp_path / "model.keras", every_minutes=0)])
    assert saved == [1, 2, 3, 4, 4]


def test_an_interrupted_save_leaves_the_file_before_it(model, tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    save_model(model, path)
    before = path.read_bytes()

    def interrupted(self, partial):
        partial.write_bytes(b"half a model")
        raise KeyboardInterrupt

    monkeypatch.setattr(keras.Sequential, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(model, path)
    assert path.read_bytes() == before
    assert [child.name for child in tmp_path.iterdir()] == ["model.keras"]
