"""The layers need Keras alone, and run on JAX and torch."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: They pass on JAX too, but take a third of the time, most of it to compile every operation for every
#: shape and dtype. Low precision is the dearest; the others ask least of the backend, or compare with
#: Keras and with another path what `test_masks.py` compares with NumPy.
LEFT_OUT = [
    "alignments/test_weights.py",
    "layers/test_backends.py",
    "layers/test_config.py",
    "layers/test_dot_product.py",
    "layers/test_precision.py",
    "layers/test_saving.py",
    "layers/test_shared_path.py",
]
#: For the same reason.
TESTS_LEFT_OUT = [
    "comparison_is_one_argument",
    "dtype_policies",
    "keeps_the_expectation",
    "pieces_with_a_cache",
]
#: What asks most of a backend: masks, caches, and gradients of all paths. On torch float64 and float32 make
#: float32 in Keras, and a tensor has its size as a function.
ON_TORCH = [f"tests/layers/test_{name}.py" for name in ("attention", "cache", "shared_path")]
LEFT_OUT_ON_TORCH = ["float64", "only_dot_products_keep_keys"]
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


def run_tests(backend, paths, left_out=(), *options):
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--numprocesses=0", *options]
    others = ["-k", " and ".join(f"not {name}" for name in left_out)]
    run_python(backend, "-m", "pytest", *options, *paths, *others)


@pytest.mark.parametrize(
    "backend, others", [("tensorflow", []), ("jax", ["tensorflow"]), ("torch", ["tensorflow"])]
)
def test_import_brings_in_nothing_heavier_than_keras(backend, others):
    skip_without(backend)
    run_python(backend, "-c", IMPORT, *others, "keras_hub", "tensorflow_text", "tensorflow_datasets")


def test_alignments_and_layers_run_on_jax():
    """The tests of alignments and layers, on JAX."""
    skip_without("jax")
    rooms = [f"tests/{room}" for room in ("alignments", "layers")]
    run_tests("jax", rooms, TESTS_LEFT_OUT, *(f"--ignore=tests/{file}" for file in LEFT_OUT))


def test_layers_run_on_torch():
    skip_without("torch")
    run_tests("torch", ON_TORCH, LEFT_OUT_ON_TORCH)
