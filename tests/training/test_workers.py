"""Whatever the number of devices and processes, training on the same batches gives the same model."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from program import PROGRAM, TASKS, TASKS_OF_WORKERS

pytestmark = pytest.mark.tensorflow


def start(function, folder, **environment):
    path = os.pathsep.join([str(PROGRAM.parents[2]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, PROGRAM, function, folder],
        env={**os.environ, "PYTHONPATH": path, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def start_workers(count, folder):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    for index in range(count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        yield start("workers", folder, TF_CONFIG=json.dumps(config))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each variant of training saved, by task and variant."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "numbers.txt").write_text("".join(f"{i}\n" for i in range(8)))
    processes = [start("replicas", folder), *start_workers(2, folder), *start_workers(3, folder)]
    try:
        outputs = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-5000:]
    return {tuple(path.stem.split(", ")): dict(np.load(path)) for path in folder.glob("*.npz")}


CASES = [
    *((task, "two replicas") for task in TASKS),
    ("classifier", "four replicas"),
    ("classifier", "a single worker"),
    *(
        (task, f"worker {index} of {count}")
        for count, tasks in TASKS_OF_WORKERS.items()
        for task in tasks
        for index in range(count)
    ),
]


@pytest.mark.parametrize("task, variant", CASES)
def test_losses_metrics_and_weights_are_those_of_one_device(results, task, variant):
    expected, actual = results[task, "one device"], results[task, variant]
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


def test_nothing_else_was_saved(results):
    one_device = {(task, "one device") for task in TASKS}
    assert results.keys() == one_device | set(CASES)
