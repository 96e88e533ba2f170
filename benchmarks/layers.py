"""How fast attention layers are, next to `keras.layers.MultiHeadAttention` and to bare matrix products.

    python3 run.py benchmarks/layers.py
    python3 run.py benchmarks/layers.py --shapes 16x512 --names random --masks none padding causal

Prints, for each shape, dtype and mask: the time of a forward pass, and of a forward and backward pass, as
a share of `MultiHeadAttention`'s, as a multiple of the floor's and of the layer's own without a mask, and
in milliseconds; and, with the first of the masks, the peak memory of forward and backward, above what the
process has before.

The floor are the three matrix products that a random synthesizer cannot do without: the value projection,
one precomputed `(L, L)` matrix for each head times the values, and the output projection, without biases,
masks, softmax, or bringing axes into order.
"""

import argparse
import itertools

import keras
import numpy as np
import tensorflow as tf
import timing

from keras_synth.layers import ATTENTIONS
from keras_synth.layers.attention import make_self_attention

WIDTH, HEADS = 512, 8
MASKS = ("none", "padding", "causal", "padding+causal")
#: What each layer is compared with.
REFERENCES = ("floor", "MultiHeadAttention")
MIXTURES = ("random+dense", "random+dot_product", "dense+dot_product")


class Floor(keras.layers.Layer):
    """Three bare matrix products."""

    def build(self, query_shape):
        length = query_shape[1]
        self.value_kernel = self.add_weight(shape=(WIDTH, WIDTH))
        self.weights_table = self.add_weight(shape=(HEADS, length, length))
        self.output_kernel = self.add_weight(shape=(WIDTH, WIDTH))

    def call(self, x):
        batch, length, _ = x.shape
        value = tf.matmul(tf.reshape(x, (-1, WIDTH)), self.value_kernel)
        value = tf.reshape(value, (HEADS, length, batch * WIDTH // HEADS))
        mixed = tf.matmul(tf.convert_to_tensor(self.weights_table), value)
        mixed = tf.matmul(tf.reshape(mixed, (-1, WIDTH)), self.output_kernel)
        return tf.reshape(mixed, (batch, length, WIDTH))


def make_layer(name, length):
    if name == "floor":
        return Floor()
    if name == "MultiHeadAttention":
        return keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
    return make_self_attention(HEADS, WIDTH // HEADS, name, max_length=length)


def call_arguments(mask, shape):
    batch, length = shape
    lengths = np.linspace(length // 2, length, batch).astype(int)
    padding = tf.constant(np.arange(length) < lengths[:, None])
    arguments = {"query_mask": padding, "value_mask": padding} if "padding" in mask else {}
    return arguments | ({"use_causal_mask": True} if "causal" in mask else {})


def passes(name, mask, shape):
    """Two functions without arguments: a forward pass, and a forward and backward pass."""
    layer = make_layer(name, shape[1])
    x = tf.cast(tf.random.normal((*shape, WIDTH)), keras.config.dtype_policy().compute_dtype)
    if name == "floor":
        inputs, arguments = (x,), {}
    else:
        inputs, arguments = (x, x), call_arguments(mask, shape)
    layer(*inputs, **arguments)
    variables = [weight.value for weight in layer.trainable_weights]

    @tf.function
    def forward():
        return layer(*inputs, **arguments)

    @tf.function
    def forward_and_backward():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(layer(*inputs, **arguments), "float32"))
        return tape.gradient(loss, [x, *variables])

    return forward, forward_and_backward


def measure(names, mask, shape, number):
    """Rows of the table: ratios first."""
    contestants = {}
    for name, m in itertools.product((*REFERENCES, *names), dict.fromkeys((mask, "none"))):
        contestants[name, m, "forward"], contestants[name, m, "both"] = passes(name, m, shape)
    seconds = timing.rounds(contestants, number)
    references = {f"/ {name}": (name, mask) for name in reversed(REFERENCES)}
    for name in (*REFERENCES, *names):
        row = {"layer": name}
        if mask != "none":
            references["/ without mask"] = (name, "none")
        for (title, reference), kind in itertools.product(references.items(), ("forward", "both")):
            row[f"{kind} {title}"] = timing.show_ratio(seconds[name, mask, kind], seconds[*reference, kind])
        times = (seconds[name, mask, kind] for kind in ("forward", "both"))
        row["ms"] = " / ".join(map(timing.milliseconds, times))
        yield row


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*ATTENTIONS, *MIXTURES]
    parser.add_argument("--names", nargs="+", default=known, help="alignments, mixtures and baselines")
    parser.add_argument("--shapes", nargs="+", default=["64x128", "16x512", "4x2048"], help="BATCHxLENGTH")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "mixed_bfloat16"], help="dtype policies")
    parser.add_argument("--masks", nargs="+", default=list(MASKS), choices=MASKS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-memory", action="store_true", help="measure no memory, in a process for each")
    parser.add_argument("--profile", action="store_true", help="show the operations that take longest")
    parser.add_argument("--json", help="file to write the results to")
    parser.add_argument("--peak-memory-of", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    tf.get_logger().setLevel("ERROR")  # it warns of many functions of one name
    results = []
    if not arguments.peak_memory_of:
        print(timing.machine())
    for shape, dtype, mask in itertools.product(arguments.shapes, arguments.dtypes, arguments.masks):
        keras.config.set_dtype_policy(dtype)
        sizes = tuple(map(int, shape.split("x")))
        if arguments.peak_memory_of:
            timing.peak_of(passes(arguments.peak_memory_of, mask, sizes)[1])
            continue
        if arguments.profile:
            for name, kind in itertools.product(("floor", *arguments.names), (0, 1)):
                print(
                    f"\n{shape}, {dtype}, mask: {mask}, {name}, {('forward', 'forward and backward')[kind]}"
                )
                for operation, milliseconds in timing.profile(passes(name, mask, sizes)[kind]):
                    print(f"{milliseconds:8.1f} ms  {operation}", flush=True)
            continue
        # Linear attention has no causal form.
        names = [name for name in arguments.names if not (name == "linear" and "causal" in mask)]
        rows = list(measure(names, mask, sizes, arguments.rounds))
        if not arguments.no_memory and mask == arguments.masks[0]:
            options = ["--shapes", shape, "--dtypes", dtype, "--masks", mask]
            for row in rows:
                peak = timing.peak_memory(__file__, "--peak-memory-of", row["layer"], *options)
                row["peak MB"] = round(peak / 1e6)
        print(f"\nbatch x length {shape}, {dtype}, mask: {mask}\n\n{timing.table(rows)}", flush=True)
        results += [{"shape": shape, "dtype": dtype, "mask": mask, **row} for row in rows]
        keras.backend.clear_session()
    if arguments.json:
        timing.write_json(arguments.json, results)


if __name__ == "__main__":
    main()
