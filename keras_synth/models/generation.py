"""What becomes of prompts before generation, and of tokens after it."""

import keras
from keras import ops


def check_prompts(batch):
    """Raises a `ValueError` if there are no prompts: an empty list, array, or dict of these."""
    for prompts in batch.values() if isinstance(batch, dict) else [batch]:
        if not isinstance(prompts, (str, bytes)) and hasattr(prompts, "__len__") and len(prompts) == 0:
            raise ValueError(f"`inputs` of `generate` must have at least one prompt. Received: {batch!r}")


def end_token_ids(preprocessor):
    """The tokens with which the tokenizer of a preprocessor ends a text, a tuple of ints."""
    if preprocessor is None:
        raise ValueError(
            "Without a `preprocessor`, `stop_token_ids` of `generate` must be a tuple of ints, or `None` "
            "to go on to the end. Received: stop_token_ids='auto'"
        )
    tokenizer = preprocessor.tokenizer
    ends = (getattr(tokenizer, name, None) for name in ("end_token_id", "end_token2_id"))
    return tuple(end for end in ends if end is not None)


def distribute(inputs):
    """Lays tensors out as the global `keras.distribution` says, where there is one."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return inputs

    def lay_out(tensor):
        tensor = ops.convert_to_tensor(tensor)
        layout = distribution.get_data_layout(tensor.shape)
        return keras.distribution.distribute_tensor(tensor, layout) if layout else tensor

    return keras.tree.map_structure(lay_out, inputs)


def strip_prompts(token_ids, padding_mask, prompt_mask):
    """Moves what was generated to the beginning, and hides the prompts, which follow it then.

    Args:
        token_ids: int tensor of shape `(batch, T)`, or with all beams `(batch, num_beams, T)`.
        padding_mask: bool tensor of that shape.
        prompt_mask: Tensor of shape `(batch, T)`, nonzero for the tokens of the prompts.

    Returns:
        Tokens and their padding mask.
    """
    prompt_mask = ops.cast(prompt_mask, "bool")
    length = ops.shape(prompt_mask)[1]
    starts = ops.sum(ops.cast(prompt_mask, "int32"), axis=1, keepdims=True)
    places = (ops.arange(length, dtype="int32") + starts) % length
    if len(token_ids.shape) == 3:
        places, prompt_mask = places[:, None], prompt_mask[:, None]
    places = ops.broadcast_to(places, ops.shape(token_ids))
    generated = padding_mask & ~prompt_mask
    return (
        ops.take_along_axis(token_ids, places, axis=-1),
        ops.take_along_axis(generated, places, axis=-1),
    )
