"""Where training runs: one place that turns a string into a `tf.distribute.Strategy`."""

import json
import os
import re

import keras
import tensorflow as tf


def strategy(spec: str | tf.distribute.Strategy = "auto") -> tf.distribute.Strategy:
    """Makes the strategy that a model is built, compiled and trained under.

    Call it before anything else that uses TensorFlow: logical CPUs and the connections between workers can
    only be made then.

    Args:
        spec: One of:

            - `"auto"`: several workers if `TF_CONFIG` names a cluster, a TPU if `TPU_NAME` names one, all
              GPUs if there are several, else the one device that TensorFlow chooses.
            - `"cpu"`: one CPU device. `"cpu:N"`: a replica on each of `N` logical CPU devices, to try on
              any machine what several devices do.
            - `"mirrored"`: a replica on each GPU of this machine.
            - `"multi_worker"`: a replica on each GPU, or on the CPU, of each machine that the environment
              variable `TF_CONFIG` names. Datasets are split by examples, not by files, so that together the
              workers see the batches that one alone would.
            - `"tpu"`: the TPU of this machine or the one named by `TPU_NAME`. `"tpu:NAME"`: the one of
              that name or address, as in `"tpu:grpc://10.0.0.2:8470"`.
            - A `tf.distribute.Strategy`, which is returned as it is.

    Returns:
        A `tf.distribute.Strategy`.

    Raises:
        ValueError: If the spec is unknown, the hardware or `TF_CONFIG` missing or faulty, TensorFlow in use
            already with other devices, or not the backend of Keras.

    Example:

    >>> with strategy("cpu").scope():
    ...     model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    ...     model.compile("sgd", "mse")
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "`strategy` needs the TensorFlow backend. On JAX, call `keras.distribution.set_distribution("
            "keras.distribution.DataParallel())` before the model is made. "
            f"Received: spec={spec!r} on the backend {keras.backend.backend()!r}"
        )
    if isinstance(spec, tf.distribute.Strategy):
        return spec
    match = re.fullmatch(r"(cpu):([1-9]\d*)|(tpu):(.+)", spec) if isinstance(spec, str) else None
    if match:
        return _cpus(int(match[2])) if match[1] else _tpu(match[4])
    if isinstance(spec, str) and spec in _MAKERS:
        return _MAKERS[spec]()
    raise ValueError(
        f"`spec` must be a `tf.distribute.Strategy` or one of {', '.join(map(repr, _MAKERS))}, "
        f"'cpu:N' with an N of 1 or more, and 'tpu:NAME'. Received: spec={spec!r}"
    )


def num_workers(strategy: tf.distribute.Strategy | None) -> int:
    """The number of processes that train together under a strategy, each of which runs the program."""
    resolver = strategy and strategy.cluster_resolver
    # The workers of a TPU do not run the program.
    if resolver is None or isinstance(strategy, tf.distribute.TPUStrategy):
        return 1
    tasks = resolver.cluster_spec().as_dict()
    return max(len(tasks.get("chief", [])) + len(tasks.get("worker", [])), 1)


def is_chief(strategy: tf.distribute.Strategy | None) -> bool:
    """Whether this process is the one that writes logs and files.

    Always true, unless several workers train together: then only for the one that `TF_CONFIG` calls
    `"chief"`, or for `"worker"` 0 where there is none. All workers have the same weights, and to save them
    takes no other worker, so the others have nothing to write.

    Args:
        strategy: tf.distribute.Strategy. In a callback, `self.model.distribute_strategy`. `None` where
            there is none, as on other backends.
    """
    if num_workers(strategy) == 1:
        return True
    resolver = strategy.cluster_resolver
    first = "chief" if "chief" in resolver.cluster_spec().as_dict() else "worker"
    return (resolver.task_type, resolver.task_id) == (first, 0)


def any_worker(strategy: tf.distribute.Strategy | None, condition: bool) -> bool:
    """Whether a condition is true for any worker; the same answer for all, who must all ask.

    A worker that stops training by itself, by its own clock for example, leaves the others waiting.

    Args:
        strategy: tf.distribute.Strategy, or `None`, as in `is_chief`.
        condition: bool. Whether it is true for this worker.
    """
    if num_workers(strategy) == 1:
        return condition
    return bool(_count_votes(strategy, tf.constant(float(condition))) > 0)


@tf.function  # eagerly it would take long
def _count_votes(strategy, vote):
    votes = strategy.run(lambda: vote)
    return strategy.reduce(tf.distribute.ReduceOp.SUM, votes, axis=None)


def _auto():
    if _cluster():
        return _multi_worker()
    if os.environ.get("TPU_NAME"):
        return _tpu()
    return _mirrored() if len(tf.config.list_physical_devices("GPU")) > 1 else tf.distribute.get_strategy()


def _cpus(count):
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as error:  # TensorFlow is in use already
        found = len(tf.config.list_logical_devices("CPU"))
        if found != count:
            raise ValueError(
                f"'cpu:{count}' must come before anything else that uses TensorFlow, which now has {found} "
                "logical CPU device(s) and cannot change that any more."
            ) from error
    devices = [f"CPU:{i}" for i in range(count)]
    # TensorFlow's collectives, its default, do not run within the loop of Keras's `steps_per_execution`.
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def _mirrored():
    if not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            "'mirrored' needs a GPU that TensorFlow can use, and there is none. "
            "'cpu:N' makes N replicas on the CPU."
        )
    return tf.distribute.MirroredStrategy()


def _cluster():
    """What `TF_CONFIG` says, or `None` where it names no cluster."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text or "{}")
        return config if config.get("cluster") else None
    except (ValueError, AttributeError) as error:
        raise ValueError(f"TF_CONFIG must be a JSON object. Received: TF_CONFIG={text!r}") from error


def _multi_worker():
    config = _cluster()
    task = (config or {}).get("task") or {}
    workers = (config or {}).get("cluster", {}).get(task.get("type"), [])
    if not isinstance(task.get("index"), int) or not 0 <= task["index"] < len(workers):
        raise ValueError(
            "'multi_worker' needs the environment variable TF_CONFIG, the same for all workers but for the "
            'task: {"cluster": {"worker": ["host0:port", "host1:port"]}, "task": {"type": "worker", '
            f'"index": 0}}}}. Received: TF_CONFIG={os.environ.get("TF_CONFIG")!r}'
        )
    try:
        return _MultiWorkerStrategy()
    except RuntimeError as error:  # the message speaks of collective operations
        raise ValueError("'multi_worker' must come before anything else that uses TensorFlow.") from error


class _MultiWorkerStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """Splits each batch of a dataset among the workers.

    TensorFlow would split the files where a dataset has some, and then workers have other batches than one
    process has, or none at all. What a dataset asks for itself is done.
    """

    def experimental_distribute_dataset(self, dataset, options=None):
        policy = tf.data.experimental.AutoShardPolicy
        if dataset.options().experimental_distribute.auto_shard_policy == policy.AUTO:
            by_data = tf.data.Options()
            by_data.experimental_distribute.auto_shard_policy = policy.DATA
            dataset = dataset.with_options(by_data)
        return super().experimental_distribute_dataset(dataset, options)


def _tpu(name=None):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            name or os.environ.get("TPU_NAME") or "local"
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        spec = f"tpu:{name}" if name else "tpu"
        raise ValueError(f"{spec!r} found no TPU: {str(error).splitlines()[0]}") from error
    return tf.distribute.TPUStrategy(resolver)


_MAKERS = {
    "auto": _auto,
    "cpu": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "tpu": _tpu,
}
