"""Arrays and lists to batches, in another order in each epoch."""

import math

import keras
import numpy as np
import tensorflow as tf


def is_dataset(data):
    """Whether data is a dataset, of `tf.data` or Grain, and no array."""
    return hasattr(data, "map") and not hasattr(data, "__array__")


def to_tensors(inputs, name="x"):
    """Tensors of nested tuples and dicts of arrays; a list, as of strings, is one array.

    Raises:
        ValueError: If something among strings is no string, or what is given is no array. The error calls
            it by its `name`, and names the row.
    """
    if isinstance(inputs, tuple):
        return tuple(to_tensors(item, f"{name}[{index}]") for index, item in enumerate(inputs))
    if isinstance(inputs, dict):
        return {key: to_tensors(item, f"{name}[{key!r}]") for key, item in inputs.items()}
    if inputs is None or isinstance(inputs, (tf.Tensor, tf.RaggedTensor)):
        return inputs
    if isinstance(inputs, list) or getattr(inputs, "dtype", None) in (object, "string"):
        _check_strings(inputs, name)
    try:
        return tf.convert_to_tensor(np.asarray(inputs) if hasattr(inputs, "__array__") else inputs)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"`{name}` must be an array, a list of strings or of numbers, a tuple or dict of these, or a "
            f"`tf.data.Dataset` of batches. Received: {name} of {type(inputs)}: {reason}"
        ) from error


def _check_strings(values, name):
    """Checks that all values are strings, if one is, or one is missing."""
    values = np.asarray(values, dtype=object).ravel()
    are_strings = np.array([isinstance(value, (str, bytes)) for value in values], "bool")
    if are_strings.all() or not (are_strings.any() or any(value is None for value in values)):
        return
    row = int(np.argmin(are_strings))
    raise ValueError(f"All of `{name}` must be strings. Received: {name}[{row}]={values[row]!r}")


def count_examples(tensors):
    """The number of examples in what `to_tensors` returned.

    Raises:
        ValueError: If there are none, or arrays have different numbers of them.
    """
    leaves = [leaf for leaf in keras.tree.flatten(tensors) if leaf is not None]
    if any(leaf.shape.rank == 0 for leaf in leaves):
        raise ValueError("All of the data must have a batch axis. Received: a single example, not a list")
    counts = sorted({int(leaf.shape[0]) for leaf in leaves})
    if len(counts) != 1 or counts == [0]:
        raise ValueError(
            "All of the data must have the same number of examples, and at least one. Received: "
            f"{' and '.join(map(str, counts)) or 'no'} examples"
        )
    return counts[0]


def split(tensors, share: float):
    """Splits the last examples off, as `validation_split` of `keras.Model.fit`.

    Args:
        tensors: What `to_tensors` returned.
        share: float. The share of the examples that the second part gets.

    Returns:
        Two structures as `tensors`.

    Raises:
        ValueError: If one of them would be empty.
    """
    size = count_examples(tensors)
    first = math.floor(size * (1.0 - share))
    if not 0 < first < size:
        raise ValueError(
            f"`validation_split` must leave examples on both sides. Received: validation_split={share} of "
            f"{size} examples"
        )

    def take(part):
        return keras.tree.map_structure(lambda tensor: None if tensor is None else tensor[part], tensors)

    return take(slice(first)), take(slice(first, None))


def shuffled_batches(tensors, batch_size: int) -> tf.data.Dataset:
    """Batches of all examples, in an order that NumPy draws anew at the beginning of each epoch.

    So it follows from the seed, and `keras_synth.training.Checkpoint` restores it after a kill.

    Args:
        tensors: What `to_tensors` returned.
        batch_size: int. The number of examples in a batch.

    Returns:
        A `tf.data.Dataset` of known cardinality.
    """
    size = count_examples(tensors)

    def draw_batches():
        order = np.random.permutation(size)
        yield from (order[start : start + batch_size] for start in range(0, size, batch_size))

    def take(indices):
        return keras.tree.map_structure(
            lambda tensor: None if tensor is None else tf.gather(tensor, indices), tensors
        )

    batches = tf.data.Dataset.from_generator(draw_batches, output_signature=tf.TensorSpec([None], "int64"))
    batches = batches.apply(tf.data.experimental.assert_cardinality(math.ceil(size / batch_size)))
    return batches.map(take)
