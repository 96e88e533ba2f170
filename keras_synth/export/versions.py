"""The folders that TensorFlow Serving watches: `<path>/<version>/`, complete or not there."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable


def write_version(path: str | os.PathLike, write: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Writes the next version of a model, so that nobody sees a part of it.

    Args:
        path: The folder of the versions. It need not exist.
        write: A function that fills an empty folder.

    Returns:
        The folder of the version. If `write` fails, there is none.
    """
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    # A name that is no number, and the same file system as its final place.
    partial = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=path))
    try:
        write(partial)
        partial.chmod(0o755)
        return _move_to_next_version(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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
