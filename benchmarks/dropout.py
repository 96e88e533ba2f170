"""Which dropout of a table's attention weights trains better: one for the batch, or one for each example.

    python benchmarks/dropout.py text.txt.gz --results dropout.jsonl

Trains a causal language model of characters (4 layers, width 128, 4 heads, 64 characters, 12 windows in a
step) with random synthesizers, and prints a line for each run: its held-out loss. A run that stands in the
file of results is not run again.
"""

import argparse
import itertools
import json
import pathlib
import statistics

import character_lm
import keras
from keras import ops

from keras_synth import alignments
from keras_synth.layers import SynthesizerDecoder

HEADS, WIDTH, LENGTH = 4, 128, 64


@keras.saving.register_keras_serializable("keras_synth")
class PerExample(alignments.RandomAlignment):
    """A random alignment whose logits have a batch axis, and so a dropout of their own for each example."""

    depends_on_input = True

    def has_table(self, causal):
        return False

    def call(self, query, keys=None, start_index=0, key_length=None, key_mask=None, causal=False):
        logits = super().call(query, keys, start_index, key_length, key_mask, causal)
        return ops.broadcast_to(logits, (ops.shape(query)[0], *ops.shape(logits)))


ALIGNMENTS = {"batch": alignments.RandomAlignment, "example": PerExample}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, required=True, help="a file of JSON lines")
    arguments = parser.parse_args()
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    losses = {tuple(run): loss for *run, loss in (json.loads(line).values() for line in lines)}
    settings = list(itertools.product(arguments.rates, ALIGNMENTS))
    for seed, (rate, dropout_of) in itertools.product(range(arguments.seeds), settings):
        run = (rate, dropout_of, seed, arguments.steps)
        if run in losses:
            continue
        keras.utils.set_random_seed(seed)
        losses[run] = character_lm.held_out_loss(
            arguments.text,
            lambda make=ALIGNMENTS[dropout_of], rate=rate: SynthesizerDecoder(
                4 * WIDTH, HEADS, make(HEADS, LENGTH), attention_dropout=rate, normalize_first=True
            ),
            arguments.steps,
            num_layers=4,
            width=WIDTH,
            length=LENGTH,
            batch_size=12,
        )
        line = dict(zip(("rate", "dropout_of", "seed", "steps", "loss"), (*run, losses[run]), strict=True))
        with arguments.results.open("a") as file:
            print(json.dumps(line), file=file)
        print(json.dumps(line), flush=True)
    for rate, dropout_of in settings:
        found = [losses[rate, dropout_of, seed, arguments.steps] for seed in range(arguments.seeds)]
        spread = f"{min(found):.4f} to {max(found):.4f}"
        print(f"dropout {rate}, one for each {dropout_of:8} {statistics.mean(found):.4f}  ({spread})")


if __name__ == "__main__":
    main()
