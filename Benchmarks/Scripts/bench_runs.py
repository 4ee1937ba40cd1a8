# SPDX-License-Identifier: Apache-2.0
"""The code that the measuring scripts share: the cells that Benchmarks/Scripts/bench-compare and Benchmarks/Scripts/counts measure, runs of `hhsocket
bench` against `hhsocket serve`, both processes on one core, and how readings are printed."""

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "Scripts"))
from ports import free_port  # noqa: E402, F401

HELLO = ["--hello"]
STREAMS = ["--streams"]
EXECUTOR = ["--executor", "socket"]
TASK = ["--api", "task", "--callbacks", "inline"]
DISPATCH = ["--api", "dispatch", "--callbacks", "inline"]
LINES = ["--api", "line"]
MESSAGES = ["--api", "message"]
CELLS = {
    "16 B, 1 in flight": ["--body", "16", "--in-flight", "1", *TASK],
    "16 B, 64 in flight": ["--body", "16", "--in-flight", "64", *TASK],
    "16 B, 1,024 in flight": ["--body", "16", "--in-flight", "1024", *TASK],
    "16 B, 64, dispatch": ["--body", "16", "--in-flight", "64", *DISPATCH],
    "16 B, 1,024, dispatch": ["--body", "16", "--in-flight", "1024", *DISPATCH],
    "4 KiB, 64 in flight": ["--body", "4096", "--in-flight", "64", *TASK],
    "64 KiB, 64 in flight": ["--body", "65536", "--in-flight", "64", *TASK],
    "16 B, 64, async": ["--body", "16", "--in-flight", "64", "--api", "async"],
    "16 B, 1, async on executor": ["--body", "16", "--in-flight", "1", "--api", "async", *EXECUTOR],
    "16 B, 64, async on executor": ["--body", "16", "--in-flight", "64", "--api", "async", *EXECUTOR],
    "16 B, 64, default queue": ["--body", "16", "--in-flight", "64", "--api", "task", "--callbacks", "default"],
    "16 B, 64, after hello": ["--body", "16", "--in-flight", "64", *TASK, *HELLO],
    "16 B, 64, streams agreed": ["--body", "16", "--in-flight", "64", *TASK, *HELLO, *STREAMS],
    "16 B, 64, lines": ["--body", "16", "--in-flight", "64", *LINES],
    "16 B, 64, messages": ["--body", "16", "--in-flight", "64", *MESSAGES],
}
# The servers of cells that do not make calls, and the form of their addresses.
OTHER_SERVERS = {"line": ("lines-serve", "127.0.0.1:{}"), "message": ("ws-serve", "ws://127.0.0.1:{}/")}
# The exit code of a program that does not understand an argument (EX_USAGE).
USAGE = 64
# The time that a process may take beyond its measurement, in seconds.
PATIENCE = 60


class Failure(Exception):
    """An error that is reported to the user without a stack trace."""


class NotUnderstood(Failure):
    """The program does not know an option."""


def size(length):
    """
    >>> size(16), size(65536)
    ('16 B', '64 KiB')
    """
    return f"{length >> 10} KiB" if length >= 1 << 10 else f"{length} B"


def number(value):
    """
    >>> number(1_640_000.0), number(28_187.4), number(0.4769), number(45.43)
    ('1.64 M', '28.2 k', '0.477', '45.4')
    """
    for limit, unit in ((1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{float(f'{value / limit:.3g}'):g}{unit}"
    return f"{float(f'{value:.3g}'):g}"


def spread(values):
    """
    >>> spread([3.0, 1.0, 2.0])
    '2 [1–3]'
    """
    return f"{number(statistics.median(values))} [{number(min(values))}–{number(max(values))}]"


def ratio(values):
    """
    >>> ratio([0.9, 1.1, 1.0])
    '1.00 [0.90–1.10]'
    """
    return f"{statistics.median(values):.2f} [{min(values):.2f}–{max(values):.2f}]"


def is_linux():
    return sys.platform.startswith("linux")


def available_core():
    """The last core: unpinned processes and interrupts are more often on the first."""
    return max(os.sched_getaffinity(0))


# The trait with which the Makefile builds. Older commits without it build with the libraries that they find.
DEVELOPMENT = "Development"
DEVELOPMENT_OPTIONS = ["--traits", DEVELOPMENT, "--disable-build-manifest-caching"]


def build(folder, environment=None):
    """Builds the package in `folder` for release, with the same options as the Makefile. Returns the program's path."""
    command = ["swift", "build", "-c", "release", "--package-path", folder]
    with open(os.path.join(folder, "Package.swift"), encoding="utf-8") as manifest:
        if f'"{DEVELOPMENT}"' in manifest.read():
            command += DEVELOPMENT_OPTIONS
    subprocess.run([*command, "--product", "hhsocket-cli"], stdout=sys.stderr, check=True, env=environment)
    shown = subprocess.run(
        [*command, "--show-bin-path"], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return os.path.join(shown.stdout.strip(), "hhsocket-cli")


def cells_named(text):
    """
    The cells whose names contain one of the semicolon-separated parts of `text`.

    >>> list(cells_named("64, async; 1 in")), len(cells_named("")) == len(CELLS)
    (['16 B, 1 in flight', '16 B, 64, async', '16 B, 64, async on executor'], True)
    """
    parts = [part.strip() for part in text.split(";")]
    found = {name: options for name, options in CELLS.items() if any(part in name for part in parts)}
    if not found:
        raise Failure(f"no cell is called like \"{text}\"; there are: {'; '.join(CELLS)}")
    return found


def server_of(cell):
    """
    The command that serves a cell, and the form of its address.

    >>> server_of(CELLS["16 B, 64, messages"]), server_of(CELLS["16 B, 64, async"])
    (('ws-serve', 'ws://127.0.0.1:{}/'), ('serve', '127.0.0.1:{}'))
    """
    return next((OTHER_SERVERS[option] for option in cell if option in OTHER_SERVERS), ("serve", "127.0.0.1:{}"))


class Server:
    """A process of `hhsocket serve`, or of another echo server, which ends with this program, and its clients."""

    def __init__(self, program, core, cell, environment=None):
        self.program, self.core, self.cell = program, core, cell
        command, address = server_of(cell)
        arguments = [command, "--port", "0", "--announce", "%p", "--until-eof"]
        # Not a pipe, which nobody would read while it serves.
        log = tempfile.TemporaryFile("w+")
        self.process = self.start(arguments, environment, stdin=subprocess.PIPE, stderr=log)
        port = self.process.stdout.readline().strip()
        if not port.isdigit():
            self.process.communicate()
            log.seek(0)
            errors = log.read().strip()
            if self.process.returncode == USAGE:
                raise NotUnderstood(f"{program} {' '.join(arguments)}: {errors}")
            raise Failure(f"{program}: the server ended before it listened: {errors}")
        self.address = address.format(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.kill()
        self.process.communicate()

    def start(self, arguments, environment, **options):
        return subprocess.Popen(
            [self.program, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {self.core}),
            **options,
        )

    def cpu_time(self):
        """
        The CPU time that the server has used so far, in seconds.
        """
        # The clock that clock_getcpuclockid(3) returns for another process: the system's precise count of all threads,
        # including those that have ended.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def run(self, seconds, environment=None):
        """
        Makes calls, and returns the output of `bench` with two additions: `all_calls`, which includes the calls before and
        after the measured time, and `cpu_s`, the CPU time of client and server from the client's start to its end.
        """
        # Without a warm-up nearly all calls are in the measured time. The others are one at the beginning, and those in
        # flight at the end.
        arguments = ["bench", self.address, "--json", "--warmup", "0", "--seconds", str(seconds), *self.cell]
        servers_before = self.cpu_time()
        clients_before = children_cpu_time()
        client = self.start(arguments, environment, stderr=subprocess.PIPE)
        try:
            output, errors = client.communicate(timeout=seconds + PATIENCE)
        except subprocess.TimeoutExpired:
            client.kill()
            client.communicate()
            raise Failure(f"{self.program} {' '.join(arguments)} has not ended") from None
        if client.returncode == USAGE:
            raise NotUnderstood(f"{self.program} {' '.join(arguments)}: {errors.strip()}")
        if client.returncode != 0:
            raise Failure(f"{self.program} {' '.join(arguments)} failed: {errors.strip()}")
        cpu = self.cpu_time() - servers_before + children_cpu_time() - clients_before
        result = json.loads(output)
        return result | {"all_calls": result["calls"] + result["inflight"] + 1, "cpu_s": cpu}


def children_cpu_time():
    """The CPU time of the child processes that have ended, in seconds, precise to microseconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def text_of(command):
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def first_match(path, pattern):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            match = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1).strip() if match else ""


def processor():
    """The name of the processor."""
    if sys.platform == "darwin":
        name = text_of(["sysctl", "-n", "machdep.cpu.brand_string"])
    else:
        name = first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$")
    return name or platform.processor() or "unknown"
