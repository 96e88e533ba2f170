"""Files and folders that are whole or not there: written under another name, and moved into place."""

import os
import pathlib
import shutil
import uuid
from collections.abc import Callable

#: What the names of files and folders begin with that are not whole yet.
PARTIAL = ".partial-"


def write_aside(
    folder: pathlib.Path,
    name: str,
    write: Callable[[pathlib.Path], None],
    move: Callable[[pathlib.Path], pathlib.Path],
) -> pathlib.Path:
    """Writes a file or folder under another name, and moves it when it is whole and on the disk.

    Args:
        folder: The folder that it is written in, of the same file system as its final place.
        name: What the other name ends with, as some writers look at the suffix.
        write: A function that gets the path to write, where there is nothing yet.
        move: A function that moves what was written into place, and returns where that is.

    Returns:
        What `move` returns. If anything fails, nothing is left of what was written.
    """
    partial = folder / f"{PARTIAL}{uuid.uuid4().hex[:8]}-{name}"
    try:
        write(partial)
        for path in [partial, *partial.rglob("*")] if partial.is_dir() else [partial]:
            _to_disk(path)
        final = move(partial)
        _to_disk(folder)
        return final
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def replace_file(path: str | os.PathLike, write: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Writes a file; whatever happens, `path` is the old file or the new one, whole.

    Args:
        path: string or path. A file, which may exist.
        write: A function that gets the path to write.
    """
    path = pathlib.Path(path)
    return write_aside(path.parent, path.name, write, lambda partial: partial.replace(path))


def _to_disk(path):
    """Waits until a file, or the names in a folder, would outlast a power failure."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
