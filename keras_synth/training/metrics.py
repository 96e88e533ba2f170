"""Metrics that Keras does not have in this form."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_synth")
def sparse_categorical_accuracy(y_true, y_pred):
    """Whether the largest of `y_pred` is that of the class `y_true`; of equal ones the first counts.

    What `keras.metrics.sparse_categorical_accuracy` is, for any number of classes: Keras casts classes to
    the dtype of the predictions, where bfloat16 takes 1001 for 1000, and copies the predictions twice.

    Args:
        y_true: Integer tensor of shape `(...)`. The classes.
        y_pred: Tensor of shape `(..., classes)`. Logits or probabilities.

    Returns:
        Tensor of ones and zeros of shape `(...)`.

    Example:

    >>> hits = sparse_categorical_accuracy([0, 1], [[2.0, 1.0], [2.0, 1.0]])
    >>> ops.convert_to_numpy(hits).tolist()
    [1.0, 0.0]
    """
    _, best = ops.top_k(y_pred, 1)
    return ops.cast(ops.equal(ops.cast(y_true, best.dtype), best[..., 0]), keras.config.floatx())
