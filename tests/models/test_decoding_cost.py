"""What a step of decoding costs, in multiplications, counted in the graph that `generate` runs."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import BOTH, DECODER, inputs, language_model

BATCH, WIDTH, LENGTH = 2, 14, 9


def graphs(cls, attention, num_layers=1, length=LENGTH):
    """The model, the graph of generation with a cache of so many positions, and that of one step in it."""
    model = language_model(cls, attention=attention, num_layers=num_layers, max_length=24)
    specs = {
        name: tf.TensorSpec(value.shape, "int32") for name, value in inputs(cls, [4, 2], length).items()
    }
    graph = tf.function(model.generate_step).get_concrete_function(specs).graph
    (loop,) = (op for op in graph.get_operations() if op.type in ("While", "StatelessWhile"))
    return model, graph, graph._get_function(loop.get_attr("body").name).graph


def multiplications(graph):
    """The number of multiplications in the matrix products of a graph."""
    count = 0
    for op in graph.get_operations():
        shapes = [tensor.shape.as_list() for tensor in op.inputs]
        if op.type in ("MatMul", "BatchMatMulV2"):
            transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            count += op.outputs[0].shape.num_elements() * shapes[0][-2 if transposed else -1]
        elif op.type == "Einsum":
            operands, _, result = op.get_attr("equation").decode().partition("->")
            operands = operands.split(",")
            sizes = dict(zip("".join(operands), sum(shapes, []), strict=True))
            if len(operands) == 2 and set(sizes) > set(result):
                count += np.prod(list(sizes.values()))
    return count


def kernels(block, but=()):
    """The number of weights by which a block multiplies each token."""
    return sum(
        np.prod(weight.shape)
        for weight in block.weights
        if "kernel" in weight.name and not any(f"cross_attention/{name}" in weight.path for name in but)
    )


@pytest.mark.parametrize(
    "cls, attention",
    [(DECODER, "random"), (DECODER, "lightweight_convolution"), (BOTH, "dense+dot_product")],
)
def test_a_step_costs_the_same_at_every_position_and_in_every_layer(cls, attention):
    costs = []
    for num_layers in (1, 2, 3):
        _, _, step = graphs(cls, attention, num_layers)
        # One graph serves all steps, and no size in it depends on the position.
        assert all(tensor.shape.is_fully_defined() for op in step.get_operations() for tensor in op.outputs)
        costs.append(multiplications(step))
    assert costs[2] - costs[1] == costs[1] - costs[0] > 0


@pytest.mark.parametrize(
    "cls, attention", [(DECODER, "random"), (DECODER, "dot_product"), (BOTH, "random")]
)
def test_each_kernel_multiplies_each_token_once(cls, attention):
    model, graph, short = graphs(cls, attention)
    _, _, long = graphs(cls, attention, length=2 * LENGTH)
    (block,) = model.backbone.decoder_layers
    products = 2 if attention == "dot_product" else 1  # of queries and keys, of weights and values
    # What grows with the length of the cache mixes its values, and its keys before: in one product for all
    # heads, at most.
    mixing = multiplications(long) - multiplications(short)
    assert 0 < mixing <= BATCH * products * block.num_heads * WIDTH * LENGTH
    logits = WIDTH * model.backbone.vocabulary_size
    # Keys and values of the source are in the cache, and take two products for each of its 11 tokens.
    once = kernels(block, but=("key", "value")) + logits
    source = 2 * block.num_heads * WIDTH * 11 if cls is BOTH else 0
    assert BATCH * once <= multiplications(short) - mixing <= BATCH * (once + source)
    if cls is DECODER:  # the prompt, from which no logits are made
        mixing = BATCH * products * WIDTH * LENGTH**2
        assert multiplications(graph) == BATCH * LENGTH * kernels(block) + mixing
