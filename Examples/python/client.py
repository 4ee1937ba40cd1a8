#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client that speaks the standard format of Docs/Protocol.md, with nothing but the standard library.

Makes one call and writes the answer's payload to stdout, or prints pushes, a line each. Exits with 1 when
something failed, and with 2 for wrong usage.
"""

import argparse
import socket
import struct
import sys
import time
import zlib

REQUEST_HEADER = struct.Struct(">III")  # type, serial, length
RESPONSE_HEADER = struct.Struct(">IIII")  # type, serial, status, length
CHECKSUM = struct.Struct(">I")
LARGEST_PAYLOAD = 16 << 20
HEARTBEAT, CANCEL, FIRST_APPLICATION_TYPE, LARGEST_TYPE = 0, 2, 16, 0x1FFFFFFF
PUSH_SERIAL, FIRST_REQUEST_SERIAL, LAST_SERIAL = 1, 50, 0xFFFFFFFF
PING, OK, PARTIAL = 0, 200, 206  # statuses
CORRUPT_RUN = 3  # the number of consecutive wrong checksums that ends the connection


class Connection:
    def __init__(self, address, timeout):
        self.socket = socket.create_connection(address, timeout)
        self.timeout = timeout
        self.received = bytearray()  # bytes of frames that were not returned yet
        self.corrupt_run = 0  # consecutive frames with a wrong checksum
        self.serial = FIRST_REQUEST_SERIAL - 1

    def call(self, type, payload):
        """Returns the answer's status, and its payload or None if that was damaged."""
        # With more than one call in flight, skip their serials here.
        self.serial = FIRST_REQUEST_SERIAL if self.serial == LAST_SERIAL else self.serial + 1
        deadline = time.monotonic() + self.timeout
        self.send(type, self.serial, payload)
        try:
            serial = None
            while serial != self.serial:  # Others are pushes, or answers to abandoned calls.
                _, serial, status, answer = self.next_frame(deadline)
        except (socket.timeout, KeyboardInterrupt):
            self.send(CANCEL, self.serial)
            raise
        if status == PARTIAL:
            self.send(CANCEL, self.serial)  # The server would send more.
        return status, answer

    def send(self, type, serial, payload=b""):
        header = REQUEST_HEADER.pack(type, serial, len(payload))
        self.socket.settimeout(self.timeout)  # for a server that does not read
        self.socket.sendall(header + payload + CHECKSUM.pack(zlib.adler32(payload)))

    def next_frame(self, deadline=None):
        """Returns the next frame of an application's type, and answers pings that arrive before it."""
        type = HEARTBEAT
        while type < FIRST_APPLICATION_TYPE:
            type, serial, status, payload = self.read_frame(deadline)
            if type == HEARTBEAT and status == PING and payload is not None:
                self.send(HEARTBEAT, serial)
        return type, serial, status, payload

    def read_frame(self, deadline):
        """Returns type, serial, status, and payload, or None instead of a payload that was damaged."""
        self.receive(RESPONSE_HEADER.size, deadline)
        type, serial, status, length = RESPONSE_HEADER.unpack_from(self.received)
        if length > LARGEST_PAYLOAD or self.corrupt_run and type > LARGEST_TYPE:
            raise ConnectionError("the server sent an invalid frame header")
        end = RESPONSE_HEADER.size + length
        self.receive(end + CHECKSUM.size, deadline)
        payload = bytes(self.received[RESPONSE_HEADER.size : end])
        (checksum,) = CHECKSUM.unpack_from(self.received, end)
        del self.received[: end + CHECKSUM.size]
        self.corrupt_run = 0 if checksum == zlib.adler32(payload) else self.corrupt_run + 1
        if self.corrupt_run == CORRUPT_RUN:
            raise ConnectionError("%d wrong checksums running" % CORRUPT_RUN)
        return type, serial, status, None if self.corrupt_run else payload

    def receive(self, count, deadline):
        """Reads until at least `count` bytes have arrived."""
        while len(self.received) < count:
            rest = None if deadline is None else deadline - time.monotonic()
            if rest is not None and rest <= 0:
                raise socket.timeout
            self.socket.settimeout(rest)
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the server closed the connection")
            self.received += piece


def server_address(argument):
    host, _, port = argument.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=server_address, metavar="HOST:PORT")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--type", type=int, help="make a call of this type")
    what.add_argument("--listen", action="store_true", help="print pushes: type and text")
    parser.add_argument("--body", default="", help="the call's payload")
    parser.add_argument("--timeout", type=float, default=8.0, metavar="SECONDS")
    options = parser.parse_args()
    try:
        connection = Connection(options.server, options.timeout)
        while options.listen:
            type, serial, _, payload = connection.next_frame()
            if serial == PUSH_SERIAL and payload is not None:
                print(type, payload.decode(errors="backslashreplace"), flush=True)
        status, answer = connection.call(options.type, options.body.encode(errors="surrogateescape"))
        if answer is None:
            sys.exit("error: checksumMismatch: the answer was damaged on its way")
        sys.stdout.buffer.write(answer)
        if status != OK:
            sys.exit("error: %d: the server answered with this status" % status)
    except socket.timeout:
        sys.exit("error: timeout: no answer within %g s" % options.timeout)
    except OSError as error:
        sys.exit("error: %s" % error)
    except KeyboardInterrupt:
        sys.exit(1)


if __name__ == "__main__":
    main()
