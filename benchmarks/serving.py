"""How fast exported models answer: text in, text out, called as a server calls them.

    python3 run.py benchmarks/serving.py
    python3 run.py benchmarks/serving.py --tasks classifier --batches 1 --attentions random

For each task and batch size: the time of a request, as a share of that of the same model with the dot
product, and of the same model exported without precomputed weights. Signatures are called through the
session loader, as TensorFlow Serving does.
"""

import argparse
import functools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf
import timing

from keras_synth import data, models
from keras_synth.export import export

REFERENCE = "dot_product"
WORDS = (
    "the quick brown fox jumps over a lazy dog and reads the paper of those who paid no attention".split()
)


def make(task, attention, arguments, tokenizer):
    config = {**models.SIZES[arguments.size], "attention": attention, "max_length": arguments.length}
    if task == "classifier":
        backbone = models.SynthesizerEncoderBackbone(tokenizer.vocabulary_size(), **config)
        preprocessor = models.SynthesizerTextClassifierPreprocessor(tokenizer, arguments.length)
        return models.SynthesizerTextClassifier(backbone, 2, preprocessor)
    backbone = models.SynthesizerEncoderDecoderBackbone(tokenizer.vocabulary_size(), **config)
    preprocessor = models.SynthesizerSeq2SeqLMPreprocessor(tokenizer, arguments.length, arguments.answer)
    model = models.SynthesizerSeq2SeqLM(backbone, preprocessor)
    model.compile(sampler="greedy")
    return model


def loaded(version):
    """A function from texts to the outputs of `serving_default`, and the folder's bytes."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(version))
    signature = graph.signature_def["serving_default"]
    # What a client asks for, which leaves out the score of an answer.
    output = next(signature.outputs[name].name for name in ("label", "text") if name in signature.outputs)
    ask = session.make_callable(output, [signature.inputs["text"].name])
    return ask, sum(file.stat().st_size for file in version.rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=["classifier", "seq2seq_lm"])
    parser.add_argument(
        "--attentions", nargs="+", default=["random", "factorized_random", "random+dot_product"]
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--size", choices=models.SIZES, default="tiny")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--answer", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", help="a file for the results")
    arguments = parser.parse_args()

    print(timing.machine())
    keras.utils.set_random_seed(0)
    tokenizer = data.train_tokenizer([" ".join(WORDS)] * 20, 400)
    rng = np.random.default_rng(0)
    results = []
    for task in arguments.tasks:
        asks, sizes = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            for attention in dict.fromkeys([*arguments.attentions, REFERENCE]):
                model = make(task, attention, arguments, tokenizer)
                for precompute in (True, False):
                    path = pathlib.Path(folder, f"model_{len(asks)}")
                    version = export(model, path, precompute=precompute)
                    asks[attention, precompute], sizes[attention, precompute] = loaded(version)
        for batch in arguments.batches:
            texts = np.array([" ".join(rng.choice(WORDS, arguments.length)) for _ in range(batch)], object)
            contestants = {name: functools.partial(ask, texts) for name, ask in asks.items()}
            seconds = timing.rounds(contestants, arguments.rounds)
            rows = [
                {
                    "attention": attention,
                    f"time / {REFERENCE}": timing.show_ratio(
                        seconds[attention, True], seconds[REFERENCE, True]
                    ),
                    "time / not precomputed": timing.show_ratio(
                        seconds[attention, True], seconds[attention, False]
                    ),
                    "ms": timing.milliseconds(seconds[attention, True]),
                    "texts/s": f"{batch / np.median(seconds[attention, True]):.0f}",
                    "MB": f"{sizes[attention, True] / 1e6:.2f}",
                    "MB not precomputed": f"{sizes[attention, False] / 1e6:.2f}",
                }
                for attention, precompute in asks
                if precompute
            ]
            print(f"\n{task}, {arguments.size}, batch {batch}\n\n{timing.table(rows)}", flush=True)
            results += [{"task": task, "batch": batch, **row} for row in rows]
    if arguments.json:
        timing.write_json(arguments.json, results)


if __name__ == "__main__":
    main()
