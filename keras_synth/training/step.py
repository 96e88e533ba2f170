"""One step of `fit`: the mean that its loss is, over all devices, and over batches whose gradients add up.

Keras 3 trains under `tf.distribute`, but takes the mean of the replicas' means, clips the gradients of each
replica before it adds them up, gives all replicas the same dropout, and fails with several workers. With
`gradient_accumulation_steps` it takes the mean of the batches' means. What we do instead is here, and in
`gradients.py` what concerns optimizers. On other backends than TensorFlow a step sees the whole batch,
however many devices there are, and the optimizer is left as it is.
"""

import math

import keras
import tensorflow as tf
from keras import ops
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

from keras_synth.training.gradients import accumulate_by_count, add_gradients_first, check
from keras_synth.training.strategies import num_workers

#: What a loss that is a mean calls it.
_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")

#: Far apart, so that no replica soon draws what another one has drawn.
_SEED_DISTANCE = 0x9E3779B1


class ReplicaTraining:
    """Mixin of models, to stand before the class of Keras: `fit` does on many devices what it does on one.

    The loss is a mean over the batch of all replicas, and its gradient is the same for one large batch and
    for small ones whose gradients an optimizer accumulates. It is a mean over the tokens that the mask of
    the output shows; over the weights, where the loss has `reduction="mean_with_sample_weight"`; else over
    the examples. With the class attribute `loss_divides_by_weights = True`, for one output, it is a mean
    over the weights, whatever the `reduction`. A `compute_loss` of one's own returns what it does in Keras.

    Raises:
        ValueError: In `compile`, if a loss is no mean, or the optimizer or another argument asks for what
            several replicas cannot do.

    Example:

    >>> class MyModel(ReplicaTraining, keras.Model):
    ...     pass
    >>> inputs = keras.Input((3,))
    >>> model = MyModel(inputs, keras.layers.Dense(1)(inputs))
    >>> model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=4), "mse")
    """

    #: Whether the loss is a mean over the weights of what it is computed for, or over their number.
    loss_divides_by_weights = False
    #: The `Accumulation` of the optimizer, if it accumulates gradients.
    accumulation = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mean_loss = keras.metrics.Mean(name="loss")

    def compile(self, optimizer="auto", *args, jit_compile="auto", steps_per_execution=1, **kwargs):
        kwargs.update(jit_compile=jit_compile, steps_per_execution=steps_per_execution)
        strategy = getattr(self, "distribute_strategy", None)  # on the TensorFlow backend
        if strategy is None:
            super().compile(optimizer, *args, **kwargs)
        else:
            check(strategy, optimizer, jit_compile, steps_per_execution)
            with strategy.scope():  # for what Keras makes of names
                super().compile(optimizer, *args, **kwargs)
            self.accumulation = accumulate_by_count(self.optimizer)
            if strategy.num_replicas_in_sync > 1:
                add_gradients_first(self.optimizer)
        for loss in keras.tree.flatten(self.loss):
            reduction = getattr(loss, "reduction", "mean")
            if reduction not in _MEANS:
                raise ValueError(
                    f"The `loss` of a {type(self).__name__} is a mean, so its `reduction` must be "
                    f"one of {', '.join(map(repr, _MEANS))}. Received: reduction={reduction!r}"
                )

    def make_train_function(self, force=False):
        # Made in the first step, the variables of the optimizer would make TensorFlow trace the step twice.
        if self.built and self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        super().make_train_function(force)

    def train_step(self, *args):
        self._shift_seeds(tf.add)
        logs = super().train_step(*args)
        self._shift_seeds(tf.subtract)
        return self._logs(logs)

    def test_step(self, *args):
        return self._logs(super().test_step(*args))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The loss of this replica, divided by the number of replicas, as in Keras."""
        if self.loss_divides_by_weights:
            sample_weight = _token_weights(y_pred, sample_weight)
            # Keras will divide by their number.
            size = ops.cast(ops.size(sample_weight), "float32")
            sample_weight = sample_weight * ops.divide_no_nan(size, ops.sum(sample_weight))
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    # Around `compute_loss`, so that what a subclass does there is counted too.
    def _compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """What this replica adds to the loss of the whole batch."""
        loss = super()._compute_loss(x, y, y_pred, sample_weight, training)
        count = self._count(x, y_pred, sample_weight)
        mean_count, num_replicas = _mean_over_replicas(count)
        if num_replicas > 1:
            loss = loss * ops.divide_no_nan(count, mean_count)
        self.mean_loss.update_state(loss * num_replicas, mean_count)
        return self.accumulation.weigh(loss, count) if self.accumulation and training else loss

    def _count(self, x, y_pred, sample_weight):
        """What the loss of this replica is a mean over."""
        if self.loss_divides_by_weights:
            return ops.sum(_token_weights(y_pred, sample_weight))
        weights = [None if keras.tree.is_nested(y_pred) else get_keras_mask(y_pred)]
        if getattr(self.loss, "reduction", None) == "mean_with_sample_weight":
            weights.append(sample_weight)
        weights = [ops.cast(weight, "float32") for weight in weights if weight is not None]
        if not weights:
            examples = next(leaf for leaf in keras.tree.flatten(x) if leaf is not None)
            return ops.cast(ops.shape(examples)[0], "float32")
        rank = max(len(weight.shape) for weight in weights)
        return ops.sum(math.prod(_expand(weight, rank) for weight in weights))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        # Keras casts targets to the dtype of the predictions, where bfloat16 takes 1001 for 1000.
        return super().compute_metrics(x, y, keras.tree.map_structure(_widen, y_pred), sample_weight)

    @property
    def metrics(self):
        # Keras's own loss is a mean over batches, whatever number of tokens they have.
        return [self.mean_loss, *(metric for metric in super().metrics if metric.name != "loss")]

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras takes the mean of a first batch over the replicas, which only works for numbers, parts of
        # equal shape, and one worker. The shapes are known without a batch.
        if self._distribute_strategy is None:
            return
        if iterator is not None:
            spec = iterator.data_adapter.get_tf_dataset().element_spec
            data_batch = keras.tree.map_structure(
                lambda leaf: None if isinstance(leaf, tf.OptionalSpec) else leaf, spec
            )
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    def _shift_seeds(self, shift):
        """Gives this replica random numbers of its own; the opposite shift makes all seeds equal again.

        Between steps they are equal, so that what is saved stands for all replicas.
        """
        replicas = tf.distribute.get_replica_context()
        if replicas.num_replicas_in_sync > 1:
            for state in (v.value for v in self.variables if v.name == "seed_generator_state"):
                distance = _SEED_DISTANCE * tf.cast(replicas.replica_id_in_sync_group, state.dtype)
                state.assign(shift(state, tf.stack([distance, 0])))

    def _logs(self, logs):
        """The logs of a replica, in the shape in which Keras can take their mean."""
        if num_workers(getattr(self, "distribute_strategy", None)) == 1:
            return logs
        # With several workers Keras takes the mean over an axis, which scalars do not have.
        return keras.tree.map_structure(lambda value: ops.reshape(value, (1,)), logs)


def _mean_over_replicas(value):
    """The mean of what the replicas of a `tf.distribute.Strategy` have, and the number of replicas."""
    replicas = tf.distribute.get_replica_context()
    if replicas is None or replicas.num_replicas_in_sync == 1:
        return value, 1
    return replicas.all_reduce(tf.distribute.ReduceOp.MEAN, value), replicas.num_replicas_in_sync


def _token_weights(y_pred, sample_weight):
    """A weight for each prediction; one for an example is that of all its tokens."""
    shape = ops.shape(y_pred)[:-1]
    weight = ops.ones(()) if sample_weight is None else ops.cast(sample_weight, "float32")
    return ops.broadcast_to(_expand(weight, len(shape)), shape)


def _expand(weight, rank):
    """Weights of examples or of tokens, with axes of one at the end."""
    return ops.reshape(weight, (*ops.shape(weight), *[1] * (rank - len(weight.shape))))


def _widen(y_pred):
    """The same numbers, in float32 at least where they are floating point, with their mask."""
    if y_pred is None or y_pred.dtype not in ("float16", "bfloat16"):
        return y_pred
    wide = ops.cast(y_pred, "float32")
    set_keras_mask(wide, get_keras_mask(y_pred))
    return wide
