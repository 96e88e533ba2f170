"""`keras.ops.slice_update` by an operation that TensorFlow Serving runs."""

import contextlib
import threading
import unittest.mock

import keras
import tensorflow as tf

_lock = threading.RLock()


@contextlib.contextmanager
def without_xla():
    """A context in which `keras.ops.slice_update` is no operation of XLA.

    Keras makes it `XlaDynamicUpdateSlice`, which is compiled when it runs. TensorFlow Serving refuses to
    compile on a CPU unless it was started with `--xla_cpu_compilation_enabled`, so that whatever generates
    with a cache would fail. TensorFlow's own operation also compiles nothing for each new batch size.
    """
    # One thread at a time, so that each puts Keras's function back.
    with _lock, unittest.mock.patch.object(keras.ops, "slice_update", _slice_update):
        yield


def _slice_update(inputs, start_indices, updates):
    inputs = tf.convert_to_tensor(inputs)
    updates = tf.convert_to_tensor(updates, inputs.dtype)
    begin = tf.cast(start_indices, "int32")
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=inputs,
        begin=begin,
        end=begin + tf.shape(updates),
        strides=tf.ones_like(begin),
        value=updates,
    )
