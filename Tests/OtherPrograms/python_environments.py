# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with pinned packages of PyPI."""

import contextlib
import os
import subprocess
import sys
import time

# The number of attempts to install, and the seconds between two.
ATTEMPTS, PAUSE = 3, 10


class Unavailable(Exception):
    """The packages could not be installed: the index cannot be reached, or does not have them for this Python."""


def environment(folder, requirements, options=()):
    """Makes the virtual environment, unless one with these requirements is there. Returns its folder of programs.

    `requirements` is a file that names every package with its version; `options` are more of pip's.
    """
    programs, stamp = os.path.join(folder, "bin"), os.path.join(folder, "requirements.txt")
    with open(requirements) as file:
        wanted = file.read()
    with contextlib.suppress(FileNotFoundError), open(stamp) as file:
        if file.read() == wanted:
            return programs
    if os.path.exists(folder) and not os.path.exists(os.path.join(folder, "pyvenv.cfg")) and os.listdir(folder):
        raise Unavailable(f"{folder} is there and is not a virtual environment")
    pip = [os.path.join(programs, "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    for attempt in range(ATTEMPTS):
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([*pip, *options, "-r", requirements], check=True)
            break
        except subprocess.CalledProcessError as error:
            if attempt + 1 == ATTEMPTS:
                raise Unavailable(f"no virtual environment could be made in {folder}: {error}") from error
            time.sleep(PAUSE)
    with open(stamp, "w") as file:
        file.write(wanted)
    return programs
