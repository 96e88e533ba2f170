"""How time and memory grow with the length of the sequence, at the same number of tokens in a batch.

    python3 run.py benchmarks/growth.py
    python3 run.py benchmarks/growth.py --lengths 128 512 --names random dot_product --picture growth.png

Prints, for each length, the time of a forward and backward pass and its peak memory, and draws both.
"""

import argparse

import keras
import layers
import tensorflow as tf
import timing

NAMES = (
    "random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "dot_product",
    "linear",
    "local_dense",
    "decay",
    "average",
)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", nargs="+", default=list(NAMES), help="alignments and baselines")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128 << i for i in range(6)])
    parser.add_argument("--tokens", type=int, default=8192, help="tokens in a batch")
    parser.add_argument("--dtype", default="float32", help="dtype policy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="file to write the results to")
    parser.add_argument("--picture", help="PNG file to draw the results to")
    return parser.parse_args()


def draw(results, path):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4))
    lengths = sorted({row["length"] for row in results})
    for axis, quantity in zip(axes, ("ms", "peak MB"), strict=True):
        for name in dict.fromkeys(row["layer"] for row in results):
            rows = [row for row in results if row["layer"] == name]
            axis.plot([row["length"] for row in rows], [row[quantity] for row in rows], "o-", label=name)
        axis.set(xscale="log", yscale="log", xlabel="length", title=quantity)
        axis.set_xticks(lengths, labels=lengths)
        axis.set_xticks([], minor=True)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")


def main():
    arguments = parse_arguments()
    tf.get_logger().setLevel("ERROR")  # it warns of many functions of one name
    keras.config.set_dtype_policy(arguments.dtype)
    print(timing.machine())
    results = []
    for length in arguments.lengths:
        shape = (max(arguments.tokens // length, 1), length)
        names = ("MultiHeadAttention", *arguments.names)
        contestants = {name: layers.passes(name, "none", shape)[1] for name in names}
        seconds = timing.rounds(contestants, arguments.rounds)
        options = ["--shapes", f"{shape[0]}x{length}", "--dtypes", arguments.dtype, "--masks", "none"]
        rows = []
        for name in names:
            peak = timing.peak_memory(layers.__file__, "--peak-memory-of", name, *options)
            rows.append(
                {
                    "layer": name,
                    "length": length,
                    "/ MultiHeadAttention": timing.show_ratio(seconds[name], seconds[names[0]]),
                    "ms": float(timing.milliseconds(seconds[name])),
                    "peak MB": round(peak / 1e6),
                }
            )
        print(f"\n{timing.table(rows)}", flush=True)
        results += rows
        keras.backend.clear_session()
    if arguments.json:
        timing.write_json(arguments.json, results)
    if arguments.picture:
        draw(results, arguments.picture)


if __name__ == "__main__":
    main()
