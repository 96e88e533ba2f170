"""On several devices of the JAX backend the models train as on one device of TensorFlow."""

import os
import subprocess
import sys

import numpy as np
import pytest
from program import PROGRAM, TASKS, train

pytestmark = pytest.mark.tensorflow  # that is, once


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("jax")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PROGRAM.parents[2]), os.environ.get("PYTHONPATH", "")]),
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling is most of the work
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, PROGRAM, "devices", folder]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-5000:]
    return folder


@pytest.mark.parametrize("task", TASKS)
def test_four_devices_of_jax_train_as_one_of_tensorflow(folder, task):
    model, x = train(task, folder, "TensorFlow", drop_remainder=True)
    actual, expected = (np.load(folder / f"{task}, {backend}.npz") for backend in ("JAX", "TensorFlow"))
    assert actual.keys() == expected.keys()
    # On JAX Keras's own metrics do not see the mask of the output.
    unmasked = {"accuracy"} if task == "model_of_ones_own" else set()
    for name in expected.keys() - unmasked:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    if task == "sequence_to_sequence":
        prompts = {name: value[:8] for name, value in x.items()}
        answers = model.generate(prompts, stop_token_ids=None)
        np.testing.assert_array_equal(
            np.load(folder / "answers.npz")["decoder_token_ids"], answers["decoder_token_ids"]
        )
