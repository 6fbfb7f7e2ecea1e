"""Make a virtual environment: `python3 deploy/make_venv.py DIR`.

Debian splits ensurepip from Python, so `python3 -m venv` alone fails on a bare machine. Where it is missing, the pip
that belongs to this Python puts itself into the environment. The syntax is kept old enough for an old Python to read,
so that it can say that it is old.
"""

import importlib.util
import subprocess
import sys
import venv

NEEDED = (3, 11)


def main() -> None:
    if sys.version_info < NEEDED:
        sys.exit("Python 3.11 or newer is needed, this is %s: try make PYTHON=python3.12" % sys.version.split()[0])  # noqa: UP031 - must parse on any Python
    target = sys.argv[1]
    has_ensurepip = importlib.util.find_spec("ensurepip") is not None
    if not has_ensurepip and importlib.util.find_spec("pip") is None:
        sys.exit("This Python has neither ensurepip nor pip: install python3-venv (Debian, Ubuntu) and try again.")
    venv.create(target, with_pip=has_ensurepip, symlinks=True)
    if not has_ensurepip:
        pip = [sys.executable, "-m", "pip", "--python", target + "/bin/python", "install", "--quiet"]
        subprocess.run([*pip, "pip"], check=True)


if __name__ == "__main__":
    main()
