# SPDX-License-Identifier: Apache-2.0
"""Ports for the servers that scripts start."""

import contextlib
import random
import socket

# Below the ports that Linux (32768 up) and macOS (49152 up) give to outgoing connections. Such a connection could take a port
# before the server that it is meant for listens at it, or, to the very port that it was given, connect to itself.
SERVER_PORTS = range(10_000, 32_768)


def free_port():
    """A port of 127.0.0.1 at which nothing listens, and which no outgoing connection is given."""
    while True:
        port = random.choice(SERVER_PORTS)
        # With `SO_REUSEADDR`, as servers bind: connections that ended there do not count.
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
