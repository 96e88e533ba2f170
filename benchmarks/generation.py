"""How fast models generate, and how large their caches are.

    python3 run.py benchmarks/generation.py
    python3 run.py benchmarks/generation.py --batches 1 --lengths 128 --names random

Prints, for each batch size and length, the tokens in a second that a causal LM generates greedily after a
prompt of one token, as a multiple of those of the same model with the dot product, and the bytes of its
cache. `CachedMultiHeadAttention` is KerasHub's own layer in KerasHub's own decoder block, in a model of the
same sizes.
"""

import argparse
import itertools

import keras
import keras_hub
import numpy as np
import tensorflow as tf
import timing
from keras import ops

from keras_synth import models

REFERENCE, PEER = "dot_product", "CachedMultiHeadAttention"
NAMES = (
    "random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "random+dot_product",
    "local_dense",
    "decay",
    "average",
)


class PeerBackbone(keras_hub.models.Backbone):
    """A decoder of KerasHub's `TransformerDecoder`s, with the interface that generation needs here."""

    def __init__(
        self, vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim, max_length, **_
    ):
        self.token_embedding = keras_hub.layers.ReversibleEmbedding(vocabulary_size, hidden_dim)
        self.position_embedding = keras_hub.layers.SinePositionEncoding()
        self.blocks = [
            keras_hub.layers.TransformerDecoder(intermediate_dim, num_heads, normalize_first=True)
            for _ in range(num_layers)
        ]
        self.normalization = keras.layers.LayerNormalization()
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")
        }
        x = self.token_embedding(inputs["token_ids"])
        x = x + self.position_embedding(x)
        for block in self.blocks:
            x = block(x, decoder_padding_mask=inputs["padding_mask"])
        super().__init__(inputs, self.normalization(x))
        self.cache_shape = (num_layers, 2, num_heads, hidden_dim // num_heads)

    def init_cache(self, batch_size, length):
        num_layers, two, heads, key_dim = self.cache_shape
        return ops.zeros((batch_size, num_layers, two, length, heads, key_dim))

    def decode_with_cache(self, token_ids, cache, index, length=None):
        x = self.token_embedding(token_ids)
        x = x + self.position_embedding(x, start_index=index)
        caches = []
        for i, block in enumerate(self.blocks):
            x, layer_cache = block(
                x, self_attention_cache=cache[:, i], self_attention_cache_update_index=index
            )
            caches.append(layer_cache)
        return self.normalization(x), ops.stack(caches, axis=1)


def make(name, config):
    backbone = PeerBackbone(**config) if name == PEER else None
    backbone = backbone or models.SynthesizerDecoderBackbone(**config, attention=name)
    model = models.SynthesizerCausalLM(backbone)
    model.compile(sampler="greedy", jit_compile=False)
    return model


def cache_bytes(model, batch, length):
    cache = model.backbone.init_cache(batch, length)
    return sum(np.prod(x.shape) * tf.as_dtype(x.dtype).size for x in keras.tree.flatten(cache))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", nargs="+", default=list(NAMES), help="alignments and baselines")
    parser.add_argument("--size", default="small", choices=models.SIZES)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--dtype", default="float32", help="dtype policy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="file to write the results to")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    tf.get_logger().setLevel("ERROR")  # it warns of many functions of one name
    keras.config.set_dtype_policy(arguments.dtype)
    print(timing.machine())
    names = dict.fromkeys((REFERENCE, PEER, *arguments.names))
    results = []
    for length, batch in itertools.product(arguments.lengths, arguments.batches):
        config = {"vocabulary_size": 8000, **models.SIZES[arguments.size], "max_length": length}
        prompt = np.arange(length) < np.ones((batch, 1))
        x = {"token_ids": prompt * 5, "padding_mask": prompt}
        contestants, sizes = {}, {}
        for name in names:
            model = make(name, config)
            contestants[name] = lambda model=model, x=x: model.generate(x, stop_token_ids=None)
            sizes[name] = cache_bytes(model, batch, length)
        seconds = timing.rounds(contestants, arguments.rounds)
        rows = [
            {
                "attention": name,
                f"speed / {REFERENCE}": timing.show_ratio(seconds[REFERENCE], times),
                "tokens/s": round(batch * (length - 1) / np.median(times)),
                "cache MB": f"{sizes[name] / 1e6:.2f}",
                f"cache / {REFERENCE}": f"{sizes[name] / sizes[REFERENCE]:.2f}",
            }
            for name, times in seconds.items()
        ]
        print(f"\n{arguments.size}, batch {batch}, length {length}\n\n{timing.table(rows)}", flush=True)
        results += [{"batch": batch, "length": length, **row} for row in rows]
        keras.backend.clear_session()
    if arguments.json:
        timing.write_json(arguments.json, results)


if __name__ == "__main__":
    main()
