"""The layers need Keras alone, and run on JAX and torch."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What asks most of a backend: every alignment under every mask against the formula, caches, and gradients.
#: The rest passes on JAX as well, and takes many minutes, most of them to compile every operation for every
#: shape and dtype.
ON_JAX = "test_masks or test_cache or same_gradients_in_float64 or finite_gradients"
#: On torch float64 and float32 make float32 in Keras, and a tensor has its size as a function.
ON_TORCH = (
    "(test_attention or test_cache or test_shared_path) and not float64 and not only_dot_products_keep_keys"
)
IMPORT = """
import sys
import keras_synth, keras_synth.alignments, keras_synth.layers

found = sorted(set(sys.argv[1:]) & set(sys.modules))
assert not found, found
"""


def run_python(backend, *arguments):
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling is most of the work of a test
    }
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout[-8000:]}\n{result.stderr[-2000:]}"


def skip_without(backend):
    if importlib.util.find_spec(backend) is None:  # an import would be in the way of the other ones
        pytest.skip(f"needs {backend}")


@pytest.mark.parametrize(
    "backend, others", [("tensorflow", []), ("jax", ["tensorflow"]), ("torch", ["tensorflow"])]
)
def test_import_brings_in_nothing_heavier_than_keras(backend, others):
    skip_without(backend)
    run_python(backend, "-c", IMPORT, *others, "keras_hub", "tensorflow_text", "tensorflow_datasets")


@pytest.mark.parametrize(
    "backend, chosen",
    [("jax", ON_JAX), ("torch", ON_TORCH), pytest.param("jax", "test", marks=pytest.mark.nightly)],
)
def test_alignments_and_layers_run_on_other_backends(backend, chosen):
    """The tests of alignments and layers, on JAX and torch."""
    skip_without(backend)
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--numprocesses=0", "-k", chosen]
    rooms = ["tests/alignments", "tests/layers", "--ignore=tests/layers/test_backends.py"]
    run_python(backend, "-m", "pytest", *options, *rooms)
