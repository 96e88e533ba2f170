"""What optimizers do with the gradients of several replicas and of several batches, under TensorFlow."""

import keras
import tensorflow as tf
from keras import ops

SUM = tf.distribute.ReduceOp.SUM


def check(strategy, optimizer, jit_compile, steps_per_execution):
    """Refuses at once what TensorFlow or Keras would refuse in the middle of a step.

    Args:
        strategy: tf.distribute.Strategy. That of the model.
        optimizer: The argument of `compile`.
        jit_compile: The argument of `compile`.
        steps_per_execution: The argument of `compile`.

    Raises:
        ValueError: If the optimizer belongs to another strategy; on several replicas also if it accumulates
            gradients, or XLA is asked for, or several steps at once with TensorFlow's collectives.
    """
    if isinstance(optimizer, keras.optimizers.Optimizer):
        if optimizer._distribution_strategy is not strategy:
            raise ValueError(
                "The optimizer must be made under the scope of the model's strategy, "
                f"{type(strategy).__name__}. Received: an optimizer made under "
                f"{type(optimizer._distribution_strategy).__name__}"
            )
    if strategy.num_replicas_in_sync == 1:
        return
    steps = getattr(inner_optimizer(optimizer), "gradient_accumulation_steps", None)
    if steps:
        raise ValueError(
            f"On {strategy.num_replicas_in_sync} replicas no optimizer can accumulate gradients, because "
            "TensorFlow cannot add them up in a branch. The replicas share each batch, so larger ones fit "
            "than on one; or train on one replica. "
            f"Received: gradient_accumulation_steps={steps}"
        )
    if jit_compile is True:
        raise ValueError(
            f"On {strategy.num_replicas_in_sync} replicas `jit_compile` must be 'auto' or False, because "
            "TensorFlow cannot add up gradients within XLA. A TPU compiles every step by itself. "
            "Received: jit_compile=True"
        )
    # The placeholders that stand for the keys of collectives get lost in Keras's loop over the steps.
    reduction = getattr(strategy.extended, "_cross_device_ops", None)
    if steps_per_execution > 1 and type(reduction).__name__ == "CollectiveAllReduce":
        raise ValueError(
            f"With the collectives of {type(strategy).__name__}, `steps_per_execution` must be 1. On the "
            "GPUs of one machine, `tf.distribute.MirroredStrategy(cross_device_ops="
            "tf.distribute.NcclAllReduce())` does without them. "
            f"Received: steps_per_execution={steps_per_execution}"
        )


def inner_optimizer(optimizer):
    """The optimizer that a loss scaling one may have around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def add_gradients_first(optimizer):
    """Makes an optimizer add up the gradients of the replicas before it does anything else with them.

    Keras adds them up last. It clips the parts, which are not those of the clipped sum, and believes the
    first replica that all gradients are finite.
    """
    if "apply" in vars(optimizer):  # in another call of `compile`
        return
    apply = optimizer.apply

    def apply_sum(gradients, trainable_variables=None):
        there = [gradient for gradient in gradients if gradient is not None]
        summed = iter(tf.distribute.get_replica_context().all_reduce(SUM, there))
        apply([None if g is None else next(summed) for g in gradients], trainable_variables)

    optimizer.apply = apply_sum
    inner_optimizer(optimizer)._all_reduce_sum_gradients = list


def accumulate_by_count(optimizer):
    """The `Accumulation` of an optimizer, or `None` if it updates at every step."""
    optimizer = inner_optimizer(optimizer)
    if not getattr(optimizer, "gradient_accumulation_steps", None):
        return None
    if not hasattr(optimizer, "accumulation"):
        optimizer.accumulation = Accumulation(optimizer)
    return optimizer.accumulation


class Accumulation:
    """Makes the gradient that an optimizer accumulates that of one large batch.

    Keras takes the mean of the batches' means, `sum_i g_i / n`. Where batches have different numbers of
    tokens `c_i`, one large batch has the gradient `sum_i c_i g_i / sum_i c_i`.
    """

    def __init__(self, optimizer):
        self.count = 1.0  # where no model weighs its loss, each batch counts the same
        self.total = optimizer.add_variable(shape=(), initializer="zeros", name="accumulated_count")
        clip, apply = optimizer._clip_gradients, optimizer._backend_apply_gradients

        def apply_counted(*args):
            self.total.assign_add(self.count)
            self.count = 1.0
            apply(*args)

        def clip_mean(gradients):  # at each update, after Keras has divided by the number of steps
            factor = ops.divide_no_nan(float(optimizer.gradient_accumulation_steps), self.total)
            self.total.assign(0.0)
            return clip([gradient * factor for gradient in gradients])

        optimizer._clip_gradients, optimizer._backend_apply_gradients = clip_mean, apply_counted

    def weigh(self, loss, count):
        """The loss of a batch that is a mean over `count`, for its gradient."""
        self.count = count
        return loss * count
