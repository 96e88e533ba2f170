"""Timings side by side: all contestants in one process, call by call, and memory in a process for each.

Processes differ from each other, and a machine from one minute to the next, by more than what is measured.
So every round calls each contestant once, and what counts is the ratio within a round.
"""

import collections
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time


def rounds(contestants, number, progress=True):
    """Calls each contestant once in each round, after a round that does not count.

    Args:
        contestants: A dict from names to functions without arguments, which return when they are done. One
            that returns a float has taken the time itself, in seconds.
        number: int. The number of rounds.
        progress: bool. Whether to show how far it is.

    Returns:
        A dict from names to lists of seconds, one for each round.
    """
    seconds = {name: [] for name in contestants}
    for i in range(number + 1):
        for name, function in contestants.items():
            if progress and sys.stderr.isatty():
                print(f"\r\033[Kround {i} of {number}: {name}", end="", file=sys.stderr, flush=True)
            start = time.perf_counter()
            own = function()
            seconds[name].append(own if isinstance(own, float) else time.perf_counter() - start)
    if progress and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return {name: times[1:] for name, times in seconds.items()}


def ratio(times, reference):
    """The median, and the quartiles around it, of the ratios within the rounds."""
    ratios = [a / b for a, b in zip(times, reference, strict=True)]
    if len(ratios) < 2:
        return ratios[0], ratios[0], ratios[0]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return median, low, high


def show_ratio(times, reference):
    median, low, high = ratio(times, reference)
    return f"{median:.2f} ({low:.2f}-{high:.2f})"


def milliseconds(times):
    return f"{statistics.median(times) * 1e3:.1f}"


def events(function, calls=1):
    """A counter of what TensorFlow's profiler sees, in milliseconds of a call."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    function()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(calls):
                function()
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    milliseconds = collections.Counter()
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            milliseconds[plane.event_metadata[event.metadata_id].name] += event.duration_ps / 1e9 / calls
    return milliseconds


def profile(function, calls=5, longest=8):
    """Where the time goes: a list of the operations that take longest and their milliseconds in a call.

    Operations run side by side, so that their times may add up to more than the call took.
    """
    found = events(function, calls)
    for name in list(found):
        if not (":" in name and "::" not in name and "Execute" not in name):  # `path/of/operation:Kind`
            del found[name]
    return found.most_common(longest)


def table(rows):
    """A Markdown table of `rows`, dicts with the same keys."""
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def machine():
    """What the figures were measured on."""
    import keras
    import tensorflow as tf

    cpu = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(": ")[1] for line in lines if line.startswith("model name")), cpu)
        flags = next((line for line in lines if line.startswith("flags")), "")
        found = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags.split()]
        cpu = f"{cpu} ({', '.join(found)})"
    devices = ", ".join(device.name for device in tf.config.list_logical_devices())
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores of {cpu}, {devices}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}"
    )


def write_json(path, results):
    """Writes results, together with the machine; a file that is there stays whole until the end."""
    temporary = pathlib.Path(f"{path}.tmp")
    temporary.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))
    os.replace(temporary, path)


def peak_memory(script, *arguments):
    """The bytes that `peak_of` printed in a new process, `script *arguments`."""
    command = [sys.executable, script, *map(str, arguments)]
    output = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return int(output.stdout.split()[-1])


def peak_of(function, calls=2):
    """Prints by how many bytes some calls raise the peak memory of this process above what it has now."""
    before = _status("VmRSS")
    for _ in range(calls):
        function()
    print(max(_status("VmHWM") - before, 0))


def _status(name):
    """A size of this process in bytes. The peak of `getrusage` would be that of the parent at first."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
