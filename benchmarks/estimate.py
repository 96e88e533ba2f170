"""What Transformer base on WMT14 costs with each alignment, from counted operations and bytes.

    python3 run.py benchmarks/estimate.py
    python3 run.py benchmarks/estimate.py --devices 1 --peak 989e12 --names random dot_product

Traces the whole training step of one device, forward, backward and optimizer, without running it, and
counts in the graph: the operations of matrix products, and the bytes of the tensors that the backward pass
takes from the forward pass. Prints them, and the time that follows from the operations a second that a
device does at its best, the share of these that it reaches, and the bandwidth by which gradients are added.
"""

import argparse
import math

import keras
import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from keras_synth import models

NAMES = (
    "dot_product",
    "random",
    "fixed_random",
    "factorized_random",
    "dense",
    "factorized_dense",
    "random+dot_product",
    "dense+dot_product",
    "lightweight_convolution",
    "dynamic_convolution",
)
REFERENCE = "dot_product"
STEPS = 100_000
#: Float32 weights and gradients, and the two moments of Adam.
STATE_BYTES = 16


class Count:
    """What a traced training step does.

    Args:
        graph: The graph of a function that calls `train_step`.

    Attributes:
        operations: int. Multiplications and additions of matrix products.
        saved: int. Bytes of the tensors that the backward pass takes from the forward pass.
    """

    def __init__(self, graph):
        self.functions = {f.signature.name: f for f in graph.as_graph_def().library.function}
        self.operations = self.count(graph)
        saved = {
            tensor.name: tensor
            for operation in graph.get_operations()
            if is_backward(operation) and operation.type not in ("Shape", "ShapeN", "Size", "ZerosLike")
            for tensor in operation.inputs
            if not is_backward(tensor.op) and is_activation(tensor)
        }
        self.saved = sum(math.prod(t.shape) * t.dtype.size for t in saved.values())

    def count(self, graph):
        return sum(self.of(operation) for operation in graph.get_operations())

    def of(self, operation):
        if operation.type in ("If", "StatelessIf"):  # one of two ways to the same result
            branches = ("then_branch", "else_branch")
            return max(self.called(operation.get_attr(branch).name) for branch in branches)
        if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
            return self.called(operation.get_attr("f").name)
        if operation.type in ("While", "StatelessWhile"):
            raise ValueError(f"How often a loop runs is unknown. Received: {operation.name}")
        return contraction(operation)

    def called(self, name):
        return self.count(function_def_to_graph(self.functions[name]))


def contraction(operation):
    """The operations of a matrix product; of anything else none are counted."""
    if operation.type in ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
        return (
            2 * operation.inputs[0].shape[-2 if transposed else -1] * math.prod(operation.outputs[0].shape)
        )
    if operation.type == "Einsum":
        labels = operation.get_attr("equation").decode().split("->")[0].split(",")
        sizes = {
            label: size
            for names, tensor in zip(labels, operation.inputs, strict=True)
            for label, size in zip(names, tensor.shape, strict=True)
        }
        return 2 * math.prod(sizes.values())
    if "Conv" in operation.type:
        raise ValueError(f"Operations of {operation.type} are not counted. Received: {operation.name}")
    return 0


def is_backward(operation):
    return "gradient_tape" in operation.name or operation.name.startswith("adam")


def is_activation(tensor):
    from_outside = ("Placeholder", "Const", "ReadVariableOp", "ResourceGather")
    return tensor.op.type not in from_outside and tensor.dtype not in (tf.resource, tf.variant)


def trace(attention, batch_size, length, dtype):
    """The model with this attention, and the `Count` of its training step."""
    backbone = models.SynthesizerEncoderDecoderBackbone.from_size(
        "transformer_base", attention=attention, dtype=dtype
    )
    model = models.SynthesizerSeq2SeqLM(backbone)
    model.compile("adam", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    token_ids = tf.TensorSpec((batch_size, length), "int32")
    x = {name: token_ids for name in backbone.input}
    weight = tf.TensorSpec((batch_size, length), "float32")
    step = tf.function(model.train_step).get_concrete_function((x, token_ids, weight))
    return model, Count(step.graph)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", nargs="+", default=NAMES, help="the alignments")
    parser.add_argument("--tokens", type=int, default=25_000, help="in a batch, a side, of all devices")
    parser.add_argument("--length", type=int, default=32, help="of a sentence, with padding")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--dtype", default="mixed_bfloat16")
    parser.add_argument("--peak", type=float, default=312e12, help="operations a second; default: A100")
    parser.add_argument("--share", type=float, default=0.3, help="of the peak that is reached")
    parser.add_argument("--bandwidth", type=float, default=300e9, help="bytes a second between devices")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    batch_size = round(arguments.tokens / arguments.devices / arguments.length)
    print(f"{batch_size} pairs of {arguments.length} tokens a side on each of {arguments.devices} devices")
    titles = (
        "alignment",
        "parameters (10^6)",
        "operations a step (10^12)",
        "ratio",
        "state (GB)",
        "saved (GB)",
        "ms a step",
        "hours",
    )
    print("|", " | ".join(titles), "|")
    print("|", " | ".join("---" for _ in titles), "|")
    reference = None
    for name in dict.fromkeys([REFERENCE, *arguments.names]):
        model, count = trace(name, batch_size, arguments.length, arguments.dtype)
        operations = count.operations * arguments.devices
        reference = reference or operations
        trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
        sent = 2 * 4 * trained * (1 - 1 / arguments.devices)  # around a ring, in float32
        seconds = count.operations / (arguments.peak * arguments.share) + sent / arguments.bandwidth
        cells = (
            name,
            f"{model.count_params() / 1e6:.1f}",
            f"{operations / 1e12:.2f}",
            f"{operations / reference:.2f}",
            f"{trained * STATE_BYTES / 1e9:.2f}",
            f"{count.saved / 1e9:.2f}",
            f"{seconds * 1e3:.1f}",
            f"{seconds * STEPS / 3600:.2f}",
        )
        print("|", " | ".join(cells), "|", flush=True)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
