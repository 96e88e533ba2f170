"""Whatever the number of devices and processes, training on the same batches gives the same model."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from program import ON_TWO_REPLICAS, ON_TWO_WORKERS, PROGRAM, TASKS, TASKS_OF_WORKERS

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


class Outcome:
    """What the processes left: results of trainings, failures of checks, and what they printed."""

    def __init__(self, folder, processes):
        self.folder = folder
        try:
            self.output = "\n".join(process.communicate(timeout=400)[0][-5000:] for process in processes)
        finally:
            for process in processes:
                process.kill()
        self.return_codes = [process.returncode for process in processes]

    def read(self, name, load):
        path = self.folder / name
        assert path.exists(), f"No process came to {name}:\n{self.output}"
        return load(path)

    def trained(self, task, variant):
        return self.read(f"{task}, {variant}.npz", lambda path: dict(np.load(path)))

    def failure(self, check, variant):
        return self.read(f"{check}, {variant}.txt", lambda path: path.read_text())


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    (folder / "numbers.txt").write_text("".join(f"{i}\n" for i in range(8)))
    return Outcome(
        folder, [start("replicas", folder), *start_workers(2, folder), *start_workers(3, folder)]
    )


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


CHECKS = [
    *(("variables_are_distributed", task) for task in TASKS),
    *((function.__name__, "two replicas") for function in ON_TWO_REPLICAS),
    ("a_saved_model_loads_on_one_device_and_on_two", "two replicas"),
    *(("workers_know_of_each_other", f"worker {i} of {n}") for n in TASKS_OF_WORKERS for i in range(n)),
    *((function.__name__, f"worker {i} of 2") for function in ON_TWO_WORKERS for i in range(2)),
]


@pytest.mark.parametrize("task, variant", CASES)
def test_losses_metrics_and_weights_are_those_of_one_device(outcome, task, variant):
    expected, actual = outcome.trained(task, "one device"), outcome.trained(task, variant)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("check, variant", CHECKS)
def test_what_several_devices_or_processes_must_do(outcome, check, variant):
    failure = outcome.failure(check, variant)
    assert not failure, failure


def test_all_processes_ended_well(outcome):
    assert not any(outcome.return_codes), outcome.output


def test_nothing_else_was_saved(outcome):
    cases = [*((task, "one device") for task in TASKS), *CASES]
    assert {path.name for path in outcome.folder.glob("*.npz")} == {f"{t}, {v}.npz" for t, v in cases}
    assert {path.name for path in outcome.folder.glob("*,*.txt")} == {f"{c}, {v}.txt" for c, v in CHECKS}
