"""The layers need Keras alone, and run on JAX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ALIGNMENTS = ["random", "factorized_random", "dense", "factorized_dense", "dot_product", "nested"]
ROOT = Path(__file__).parents[2]
IMPORT = """
import sys
import keras_synth, keras_synth.alignments, keras_synth.layers

found = sorted(set(sys.argv[1:]) & set(sys.modules))
assert not found, found
"""


def run_python(backend, *arguments):
    environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]


@pytest.mark.parametrize("backend, others", [("tensorflow", []), ("jax", ["tensorflow"])])
def test_import_brings_in_nothing_heavier_than_keras(backend, others):
    pytest.importorskip(backend)
    run_python(backend, "-c", IMPORT, *others, "keras_hub", "tensorflow_text", "tensorflow_datasets")


def test_the_layers_run_on_jax():
    """A sample of the tests that do not know what backend they run on."""
    pytest.importorskip("jax")
    tests = [f"alignments/test_logits.py::test_logits_equal_the_formula[{name}-5]" for name in ALIGNMENTS]
    tests += [
        f"layers/test_masks.py::test_output_and_scores_equal_the_formula[{name}-{masks}]"
        for name in ALIGNMENTS
        for masks in ("causal, value", "(B, T, S), causal, padding")
    ]
    tests += [
        f"layers/test_cache.py::test_cached_steps_equal_the_whole_pass[{name}-pieces1]"
        for name in ALIGNMENTS
    ]
    tests += [
        "layers/test_cache.py::test_decoder_steps_with_an_encoder_equal_the_whole_pass[random+dot_product]",
        *(f"layers/test_compiled.py::test_batch_and_length_may_be_unknown[{name}]" for name in ALIGNMENTS),
    ]
    run_python("jax", "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests))
