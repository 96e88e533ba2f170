"""Losses that Keras does not have."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_synth")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy of integer targets and logits, with label smoothing.

    `-(1 - s) log p[target] - s mean(log p)`: what `keras.losses.CategoricalCrossentropy` gives for one-hot
    targets, without making those, which would be as large as the logits. Section 5.4 of
    [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762).

    Args:
        label_smoothing: float in `[0, 1]`. The weight `s` of the uniform distribution. Defaults to `0.1`.
        reduction, name, dtype: As in `keras.losses.SparseCategoricalCrossentropy`.

    Shapes: targets `(...)`, logits `(..., classes)`.

    Raises:
        ValueError: If `label_smoothing` is not between 0 and 1.

    Example:

    >>> loss = SmoothedCrossentropy(label_smoothing=0.1)
    >>> round(float(loss([[1, 2]], [[[0.0, 4.0, 0.0], [0.0, 0.0, 4.0]]])), 3)
    0.303
    """

    from_logits = True

    def __init__(
        self,
        label_smoothing: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "smoothed_crossentropy",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(
                f"`label_smoothing` must be between 0 and 1. Received: label_smoothing={label_smoothing}"
            )
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        return _smoothed_crossentropy(ops.cast(y_true, "int32"), y_pred, self.label_smoothing)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


def _smoothed_crossentropy(targets, logits, smoothing):
    # With a gradient of its own: that of the gathered logits would need several tensors of their size.
    @ops.custom_gradient
    def loss(logits):
        plain = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
        # The log-sum-exp is the same for all classes, so only the logits themselves are left.
        target_logits = ops.squeeze(ops.take_along_axis(logits, targets[..., None], axis=-1), axis=-1)

        def gradient(*args, upstream=None):
            (upstream,) = args if upstream is None else (upstream,)
            classes = logits.shape[-1]
            even = smoothing / classes
            # Each of these can take the place of the one before.
            rows = (ops.softmax(logits) - even) * upstream[..., None]
            rows = ops.reshape(rows, (-1, classes))
            places = ops.arange(ops.shape(rows)[0], dtype="int32"), ops.reshape(targets, (-1,))
            at_targets = (ops.exp(-plain) - (1.0 - smoothing + even)) * upstream
            rows = ops.scatter_update(rows, ops.stack(places, axis=1), ops.reshape(at_targets, (-1,)))
            return ops.reshape(rows, ops.shape(logits))

        return plain + smoothing * (target_logits - ops.mean(logits, axis=-1)), gradient

    return loss(logits)
