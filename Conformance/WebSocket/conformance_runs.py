# SPDX-License-Identifier: Apache-2.0
"""The code that Conformance/WebSocket/conformance and Conformance/WebSocket/interop share: the virtual environment with the other side, and processes that
are waited for until they listen."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))
sys.path += [os.path.join(ROOT, "Scripts"), os.path.join(ROOT, "Tests", "OtherPrograms")]
import python_environments  # noqa: E402
from ports import free_port  # noqa: E402, F401

REQUIREMENTS = os.path.join(FOLDER, "conformance-requirements.txt")
ENVIRONMENT = os.path.join(ROOT, ".build-python-conformance")
# The first line that `hhsocket ws-serve` prints. An IPv6 address has brackets.
LISTENING = r"listening on (\S+:\d+)"


Unavailable = python_environments.Unavailable


class Failure(Exception):
    """The run itself failed: there is no result."""


def environment(folder):
    """The folder of programs of the virtual environment with the other side."""
    return python_environments.environment(folder, REQUIREMENTS, ("--require-hashes", "--only-binary", ":all:"))


def program(name):
    """The absolute path of a program given on the command line, by path or by name."""
    found = shutil.which(name)
    if found is None:
        raise Failure(f"{name} is not a program")
    return os.path.abspath(found)


@contextlib.contextmanager
def listening(command, log, pattern=LISTENING, patience=20, **options):
    """Runs a process, with its output in the file `log`, and waits until the output matches the pattern. Yields the process and
    the pattern's group. The process is terminated in the end, if it did not end itself."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **{"stdin": subprocess.DEVNULL, **options})
    try:
        deadline = time.monotonic() + patience
        # The line's end is part of it, so that a port is not read half.
        while not (match := re.search(pattern + r"\s", text(log))):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{os.path.basename(command[0])} does not listen: {text(log).strip()[-500:] or 'no output'}")
            time.sleep(0.02)
        yield process, match[1]
    finally:
        if process.stdin:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def text(path):
    with open(path, errors="replace") as file:
        return file.read()
