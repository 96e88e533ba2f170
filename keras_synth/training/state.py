"""The state of training beside the weights: what a checkpoint has to keep so that nothing is lost."""

import base64
import inspect
import io
import json
import random

import numpy as np
from keras import ops


def capture_state(model, callbacks, python_random):
    """The state of a model in training that a `.keras` file does not hold, as JSON can hold it.

    Args:
        model: keras.Model. The model.
        callbacks: A list of callbacks whose state counts.
        python_random: What `get_python_random` returned.
    """
    return {
        "optimizer": _optimizer_shapes(model.optimizer),
        "seeds": [ops.convert_to_numpy(seed) for seed in _seeds(model)],
        "random": python_random,
        "callbacks": [_callback_state(callback) for callback in callbacks],
    }


def check_state(model, callbacks, state, source):
    """Raises a `ValueError` if a state is not of this optimizer, or of other callbacks.

    Args:
        model, callbacks: As in `capture_state`. The optimizer is built.
        state: What `capture_state` returned.
        source: The file that it is from.
    """
    if _optimizer_shapes(model.optimizer) != state["optimizer"]:
        raise ValueError(
            f"{source} was saved with another optimizer or other weights. "
            f"Received: optimizer={type(model.optimizer).__name__}"
        )
    if len(callbacks) != len(state["callbacks"]):
        raise ValueError(
            f"{source} was saved with {len(state['callbacks'])} callbacks in `also`. "
            f"Received: also={callbacks}"
        )


def restore_state(model, callbacks, state):
    """Sets what `capture_state` found, but for Python's random state."""
    for variable, value in zip(_seeds(model), state["seeds"], strict=True):
        variable.assign(value)
    for callback, saved in zip(callbacks, state["callbacks"], strict=True):
        vars(callback).update(saved)


def get_python_random():
    """The state of Python's and NumPy's own random numbers."""
    return {"python": random.getstate(), "numpy": np.random.get_state()}


def set_python_random(state):
    """Sets what `get_python_random` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(tuple(state["numpy"]))


def dump_state(state):
    """A state as JSON, in which arrays are kept to the bit."""
    return json.dumps(state, default=_encode)


def load_state(text):
    """The state that `dump_state` made a text of."""
    return json.loads(text, object_hook=_decode)


def _optimizer_shapes(optimizer):
    return [list(variable.shape) for variable in optimizer.variables]


def _seeds(model):
    """The random states of the layers, which Keras does not save."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def _callback_state(callback):
    """What a callback has found out: its attributes that are data, but for its settings."""
    settings = {*inspect.signature(type(callback).__init__).parameters, "params"}
    return {
        name: value for name, value in vars(callback).items() if name not in settings and _is_data(value)
    }


def _is_data(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_data(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    return value is None or isinstance(value, (bool, int, float, str, np.ndarray, np.generic))


def _encode(array):
    """An array as what JSON can hold, to the bit."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {"npy": base64.b64encode(file.getvalue()).decode(), "dtype": str(array.dtype)}


def _decode(item):
    if item.keys() != {"npy", "dtype"}:
        return item
    array = np.load(io.BytesIO(base64.b64decode(item["npy"])), allow_pickle=False)
    array = array.view(item["dtype"])  # NumPy does not write the name of bfloat16
    return array if array.ndim else array[()]
