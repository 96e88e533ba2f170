"""Whether training waits for its data: the pipeline of dates, next to the steps of `fit`.

    python3 run.py benchmarks/pipeline.py
    python3 run.py benchmarks/pipeline.py --data my_texts --source en --target de --size small

Prints the milliseconds of a training step; of these, by TensorFlow's profile, those in which the step
waited for its batch, the first batch of an epoch included, for which pairs are shuffled and sorted; those
that a batch takes of a pipeline that does nothing else; and the share of padding in the batches.
"""

import argparse
import time

import keras
import numpy as np
import timing

from keras_synth import data, models


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="dates", help="as of examples/translation.py")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--attention", default="random")
    parser.add_argument("--size", default="tiny", choices=models.SIZES)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", help="file to write the results to")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    print(timing.machine())
    keras.utils.set_random_seed(0)
    pairs = data.load_pairs(arguments.data, arguments.source, arguments.target).train
    texts = (text for pair in pairs.as_numpy_iterator() for text in pair.values())
    tokenizer = data.train_tokenizer(texts, 1000)
    config = {**models.SIZES[arguments.size], "vocabulary_size": tokenizer.vocabulary_size()}
    backbone = models.SynthesizerEncoderDecoderBackbone(
        **{**config, "max_length": 128}, attention=arguments.attention
    )
    preprocessor = models.SynthesizerSeq2SeqLMPreprocessor(tokenizer, 128, 128)
    model = models.SynthesizerSeq2SeqLM(backbone, preprocessor)
    model.compile("adam", jit_compile=False)

    epoch = data.token_batches(
        pairs, preprocessor, batch_tokens=arguments.batch_tokens, shuffle=True, seed=0
    )
    start = time.perf_counter()
    masks = [
        np.concatenate([x[f"{side}_padding_mask"].ravel() for side in ("encoder", "decoder")])
        for x, *_ in epoch.as_numpy_iterator()
    ]
    alone = (time.perf_counter() - start) / len(masks)

    def fit(steps):
        model.fit(epoch.repeat(), steps_per_epoch=steps, verbose=0, shuffle=False)

    fit(len(masks))  # all shapes are traced
    start = time.perf_counter()
    fit(arguments.steps)
    step = (time.perf_counter() - start) / arguments.steps
    waiting = timing.events(lambda: fit(arguments.steps))["IteratorGetNextOp::DoCompute"] / arguments.steps
    rows = [
        {
            "waiting / step": f"{waiting / 1e3 / step:.4f}",
            "pipeline alone / step": f"{alone / step:.3f}",
            "ms a step": f"{step * 1e3:.1f}",
            "padding": f"{1 - np.concatenate(masks).mean():.1%}",
            "batches": len(masks),
        }
    ]
    print(f"\n{arguments.data}, {arguments.size}, {arguments.attention}\n\n{timing.table(rows)}")
    if arguments.json:
        timing.write_json(arguments.json, rows)


if __name__ == "__main__":
    main()
