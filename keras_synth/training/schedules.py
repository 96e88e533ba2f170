"""Learning rate schedules that Keras does not have."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_synth")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

    `peak * min(step / warmup_steps, sqrt(warmup_steps / step))`, the schedule of
    [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), stated by its peak. It needs no total
    number of steps, so training may be stopped, or go on, at any time.

    Args:
        peak: float. The learning rate at the end of the warm-up.
        warmup_steps: int. The number of warm-up steps.

    Example:

    >>> schedule = InverseSquareRoot(peak=1e-3, warmup_steps=100)
    >>> round(float(schedule(49)), 6), round(float(schedule(399)), 6)
    (0.0005, 0.0005)
    """

    def __init__(self, peak, warmup_steps):
        if warmup_steps < 1:
            raise ValueError(f"`warmup_steps` must be at least 1. Received: warmup_steps={warmup_steps}")
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        progress = (ops.cast(step, "float32") + 1.0) / self.warmup_steps
        return self.peak * ops.minimum(progress, ops.rsqrt(progress))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}
