"""Which strategy a spec stands for, and what is said where there is none."""

import json
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from keras_synth.training import any_worker, is_chief, num_workers, strategy

pytestmark = pytest.mark.tensorflow
CLUSTER = {"worker": ["localhost:1", "localhost:2"]}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)


def test_one_device():
    assert strategy("auto") is strategy() is tf.distribute.get_strategy()
    on_cpu = strategy("cpu")
    assert on_cpu.num_replicas_in_sync == 1
    with on_cpu.scope():
        assert "CPU" in keras.Variable(1.0).value.device
    existing = tf.distribute.MirroredStrategy(["CPU:0"])
    assert strategy(existing) is existing
    assert strategy("cpu:1").num_replicas_in_sync == 1


@pytest.mark.parametrize("spec", [None, "auto", "cpu", "cpu:1"])
def test_one_process_is_its_own_chief(spec):
    where = spec and strategy(spec)
    assert num_workers(where) == 1
    assert is_chief(where)
    assert any_worker(where, True) is True
    assert any_worker(where, False) is False


@pytest.mark.parametrize("spec", ["gpu", "cpu:0", "cpu:x", "cpu:-1", "cpu:", "mirrored:2", "", None, 3])
def test_an_unknown_spec(spec):
    with pytest.raises(ValueError, match="`spec` must be .*'auto', 'cpu', .*'cpu:N'.*Received: spec="):
        strategy(spec)


def test_missing_hardware():
    with pytest.raises(ValueError, match="'mirrored' needs a GPU"):
        strategy("mirrored")
    with pytest.raises(ValueError, match="'cpu:2' must come before .* has 1 logical"):
        strategy("cpu:2")  # TensorFlow is in use


@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        "{}",
        "[]",
        "{",
        json.dumps({"cluster": CLUSTER}),
        json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}),
        json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}),
    ],
)
def test_a_faulty_tf_config(monkeypatch, config):
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG.*Received: TF_CONFIG="):
        strategy("multi_worker")


def test_workers_too_late(monkeypatch):
    config = {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    for spec in ("multi_worker", "auto"):
        with pytest.raises(ValueError, match="'multi_worker' must come before anything else"):
            strategy(spec)


NO_TPU = """
import os
import pytest
from keras_synth.training import strategy

for spec in ("tpu", "tpu:local"):
    with pytest.raises(ValueError, match=f"'{spec}' found no TPU"):
        strategy(spec)
os.environ["TPU_NAME"] = "local"
with pytest.raises(ValueError, match="'tpu' found no TPU"):
    strategy("auto")
"""


def test_no_tpu():
    # In a process of its own: when TensorFlow looks for a TPU, it forgets the tokenizers that there are.
    subprocess.run([sys.executable, "-c", NO_TPU], check=True)
