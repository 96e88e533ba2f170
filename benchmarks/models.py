"""How fast whole models train: one step of a masked LM, a causal LM, and a sequence-to-sequence LM.

    python3 run.py benchmarks/models.py
    python3 run.py benchmarks/models.py --tasks masked_lm --names random dynamic_convolution dot_product
    python3 run.py benchmarks/models.py --tasks causal_lm --names random --fit

Prints, for each task and attention, the time of a training step, forward, backward and optimizer, as a
share of the dot product's, and the tokens in a second. With `--fit`, what `fit` takes from one step to the
next, and what the bare step function does. A call of `fit` also takes about a second to start, once.
"""

import argparse
import time

import keras
import numpy as np
import tensorflow as tf
import timing

from keras_synth import models

REFERENCE = "dot_product"
NAMES = (
    "random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "random+dot_product",
    "lightweight_convolution",
    "dynamic_convolution",
)
#: Of a masked LM, 15 in 100 tokens are predicted.
MASKED_SHARE = 0.15


def tokens(shape, vocabulary_size, side=""):
    token_ids = np.random.default_rng(0).integers(5, vocabulary_size, shape).astype("int32")
    return {f"{side}token_ids": token_ids, f"{side}padding_mask": np.ones(shape, "int32")}


def masked_lm(shape, vocabulary_size):
    masked = max(int(shape[1] * MASKED_SHARE), 1)
    positions = np.tile(np.arange(masked, dtype="int32"), (shape[0], 1))
    x = {**tokens(shape, vocabulary_size), "mask_positions": positions}
    return (
        models.SynthesizerMaskedLM,
        models.SynthesizerEncoderBackbone,
        (x, x["token_ids"][:, :masked], np.ones(positions.shape, "float32")),
    )


def causal_lm(shape, vocabulary_size):
    x = tokens(shape, vocabulary_size)
    return (
        models.SynthesizerCausalLM,
        models.SynthesizerDecoderBackbone,
        (x, x["token_ids"], np.ones(shape, "float32")),
    )


def seq2seq_lm(shape, vocabulary_size):
    x = {**tokens(shape, vocabulary_size, "encoder_"), **tokens(shape, vocabulary_size, "decoder_")}
    return (
        models.SynthesizerSeq2SeqLM,
        models.SynthesizerEncoderDecoderBackbone,
        (x, x["decoder_token_ids"], np.ones(shape, "float32")),
    )


TASKS = {"masked_lm": masked_lm, "causal_lm": causal_lm, "seq2seq_lm": seq2seq_lm}


def make(task, attention, size, shape):
    """A model and a data set that repeats one batch."""
    config = {"vocabulary_size": 8000, **models.SIZES[size], "max_length": shape[1]}
    task_class, backbone_class, batch = TASKS[task](shape, config["vocabulary_size"])
    model = task_class(backbone_class(**config, attention=attention))
    model.compile("adam", weighted_metrics=[], jit_compile=False)
    data = tf.data.Dataset.from_tensors(batch).cache().repeat()
    return model, data


def step(model, data):
    """The bare step function on a batch that is there."""
    batch = next(iter(data))

    @tf.function
    def train_step():
        return model.train_step(batch)

    return train_step


def repeated(function, calls):
    return lambda: [function() for _ in range(calls)]


def fitting(model, data, steps):
    """A function that returns the seconds from the end of the first of `steps + 1` steps to the last."""

    def fit():
        ends = []
        callback = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
        )
        model.fit(data, steps_per_epoch=steps + 1, verbose=0, callbacks=[callback])
        return ends[-1] - ends[0]

    return fit


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--names", nargs="+", default=list(NAMES), help="alignments and baselines")
    parser.add_argument("--size", default="transformer_base", choices=models.SIZES)
    parser.add_argument("--shape", default="16x128", help="BATCHxLENGTH")
    parser.add_argument("--dtype", default="float32", help="dtype policy")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fit", action="store_true", help="compare `fit` with the bare step function")
    parser.add_argument("--fit-steps", type=int, default=20, help="steps of one `fit`")
    parser.add_argument("--json", help="file to write the results to")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    tf.get_logger().setLevel("ERROR")  # it warns of many functions of one name
    keras.config.set_dtype_policy(arguments.dtype)
    shape = tuple(map(int, arguments.shape.split("x")))
    print(timing.machine())
    results = []
    for task in arguments.tasks:
        contestants, references, calls = {}, {}, arguments.fit_steps if arguments.fit else 1
        for name in dict.fromkeys((REFERENCE, *arguments.names)):
            model, data = make(task, name, arguments.size, shape)
            if arguments.fit:
                bare, fit = f"{name}, bare step", f"{name}, fit"
                contestants[bare], contestants[fit] = (
                    repeated(step(model, data), calls),
                    fitting(model, data, calls),
                )
                references |= {bare: bare, fit: bare}
            else:
                contestants[name], references[name] = step(model, data), REFERENCE
        seconds = timing.rounds(contestants, arguments.rounds)
        rows = [
            {
                "attention": name,
                f"/ {'bare step' if arguments.fit else REFERENCE}": timing.show_ratio(
                    times, seconds[references[name]]
                ),
                "ms": timing.milliseconds([t / calls for t in times]),
                "tokens/s": round(calls * np.prod(shape) / np.median(times)),
            }
            for name, times in seconds.items()
        ]
        title = f"{task}, {arguments.size}, batch x length {arguments.shape}, {arguments.dtype}"
        print(f"\n{title}\n\n{timing.table(rows)}", flush=True)
        results += [{"task": task, **row} for row in rows]
        keras.backend.clear_session()
    if arguments.json:
        timing.write_json(arguments.json, results)


if __name__ == "__main__":
    main()
