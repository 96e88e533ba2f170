"""Models as SavedModels: text in, text out, with the tokenizer inside."""

import contextlib
import os
import pathlib
from collections.abc import Mapping, Sequence

import keras
import keras_hub

from keras_synth.export.formats import get_format
from keras_synth.export.precompute import precomputed
from keras_synth.export.served_tasks import serve
from keras_synth.export.variants import with_dtype
from keras_synth.export.versions import write_version
from keras_synth.models.samplers import get_sampler


def export(
    model: keras.Model,
    path: str | os.PathLike,
    labels: Sequence[str] | None = None,
    sampler: str | keras_hub.samplers.Sampler | None = None,
    dtype: str | None = None,
    warmup: Sequence[Mapping] = (),
    format: str = "saved_model",
    precompute: bool = True,
    fold: bool | None = None,
) -> pathlib.Path:
    """Exports a model as a SavedModel, in the layout that TensorFlow Serving watches.

    The SavedModel is written to `<path>/<version>/`, with the next free version. It is written aside
    and moved into place, so that a server never sees a part of it. It needs TensorFlow alone, and
    tensorflow-text for the operations of the tokenizer, which is inside. A report of what it is lies in
    `assets.extra/report.md`.

    Attention weights that do not depend on the input are computed once, here, and what inference does not
    use is left out.

    What a SavedModel can be asked are its signatures. Those with text are there if the model has a
    preprocessor; the first of a model is also its `serving_default`. In all of them the first axis is the
    batch, of any size.

    | model | signature | inputs | outputs |
    | --- | --- | --- | --- |
    | `SynthesizerTextClassifier` | `classify` | `text` | `label`, `score`, `scores`, `truncated` |
    | | `classify_pair` | `text`, `second_text` | the same |
    | `SynthesizerCausalLM` | `generate` | `text` | `text`, `score`, `truncated` |
    | | `score` | `text` | `score`, `num_tokens`, `truncated` |
    | `SynthesizerSeq2SeqLM` | `generate` | `text` | `text`, `score`, `truncated` |
    | | `score` | `source`, `target` | `score`, `num_tokens`, `truncated` |
    | `SynthesizerMaskedLM` | `fill_mask` | `text` | `text`, `score`, `truncated` |
    | those that generate | `generate_tokens` | as `predict` | the same as the inputs generated, `score` |
    | every model | `predict` | the model's own inputs | the model's own outputs |

    Texts, labels: string. `truncated`: bool, whether a text was longer than the model takes, and cut.
    `score` of a classifier: float32, the probability of the label, and `scores` those of all labels. All
    other scores: float32, the natural logarithm of the probability of what was generated, filled in, or
    given, its end included. Tokens: int32 of shape `(batch, length)`, where more than the model's
    `max_length` is an error, and so is no token to generate from. Whatever else is float comes out as
    float32.

    Other models' outputs are named by the layers that made them, or by the keys of the dicts that they are
    in, as `y_z` in `{"y": {"z": output}}`. Of names that repeat, also those of inputs, the second is
    `name_1`, and so on.

    Args:
        model: A task or backbone of `keras_synth.models`, or another functional or sequential model of
            tensors.
        path: string or path. The folder of the model's versions. Its name is no number.
        labels: Sequence of strings. The names of a classifier's classes. Defaults to those that the model
            has, and else to `"0"`, `"1"` and so on.
        sampler: A sampler of `keras_hub.samplers` or `keras_synth.models.BeamSampler`, or its name, by
            which the export generates. Defaults to the one that the model was compiled with.
        dtype: `"float32"`, `"bfloat16"`, `"float16"` or `"int8"`. The dtype of the weights, see
            `keras_synth.export.with_dtype`. Defaults to the model's.
        warmup: Sequence of requests, dicts from the inputs of a signature to batches of values, as
            `[{"text": ["one", "two"]}]`. TensorFlow Serving sends them to every signature with these
            inputs before it answers others. Needs the package tensorflow-serving-api, of the extra
            `serving`.
        format: `"saved_model"`, or `"litert"`, `"onnx"` or `"openvino"`, which have `predict` alone, by
            Keras's own export, as `model.tflite`, `model.onnx` or `model.xml` in the version's folder,
            beside the files of the tokenizer. LiteRT takes one example of `max_length` tokens. The last two
            need the packages of the extra `formats`.
        precompute: bool. Whether attention weights that do not depend on the input are computed once, here.
            Defaults to `True`.
        fold: The former name of `precompute`.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If an argument is not as described.
        ImportError: If a package is missing.

    Example:

    >>> import tempfile
    >>> import tensorflow as tf
    >>> model = keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2, name="y")])
    >>> version = export(model, tempfile.mkdtemp())
    >>> version.name
    '1'
    >>> answer = tf.saved_model.load(version).signatures["serving_default"](x=tf.ones((5, 3)))
    >>> answer["y"].shape
    TensorShape([5, 2])
    """
    model_name = pathlib.Path(path).resolve().name
    if model_name.isdecimal():
        raise ValueError(
            "`path` must be the folder of all versions of a model, whose name is no number: `export` adds "
            f"the next version. Received: path='{path}'"
        )
    format = get_format(format, dtype, warmup)
    if dtype is not None:
        model = with_dtype(model, dtype)
    served = serve(model, labels)
    precompute = precompute if fold is None else fold
    with _sampling(model, sampler), precomputed() if precompute else contextlib.nullcontext():
        return write_version(path, format.prepare(served, warmup, model_name))


@contextlib.contextmanager
def _sampling(model, sampler):
    """The model with another sampler."""
    if sampler is None:
        yield
        return
    if not hasattr(model, "sampler"):
        raise ValueError(
            f"Only a model that generates has a `sampler`. Received: model={model!r}, sampler={sampler!r}"
        )
    compiled, model.sampler = model.sampler, get_sampler(sampler)
    try:
        yield
    finally:
        model.sampler = compiled
