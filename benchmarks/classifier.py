"""Classifiers of sentences at equal budget: ours, and a plain Keras model of KerasHub's layers.

    python benchmarks/classifier.py --data sst2 --results docs/results/sst2.jsonl

`--data` is a folder with `train.tsv.gz`, `dev.tsv.gz` and `test.tsv.gz`, a text and its label in each line.
All models have the tokenizer, the size `tiny`, the optimizer and the number of epochs in common, and are
trained from scratch; ours by `fit` on strings and names of labels. Each run that has finished is a line of
`--results`, and is not run again. A table of all of them is printed in the end.
"""

import argparse
import gzip
import json
import pathlib
import random
import statistics
import time

import keras
import keras_hub
import numpy as np

from keras_synth import data, models

ATTENTIONS = ("dot_product", "random", "random+dot_product", "dense")
PLAIN = "plain Keras, TransformerEncoder"
LABELS = ["negative", "positive"]
VOCABULARY_SIZE, LENGTH, BATCH_SIZE, EPOCHS, LEARNING_RATE = 4000, 64, 32, 3, 1e-3


def read(path):
    """Reads the texts and the names of their labels."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").rsplit("\t", 1) for line in file]
    return [text for text, _ in rows], [LABELS[int(label)] for _, label in rows]


def make_ours(attention, tokenizer):
    backbone = models.SynthesizerEncoderBackbone.from_size(
        "tiny", vocabulary_size=tokenizer.vocabulary_size(), attention=attention
    )
    preprocessor = models.SynthesizerTextClassifierPreprocessor(tokenizer, LENGTH)
    return models.SynthesizerTextClassifier(backbone, labels=LABELS, preprocessor=preprocessor)


def make_plain(tokenizer):
    """The same size, in layers of Keras and KerasHub alone."""
    size = models.SIZES["tiny"]
    tokens = keras.Input((LENGTH,), dtype="int32")
    x = keras_hub.layers.TokenAndPositionEmbedding(
        tokenizer.vocabulary_size(), LENGTH, size["hidden_dim"], mask_zero=True
    )(tokens)
    for _ in range(size["num_layers"]):
        x = keras_hub.layers.TransformerEncoder(size["intermediate_dim"], size["num_heads"], dropout=0.1)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(len(LABELS))(x))


def run(name, seed, tokenizer, splits):
    """Trains one model, and returns what is to be known of it."""
    random.seed(seed)  # of the weights
    np.random.seed(seed)  # of the order of the examples
    if name == PLAIN:
        model = make_plain(tokenizer)
        packer = models.SynthesizerTextClassifierPreprocessor(tokenizer, LENGTH)
        splits = {
            split: (
                np.array(packer(texts)["token_ids"]),
                np.array([LABELS.index(label) for label in labels]),
            )
            for split, (texts, labels) in splits.items()
        }
    else:
        model = make_ours(name, tokenizer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss, metrics=["accuracy"], jit_compile=False)
    begin = time.perf_counter()
    model.fit(
        *splits["train"], batch_size=BATCH_SIZE, epochs=EPOCHS, validation_data=splits["dev"], verbose=2
    )
    seconds = time.perf_counter() - begin
    accuracies = {
        split: model.evaluate(*splits[split], batch_size=BATCH_SIZE, verbose=0, return_dict=True)[
            "accuracy"
        ]
        for split in ("dev", "test")
    }
    return {
        "model": name,
        "seed": seed,
        **accuracies,
        "parameters": model.count_params(),
        "seconds": round(seconds, 1),
    }


def print_table(results):
    print("| model | parameters | dev accuracy | test accuracy | each seed | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in (PLAIN, *ATTENTIONS):
        runs = [result for result in results if result["model"] == name]
        if runs:
            dev, test = ([100 * result[split] for result in runs] for split in ("dev", "test"))
            print(
                f"| {name} | {runs[0]['parameters']:,} | {statistics.mean(dev):.1f} | "
                f"{statistics.mean(test):.1f} | {', '.join(f'{value:.1f}' for value in test)} | "
                f"{statistics.mean(result['seconds'] for result in runs):.0f} |"
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("docs/results/sst2.jsonl"))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    splits = {split: read(arguments.data / f"{split}.tsv.gz") for split in ("train", "dev", "test")}
    tokenizer = data.train_tokenizer(splits["train"][0], VOCABULARY_SIZE)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    results = [json.loads(line) for line in lines]
    todo = [(name, seed) for seed in range(arguments.seeds) for name in (PLAIN, *ATTENTIONS)]
    for number, (name, seed) in enumerate(todo, start=1):
        if any((result["model"], result["seed"]) == (name, seed) for result in results):
            continue
        print(f"run {number} of {len(todo)}: {name}, seed {seed}", flush=True)
        results.append(run(name, seed, tokenizer, splits))
        with arguments.results.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
    print_table(results)


if __name__ == "__main__":
    main()
