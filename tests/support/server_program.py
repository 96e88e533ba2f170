"""Asks SavedModels as a server does, in a process that has TensorFlow and tensorflow-text alone.

    python server_program.py jobs.pickle answers.pickle

A job is `(folder, signature, inputs)`. It is answered by the object loader and by the session loader, one
by one and from eight threads at once. Prints what `saved_model_cli` shows of the first job's folder.
"""

import concurrent.futures
import ctypes
import pathlib
import pickle
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401
from tensorflow.python.tools import saved_model_cli


def forbid_imports():
    """What is not there for a server is not there for this process either."""
    for name in ("keras_synth", "keras_hub"):
        if name in sys.modules:
            sys.exit(f"{name} was imported.")
        sys.modules[name] = None


def compile_nothing():
    """As `tensorflow_model_server` does on a CPU, unless it is started with a flag."""
    library = next(pathlib.Path(tf.__file__).parent.glob("libtensorflow_cc.so*"))
    ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()


def object_loader(folder):
    loaded = tf.saved_model.load(folder, tags=["serve"])

    def ask(signature, inputs):
        answer = loaded.signatures[signature](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        return {name: value.numpy() for name, value in answer.items()}

    return ask


def session_loader(folder):
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        signatures = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder).signature_def

    def ask(signature, inputs):
        definition = signatures[signature]
        return session.run(
            {name: info.name for name, info in definition.outputs.items()},
            {definition.inputs[name].name: value for name, value in inputs.items()},
        )

    return ask


def main(jobs_file, answers_file):
    forbid_imports()
    jobs = pickle.loads(pathlib.Path(jobs_file).read_bytes())
    compile_nothing()
    answers = []
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for loader in (object_loader, session_loader):
            ask = {folder: loader(folder) for folder in {job[0] for job in jobs}}
            one_by_one = [ask[folder](signature, inputs) for folder, signature, inputs in jobs]
            at_once = list(threads.map(lambda job: ask[job[0]](*job[1:]), jobs))  # noqa: B023
            answers += [one_by_one, at_once]
    pathlib.Path(answers_file).write_bytes(pickle.dumps(answers))
    sys.argv = ["saved_model_cli", "show", "--all", "--dir", jobs[0][0]]
    saved_model_cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
