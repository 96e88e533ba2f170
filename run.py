"""Runs Python in this project's own virtual environment, which it makes first where need be.

    python3 run.py examples/translation.py
    python3 run.py -m pytest

The environment is `.venv`. It is installed again only when `pyproject.toml` has changed.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed-for"


def install():
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        sys.exit(f"keras_synth needs Python 3.11 to 3.13. This is Python {sys.version.split()[0]}.")
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted and PYTHON.exists():
        return
    print(f"Installing into {VENV}; this takes some minutes, once.", flush=True)
    # Without a pip of its own, which some systems' Python cannot give it: ours installs into it.
    venv.create(VENV, clear=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--quiet"]
    subprocess.run([*pip, "pip", "--editable", f"{ROOT}[examples,tests]"], check=True)
    STAMP.write_text(wanted)


if __name__ == "__main__":
    try:
        install()
    except subprocess.CalledProcessError as error:
        sys.exit(f"The installation failed: pip ended with status {error.returncode}.")
    except KeyboardInterrupt:
        sys.exit("The installation was interrupted; the next run starts it again.")
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    os.chdir(ROOT)
    os.execv(PYTHON, [str(PYTHON), *sys.argv[1:]])
