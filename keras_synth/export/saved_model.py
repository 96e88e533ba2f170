"""Models as SavedModels: text in, text out, with the tokenizer inside."""

import os
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf

from keras_synth.models import SynthesizerSeq2SeqLM


def export(model: keras.Model, path: str | os.PathLike) -> pathlib.Path:
    """Exports a task as a SavedModel, in the layout that TF Serving watches.

    The SavedModel is written to `<path>/<version>/`, with the next free version. It is written aside
    and moved into place, so that a server never sees a part of it. It needs TensorFlow alone, and
    tensorflow-text for the operations of the tokenizer.

    Its signature `serving_default` takes `text`, strings of shape `(batch,)`, and returns `text`, the
    answers, by the sampler that the model was compiled with. Longer text than the model takes is cut.

    Args:
        model: A `keras_synth.models.SynthesizerSeq2SeqLM` with a preprocessor.
        path: string or path. The folder of the model's versions.

    Returns:
        The folder of the version.

    Raises:
        ValueError: If the model is another, or has no preprocessor.
    """
    if not isinstance(model, SynthesizerSeq2SeqLM) or model.preprocessor is None:
        raise ValueError(
            f"`export` takes a SynthesizerSeq2SeqLM with a preprocessor. Received: model={model!r}"
        )
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    # A name that is no number, and the same file system as its final place.
    partial = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=path))
    try:
        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint("serve", _text_to_text(model))
        archive.write_out(str(partial), verbose=False)
        partial.chmod(0o755)
        return _move_to_next_version(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _text_to_text(model):
    preprocessor = model.preprocessor
    stop_token_ids = (preprocessor.tokenizer.end_token_id,)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(text):
        tokens = model.generate_step(preprocessor.generate_preprocess(text), stop_token_ids)
        return {"text": preprocessor.generate_postprocess(tokens)}

    return serve


def _move_to_next_version(partial, path):
    versions = [int(child.name) for child in path.iterdir() if child.name.isdecimal()]
    version = max(versions, default=0) + 1
    while True:
        try:
            return partial.rename(path / str(version))
        except OSError:  # somebody else has taken it, and it is not empty
            if not (path / str(version)).exists():
                raise
            version += 1
