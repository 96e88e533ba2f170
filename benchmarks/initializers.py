"""How the start of the alignments' tables changes what is learned: the loss after some training steps.

    python benchmarks/initializers.py text.txt.gz          # a causal language model of characters
    python benchmarks/initializers.py folder en de         # translation of <split>.<language> files

Prints one line for each start: the held-out loss after `--steps` steps, the mean of `--seeds` runs.
"""

import argparse
import pathlib
import re

import character_lm
import keras
import numpy as np

from keras_synth import alignments
from keras_synth.layers import SynthesizerDecoder

HEADS, WIDTH, LAYERS, LENGTH = 4, 128, 2, 128


def normal(stddev):
    return keras.initializers.RandomNormal(stddev=stddev) if stddev else keras.initializers.Zeros()


def starts():
    """Name: what makes the alignment. The standard deviation is that of the logits."""
    for stddev in (0.0, 0.1, 1.0, 2.0):
        yield (
            f"random, stddev {stddev}",
            lambda s=stddev: alignments.RandomAlignment(HEADS, LENGTH, alignment_initializer=normal(s)),
        )
    for stddev in (0.0, 1.0, 2.0, 4.0):
        yield (
            f"fixed random, stddev {stddev}" + (" (uniform averaging)" if not stddev else ""),
            lambda s=stddev: alignments.RandomAlignment(
                HEADS, LENGTH, trainable_alignment=False, alignment_initializer=normal(s)
            ),
        )
    for stddev in (0.1, 1.0, 2.0):
        yield (
            f"factorized random, stddev {stddev}",
            lambda s=stddev: alignments.FactorizedRandomAlignment(
                HEADS, LENGTH, alignment_initializer=normal((s / 8**0.5) ** 0.5)
            ),
        )
    for initializer in ("glorot_uniform", "he_normal", "lecun_normal"):
        yield (
            f"dense, {initializer}",
            lambda i=initializer: alignments.DenseAlignment(
                HEADS, WIDTH // HEADS, LENGTH, kernel_initializer=i
            ),
        )


def language_model_loss(path, alignment, steps):
    return character_lm.held_out_loss(
        path,
        lambda: SynthesizerDecoder(4 * WIDTH, HEADS, alignment(), normalize_first=True),
        steps,
        LAYERS,
        WIDTH,
        LENGTH,
    )


def translation_loss(path, source, target, alignment, steps):
    from keras_synth import data, models

    if not hasattr(translation_loss, "batches"):  # the same for every start, and slow
        pairs = data.load_pairs(str(path), source, target)
        texts = (text for pair in pairs.train.as_numpy_iterator() for text in pair.values())
        tokenizer = data.train_tokenizer(texts, 2000)
        preprocessor = models.SynthesizerSeq2SeqLMPreprocessor(tokenizer, LENGTH, LENGTH)
        translation_loss.batches = [
            data.token_batches(split, preprocessor, batch_tokens=2048, shuffle=shuffle)
            for split, shuffle in ((pairs.train, True), (pairs.validation, False))
        ]
        translation_loss.vocabulary_size = tokenizer.vocabulary_size()
    backbone = models.SynthesizerEncoderDecoderBackbone(
        translation_loss.vocabulary_size, LAYERS, HEADS, WIDTH, 4 * WIDTH, LENGTH, alignment()
    )
    model = models.SynthesizerSeq2SeqLM(backbone)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps)), jit_compile=False
    )
    training, validation = translation_loss.batches
    model.fit(training.repeat().take(steps), steps_per_epoch=steps, shuffle=False, verbose=0)
    return model.evaluate(validation, verbose=0, return_dict=True)["loss"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("languages", nargs="*", metavar="language")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="a regular expression for the names of the starts")
    arguments = parser.parse_args()
    for name, alignment in starts():
        if not re.search(arguments.only, name):
            continue
        losses = []
        for seed in range(arguments.seeds):
            if not arguments.languages:
                keras.utils.set_random_seed(seed)
                losses.append(language_model_loss(arguments.data, alignment, arguments.steps))
            else:
                losses.append(
                    translation_loss(arguments.data, *arguments.languages, alignment, arguments.steps)
                )
        print(f"{name:45} {np.mean(losses):.4f}  {[round(float(loss), 4) for loss in losses]}", flush=True)


if __name__ == "__main__":
    main()
