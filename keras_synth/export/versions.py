"""The folders that TensorFlow Serving watches: `<path>/<version>/`, complete or not there."""

import os
import pathlib
from collections.abc import Callable

from keras_synth.core.files import write_aside


def write_version(path: str | os.PathLike, fill: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Writes the next version of a model, so that nobody sees a part of it.

    Args:
        path: The folder of the versions. It need not exist.
        fill: A function that fills an empty folder.

    Returns:
        The folder of the version. If `fill` fails, there is none.
    """
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)

    def write(partial):
        partial.mkdir()
        fill(partial)

    return write_aside(path, "version", write, lambda partial: _move_to_next_version(partial, path))


def _move_to_next_version(partial, path):
    versions = [int(child.name) for child in path.iterdir() if child.name.isdecimal()]
    version = max(versions, default=0) + 1
    while True:
        try:
            return partial.rename(path / str(version))
        except OSError:  # somebody else has taken it, and it is not empty
            if not (path / str(version)).exists():
                raise
            version += 1
