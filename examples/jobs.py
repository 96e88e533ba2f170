"""What all examples share: one command trains a model, scores it, exports it, and asks the export.

An example is its arguments, its data, its model and its score. The rest is here, and `translation.py` shows
how it is used:

    job = jobs.Job(arguments)                   finds the devices, and checks the arguments
    with jobs.step("Loading the data"):         what fails in a step is said in one line
        ...
    model = job.make_model(...)                 or that of the run that was interrupted
    with jobs.step("Training"):
        ...  job.fit(model, batches, ...)       with checkpoints; only the epochs that are left
    job.finish(model, ...)                      scores, saves, exports, and asks in a new process
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes about this machine

import keras
import tensorflow as tf

from keras_synth import layers
from keras_synth.core.files import replace_file
from keras_synth.export import export
from keras_synth.models import SIZES
from keras_synth.training import (
    Checkpoint,
    InverseSquareRoot,
    TimeLimit,
    any_worker,
    average_weights,
    is_chief,
    save_model,
    strategy,
)

SHORT_NAMES = {"base": "transformer_base"}
WARMUP_STEPS = 200
ASKED = 12  # texts that the exported model is asked
VERBOSE = 1 if sys.stdout.isatty() else 2  # a bar that moves in a terminal, lines in a log


def argument_parser(description, presets):
    """A parser with the arguments of every example.

    Args:
        description: string. What the example does, with its commands.
        presets: The sizes of `keras_synth.models.SIZES` that the example is made for.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attention", default="random+dot_product", help="the self-attention")
    parser.add_argument(
        "--preset",
        choices=presets,
        type=lambda name: SHORT_NAMES.get(name, name),
        help=f"the size; {', '.join(f'{short} for {name}' for short, name in SHORT_NAMES.items())}",
    )
    parser.add_argument("--vocabulary-size", type=positive(int), help="default: by the preset")
    parser.add_argument("--epochs", type=positive(int))
    parser.add_argument("--max-minutes", type=positive(float), help="stop training after this time")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--batch-tokens", type=positive(int), help="tokens in a batch, a side")
    size.add_argument("--batch-size", type=positive(int), help="examples in a batch")
    parser.add_argument("--average", type=positive(int), default=1, help="the last N checkpoints, averaged")
    parser.add_argument(
        "--strategy", default="auto", help="auto, cpu, cpu:N, mirrored, multi_worker, tpu or tpu:NAME"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--export-dtype", choices=("float32", "float16", "bfloat16", "int8"), help="smaller weights"
    )
    parser.add_argument("--warmup", action="store_true", help="export a request to warm a server up")
    parser.add_argument("--output", type=pathlib.Path, help="folder of the .keras file")
    parser.add_argument("--export", type=pathlib.Path, help="folder of the SavedModel's versions")
    return parser


def positive(kind):
    """The type of an argument that is an int or a float, and more than zero."""

    def parse(text):
        value = kind(text)
        if value <= 0:
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def complete(arguments, name, **defaults):
    """Sets what the command line left open; `name` is that of the model, in the folders' defaults."""
    defaults = {
        "output": pathlib.Path("output", name),
        "export": pathlib.Path("saved_models", name),
        **defaults,
    }
    if arguments.batch_size or arguments.batch_tokens:
        defaults = {key: value for key, value in defaults.items() if not key.startswith("batch_")}
    for key, value in defaults.items():
        if getattr(arguments, key, None) is None:
            setattr(arguments, key, value)
    return arguments


@contextlib.contextmanager
def step(name):
    """Says what is being done, and which step it was if it fails."""
    print(f"\n== {name}", flush=True)
    try:
        yield
    except (ValueError, OSError, FloatingPointError, subprocess.CalledProcessError) as error:
        sys.exit(f"{name} failed: {' '.join(str(error).split())}")
    except Exception as error:
        error.add_note(f"This happened in the step: {name}")
        raise


def answers_to(texts, ask, at_once=100):
    """What `ask` answers to texts, so many at once, with a progress bar."""
    progress = keras.utils.Progbar(len(texts), verbose=VERBOSE, unit_name="text")
    answers = []
    for start in range(0, len(texts), at_once):
        answers += ask(texts[start : start + at_once])
        progress.update(len(answers))
    return answers


class Job:
    """One run of an example, which goes on where it was interrupted.

    Args:
        arguments: What a parser of `argument_parser` made, completed by `complete` with at least `preset`,
            `epochs` and `max_length`.
        causal: bool. Whether the model has a decoder. Defaults to `False`.
    """

    def __init__(self, arguments, causal=False):
        self.arguments = arguments
        with step("Looking for devices"):
            self.where = strategy(arguments.strategy)
            print(f"{self.where.num_replicas_in_sync} device(s)")
        if not is_chief(self.where):
            sys.stdout = open(os.devnull, "w")
        keras.utils.set_random_seed(arguments.seed)
        with step("Checking the arguments"):  # whatever can be known before the long work begins
            num_heads = SIZES[arguments.preset]["num_heads"]
            layers.check_attention(
                arguments.attention, num_heads, arguments.max_length, use_causal_mask=causal
            )
            for folder in (arguments.output, arguments.export):
                check_folder(folder)

    def make_model(self, make):
        """The model of the last checkpoint, if these arguments made it; otherwise what `make` returns."""
        with step("Making the model"), self.where.scope():
            self.checkpoint = self._make_checkpoint()
            newest = self.checkpoint.path
            if newest:
                print(f"Going on from {newest}.")
            model = keras.models.load_model(newest) if newest else make()
            print(f"{model.count_params():,} parameters, attention: {self.arguments.attention}")
        return model

    def _make_checkpoint(self):
        folder = self.arguments.output / "checkpoints"
        settings = self.arguments.output / "arguments.json"
        # Training may go on somewhere else.
        wanted = json.dumps({**vars(self.arguments), "strategy": None}, default=str, indent=2)
        if is_chief(self.where) and (not settings.exists() or settings.read_text() != wanted):
            shutil.rmtree(folder, ignore_errors=True)
            replace_file(settings, lambda path: path.write_text(wanted))
        any_worker(self.where, False)  # the others wait here
        return Checkpoint(folder, every_minutes=1, keep=max(3, self.arguments.average))

    @property
    def epochs(self):
        """Those that are left to train."""
        return range(self.checkpoint.epoch, self.arguments.epochs)

    @property
    def batches(self):
        """What `token_batches` must know of the arguments and the devices."""
        return dict(
            batch_size=self.arguments.batch_size,
            batch_tokens=self.arguments.batch_tokens,
            static_shapes=isinstance(self.where, tf.distribute.TPUStrategy),
        )

    def learning_rate(self, peak, steps):
        """A schedule for `steps` steps in all."""
        if self.arguments.max_minutes:  # how many steps that will be, nobody knows
            return InverseSquareRoot(peak, WARMUP_STEPS)
        warmup = min(WARMUP_STEPS, steps // 2)
        return keras.optimizers.schedules.CosineDecay(
            0.0, max(steps - warmup, 1), warmup_target=peak, warmup_steps=warmup
        )

    def fit(self, model, batches, validation, compile, callbacks=()):
        """Trains the epochs that are left.

        Args:
            model: keras.Model. What `make_model` returned.
            batches: tf.data.Dataset. The batches of `epochs`, one epoch after the other.
            validation: tf.data.Dataset. The batches to validate with after each epoch.
            compile: A function of the number of steps in all, which compiles the model. It is called unless
                the model comes from a checkpoint.
            callbacks: Callbacks beside checkpoints and the limit of time.
        """
        steps = len(batches) // len(self.epochs)
        if not self.checkpoint.path:
            with self.where.scope():
                compile(self.arguments.epochs * steps)
        limit = [TimeLimit(self.arguments.max_minutes)] if self.arguments.max_minutes else []
        try:
            history = model.fit(
                batches,
                steps_per_epoch=steps,
                validation_data=validation,
                epochs=self.arguments.epochs,
                callbacks=[self.checkpoint, *limit, *callbacks],
                shuffle=False,  # the batches are shuffled already
                verbose=VERBOSE,
            ).history
        except KeyboardInterrupt:
            paths = self.checkpoint.paths
            last = (
                f"the last checkpoint is {paths[-1]}; the same command goes on from there" if paths else ""
            )
            print(f"\nInterrupted: {last or 'there is no checkpoint yet'}.", file=sys.stderr)
            sys.exit(130)
        print(f"Loss {history['loss'][-1]:.4f}, held-out loss {history['val_loss'][-1]:.4f}.")

    def finish(self, model, score, **kwargs):
        """Scores the model, saves and exports it, and asks the export in a new process.

        Args:
            model: keras.Model. The trained model.
            score: A function that prints the score on the test data, and returns its texts, what their
                answers should be, and the model's answers to them.
            **kwargs: Keyword arguments of `keras_synth.export.export`.
        """
        if not is_chief(self.where):
            any_worker(self.where, False)  # one that left before the chief would look as if it had crashed
            return
        arguments = self.arguments
        if arguments.average > 1:
            average_weights(model, self.checkpoint.paths[-arguments.average :])
        with step("Scoring"):
            texts, references, answers = (texts[:ASKED] for texts in score())
        with step("Saving"):
            path = arguments.output / f"{arguments.export.name}.keras"
            save_model(model, path)
            shutil.rmtree(self.checkpoint.folder)
            (arguments.output / "arguments.json").unlink()
            print(path)
        with step("Exporting"):
            warmup = [{"text": texts[:1]}] if arguments.warmup else []
            version = export(model, arguments.export, dtype=arguments.export_dtype, warmup=warmup, **kwargs)
            print(version)
        with step("Asking the exported model in a new process"):
            served = ask_in_new_process(version, texts)
            width = max(map(len, texts))
            for text, reference, answer in zip(texts, references, served, strict=True):
                print(
                    f"{text:{width}} | {answer}" + ("" if answer == reference else f"   (not {reference})")
                )
            if served != answers and arguments.export_dtype in (None, "float32"):
                raise ValueError(f"The exported model answers otherwise than the model: {answers}")
        any_worker(self.where, False)


def check_folder(folder):
    """Makes a folder if need be, and checks that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{folder} must be a folder that can be written: {error.strerror}") from error


def ask_in_new_process(version, texts):
    """The answers of an export to texts, by a process that knows nothing of this library."""
    served = subprocess.run(
        # Isolated, so that neither this folder nor the environment lends it a module.
        [sys.executable, "-I", pathlib.Path(__file__).with_name("ask_saved_model.py"), version],
        input="\n".join(texts),
        capture_output=True,
        encoding="utf-8",
    )
    if served.returncode:
        raise ValueError(served.stderr)
    return served.stdout.splitlines()
