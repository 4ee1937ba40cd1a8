# SPDX-License-Identifier: Apache-2.0
"""A peer that sends and expects bytes in a given order, for tests.

    peer.py serve STEP...             says `listening on HOST:PORT` and takes one connection
    peer.py connect HOST:PORT STEP...

A STEP is send:HEX, expect:HEX, shut, which says that nothing more is sent, or end, which expects the other side to
close. The exit code is 0 if all went so.
"""

import socket
import sys

PATIENCE = 60  # seconds


def receive(connection, count):
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            break
        received += piece
    return received


def main():
    role, *steps = sys.argv[1:]
    if role == "serve":
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(PATIENCE)
        print("listening on %s:%d" % listener.getsockname(), flush=True)
        connection, _ = listener.accept()
    else:
        host, port = steps.pop(0).rsplit(":", 1)
        connection = socket.create_connection((host, int(port)))
    connection.settimeout(PATIENCE)
    for number, step in enumerate(steps):
        what, _, text = step.partition(":")
        wanted = bytes.fromhex(text)
        if what == "send":
            connection.sendall(wanted)
            continue
        if what == "shut":
            connection.shutdown(socket.SHUT_WR)
            continue
        received = receive(connection, len(wanted) if what == "expect" else 1)
        if received != wanted:
            sys.exit("step %d: %s, but received %s" % (number, step, received.hex().upper()))


main()
