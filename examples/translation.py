"""Trains a translation model, scores it, exports it, and asks the export in a new process.

Without arguments it learns to read dates: as people write them in more than thirty languages, from
Unicode CLDR, to be translated to ISO 8601. With `--data` it learns from your own parallel text files,
`<split>.<language>` or `<split>.<language>.gz`, or from a data set of TensorFlow Datasets:

    python examples/translation.py
    python examples/translation.py --data my_texts --source en --target de --max-minutes 20
    python examples/translation.py --data tfds:wmt14_translate/de-en --source en --target de

    python examples/translation.py --data my_texts --source en --target de --strategy mirrored

With `--strategy` it trains on several GPUs, several machines or a TPU, see `docs/training.md`.

When it is interrupted or killed, the same command goes on from the last checkpoint, also in the middle of
an epoch, and ends with the same weights.
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
import sacrebleu
import tensorflow as tf

from keras_synth import alignments
from keras_synth.data import load_pairs, token_batches, train_tokenizer
from keras_synth.export import export
from keras_synth.models import (
    BeamSampler,
    SynthesizerEncoderDecoderBackbone,
    SynthesizerSeq2SeqLM,
    SynthesizerSeq2SeqLMPreprocessor,
)
from keras_synth.training import (
    Checkpoint,
    GenerationScore,
    InverseSquareRoot,
    SmoothedCrossentropy,
    TimeLimit,
    any_worker,
    average_weights,
    is_chief,
    save_model,
    strategy,
)

PRESETS = {
    "tiny": dict(num_layers=2, num_heads=4, hidden_dim=128, intermediate_dim=512, dropout=0.1),
    "small": dict(num_layers=3, num_heads=4, hidden_dim=256, intermediate_dim=1024, dropout=0.2),
    "base": dict(num_layers=6, num_heads=8, hidden_dim=512, intermediate_dim=2048, dropout=0.1),
}
VOCABULARY_SIZE = {"tiny": 4000, "small": 8000, "base": 32000}
PEAK_LEARNING_RATE = {"tiny": 2e-3, "small": 1e-3, "base": 7e-4}
WARMUP_STEPS = 200
VERBOSE = 1 if sys.stdout.isatty() else 2  # a bar that moves in a terminal, lines in a log


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="dates", help="dates, tfds:NAME/CONFIG, or a folder")
    parser.add_argument("--source", default="en", help="the language to translate from")
    parser.add_argument("--target", default="de", help="the language to translate to")
    parser.add_argument("--attention", default="random+dot_product", help="the alignment")
    parser.add_argument("--preset", choices=PRESETS, help="the size; tiny for dates, else small")
    parser.add_argument("--vocabulary-size", type=positive(int), help="default: by the preset")
    parser.add_argument("--epochs", type=positive(int), help="default: 2 for dates, else 20")
    parser.add_argument("--max-minutes", type=positive(float), help="stop training after this time")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--batch-tokens", type=positive(int), help="tokens in a batch, a side; 4096")
    size.add_argument("--batch-size", type=positive(int), help="pairs in a batch; 128 for dates")
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--bleu-every", type=positive(int), help="score held-out pairs every N epochs")
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
    arguments = parser.parse_args()

    dates = arguments.data == "dates"
    name = "date_normalizer" if dates else f"translation_{arguments.source}_{arguments.target}"
    arguments.preset = arguments.preset or ("tiny" if dates else "small")
    arguments.epochs = arguments.epochs or (2 if dates else 20)
    if not arguments.batch_size and not arguments.batch_tokens:
        arguments.batch_size, arguments.batch_tokens = (128, None) if dates else (None, 4096)
    arguments.output = arguments.output or pathlib.Path("output", name)
    arguments.export = arguments.export or pathlib.Path("saved_models", name)
    arguments.max_length = 64 if dates else 128
    arguments.vocabulary_size = arguments.vocabulary_size or (
        1000 if dates else VOCABULARY_SIZE[arguments.preset]
    )
    return arguments


def positive(kind):
    def parse(text):
        value = kind(text)
        if value <= 0:
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


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


def check(arguments):
    """Whatever can be known to be wrong before the long work begins."""
    shape = PRESETS[arguments.preset]
    alignments.get(arguments.attention, shape["num_heads"], key_dim=1, max_length=arguments.max_length)
    for folder in (arguments.output, arguments.export):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise ValueError(f"{folder} must be a folder that can be written: {error.strerror}") from error


def make_model(arguments, pairs):
    texts = (text for pair in pairs.train.as_numpy_iterator() for text in pair.values())
    tokenizer = train_tokenizer(texts, arguments.vocabulary_size, split_digits=True)
    backbone = SynthesizerEncoderDecoderBackbone(
        tokenizer.vocabulary_size(),
        **PRESETS[arguments.preset],
        max_length=arguments.max_length,
        attention=arguments.attention,
        seed=arguments.seed,
    )
    # A date is short. Otherwise the target may be as long as the source.
    target_length = 16 if arguments.data == "dates" else arguments.max_length
    preprocessor = SynthesizerSeq2SeqLMPreprocessor(tokenizer, arguments.max_length, target_length)
    return SynthesizerSeq2SeqLM(backbone, preprocessor)


def compile_model(model, arguments, steps):
    peak = PEAK_LEARNING_RATE[arguments.preset]
    if arguments.max_minutes:  # how many steps that will be, nobody knows
        learning_rate = InverseSquareRoot(peak, WARMUP_STEPS)
    else:
        warmup = min(WARMUP_STEPS, steps // 2)
        learning_rate = keras.optimizers.schedules.CosineDecay(
            0.0, max(steps - warmup, 1), warmup_target=peak, warmup_steps=warmup
        )
    model.compile(
        keras.optimizers.Adam(learning_rate, beta_2=0.98, global_clipnorm=1.0),
        loss=SmoothedCrossentropy(arguments.label_smoothing) if arguments.label_smoothing else "auto",
        sampler="greedy" if arguments.data == "dates" else BeamSampler(4),
        jit_compile=False,  # batches have too many shapes for XLA
    )


def make_checkpoint(arguments, where):
    """The checkpoints in the output folder, if these arguments made them; otherwise there are none yet."""
    folder = arguments.output / "checkpoints"
    settings = arguments.output / "arguments.json"
    # Training may go on somewhere else.
    wanted = json.dumps({**vars(arguments), "strategy": None}, default=str, indent=2)
    if is_chief(where) and (not settings.exists() or settings.read_text() != wanted):
        shutil.rmtree(folder, ignore_errors=True)
        settings.write_text(wanted)
    any_worker(where, False)  # the others wait here
    return Checkpoint(folder, every_minutes=1, keep=max(3, arguments.average))


def load_or_make_model(arguments, pairs, checkpoint):
    if not checkpoint.path:
        return make_model(arguments, pairs)
    print(f"Going on from {checkpoint.path}.")
    return keras.models.load_model(checkpoint.path)


def train(model, arguments, pairs, checkpoint):
    where = model.distribute_strategy
    size = dict(
        batch_size=arguments.batch_size,
        batch_tokens=arguments.batch_tokens,
        static_shapes=isinstance(where, tf.distribute.TPUStrategy),
    )
    epochs = range(checkpoint.epoch, arguments.epochs)
    if not epochs:  # it was interrupted after training
        return
    batches = token_batches(
        pairs.train, model.preprocessor, **size, shuffle=True, seed=arguments.seed, epochs=epochs
    )
    steps = len(batches) // len(epochs)
    if not checkpoint.path:
        with where.scope():
            compile_model(model, arguments, arguments.epochs * steps)
    callbacks = [checkpoint]
    if arguments.max_minutes:
        callbacks.append(TimeLimit(arguments.max_minutes))
    if arguments.bleu_every:
        callbacks.append(GenerationScore(pairs.validation.take(500), every_epochs=arguments.bleu_every))
    try:
        history = model.fit(
            batches,
            steps_per_epoch=steps,
            validation_data=token_batches(pairs.validation, model.preprocessor, **size),
            epochs=arguments.epochs,
            callbacks=callbacks,
            shuffle=False,  # the batches are shuffled already
            verbose=VERBOSE,
        ).history
    except KeyboardInterrupt:
        if checkpoint.paths:
            note = f"the last checkpoint is {checkpoint.paths[-1]}; the same command goes on from there"
        else:
            note = "there is no checkpoint yet"
        print(f"\nInterrupted: {note}.", file=sys.stderr)
        sys.exit(130)
    print(f"Loss {history['loss'][-1]:.4f}, held-out loss {history['val_loss'][-1]:.4f}.")


def score(model, arguments, pairs):
    """Prints the score on the test pairs, and returns some of them with the model's answers."""
    sources, references = (
        [pair[side].decode() for pair in pairs.test.as_numpy_iterator()]
        for side in ("encoder_text", "decoder_text")
    )
    progress = keras.utils.Progbar(len(sources), verbose=VERBOSE, unit_name="text")
    answers = []
    for start in range(0, len(sources), 100):
        answers += model.generate(sources[start : start + 100])
        progress.update(len(answers))
    if arguments.data == "dates":
        right = sum(answer == reference for answer, reference in zip(answers, references, strict=True))
        print(f"Exact match: {right / len(answers):.1%} of {len(answers)} held-out dates.")
    else:
        print(f"{sacrebleu.corpus_bleu(answers, [references])} on {len(answers)} test sentences.")
    return sources[:12], references[:12], answers[:12]


def ask_in_new_process(version, sources, references):
    """Prints texts and the answers of a process that knows nothing of this library; returns these."""
    program = pathlib.Path(__file__).with_name("ask_saved_model.py")
    served = subprocess.run(
        # Isolated, so that neither this folder nor the environment lends it a module.
        [sys.executable, "-I", program, version],
        input="\n".join(sources),
        capture_output=True,
        encoding="utf-8",
    )
    if served.returncode:
        raise ValueError(served.stderr)
    served = served.stdout.splitlines()
    width = max(map(len, sources))
    for source, reference, answer in zip(sources, references, served, strict=True):
        print(f"{source:{width}} | {answer}" + ("" if answer == reference else f"   (not {reference})"))
    return served


def main():
    arguments = parse_arguments()
    with step("Looking for devices"):
        where = strategy(arguments.strategy)
        print(f"{where.num_replicas_in_sync} device(s)")
    if not is_chief(where):
        sys.stdout = open(os.devnull, "w")
    keras.utils.set_random_seed(arguments.seed)
    with step("Checking the arguments"):
        check(arguments)
    with step("Loading the data"):
        pairs = load_pairs(arguments.data, arguments.source, arguments.target)
        print(
            f"{len(pairs.train)} training, {len(pairs.validation)} validation, {len(pairs.test)} test pairs"
        )
    with step("Making the model"), where.scope():
        checkpoint = make_checkpoint(arguments, where)
        model = load_or_make_model(arguments, pairs, checkpoint)
        print(f"{model.count_params():,} parameters, attention: {arguments.attention}")
    with step("Training"):
        train(model, arguments, pairs, checkpoint)
    if not is_chief(where):
        any_worker(where, False)  # one that left before the chief would look as if it had crashed
        return
    if arguments.average > 1:
        average_weights(model, checkpoint.paths[-arguments.average :])
    with step("Scoring"):
        *examples, answers = score(model, arguments, pairs)
    with step("Saving"):
        path = arguments.output / f"{arguments.export.name}.keras"
        save_model(model, path)
        shutil.rmtree(checkpoint.folder)
        (arguments.output / "arguments.json").unlink()
        print(path)
    with step("Exporting"):
        warmup = [{"text": examples[0][:1]}] if arguments.warmup else []
        version = export(model, arguments.export, dtype=arguments.export_dtype, warmup=warmup)
        print(version)
    with step("Asking the exported model in a new process"):
        served = ask_in_new_process(version, *examples)
        if served != answers and arguments.export_dtype in (None, "float32"):
            raise ValueError(f"The exported model answers otherwise than the model: {answers}")
    any_worker(where, False)


if __name__ == "__main__":
    main()
