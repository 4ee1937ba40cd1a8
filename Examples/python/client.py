#!/usr/bin/env python3
"""A client that speaks the standard format of Docs/Protocol.md, with nothing but the standard library.

Makes one call and writes the answer's payload to stdout, or prints pushes, or both. The exit code is 0 when
all went well, 1 when something failed, and 2 for wrong usage.
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
PING_SERIAL, PUSH_SERIAL, FIRST_REQUEST_SERIAL, LAST_SERIAL = 0, 1, 50, 0xFFFFFFFF
PING, OK = 0, 200  # statuses
REPLY_TIMEOUT, MISSES = 5, 2  # seconds for a sign of life after a ping; how often none may come


class Failed(Exception):
    """A call, or the connection, that failed."""


class Connection:
    def __init__(self, address, timeout, heartbeat):
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()  # what has come of frames that are not complete
        self.previous_was_corrupt = False
        self.last_serial = FIRST_REQUEST_SERIAL - 1
        self.timeout, self.heartbeat = timeout, heartbeat
        self.pinged, self.missed = None, 0  # when a ping left that nothing has come after; how many before it
        self.last_sent = self.last_received = time.monotonic()

    # Calls

    def call(self, type, payload, timeout, pushed):
        """Returns the answer's payload, and its status. Pushes that come before it go to `pushed`."""
        deadline = time.monotonic() + timeout
        serial = self.next_serial()
        self.send(type, serial, payload)
        try:
            while True:
                frame = self.next_frame(deadline)
                if frame is None:
                    raise Failed("timeout: no answer within %g s" % timeout)
                _, answered, status, answer = frame
                if answered == PUSH_SERIAL:
                    pushed(frame)
                elif answered == serial:
                    if answer is None:
                        raise Failed("checksumMismatch: the answer was damaged on its way")
                    return status, answer
        except (Failed, KeyboardInterrupt):
            self.send(CANCEL, serial)  # Nobody waits any more. Harmless if it has been answered.
            raise

    def next_serial(self):
        # A client with several calls in flight skips those serials here.
        self.last_serial = FIRST_REQUEST_SERIAL if self.last_serial == LAST_SERIAL else self.last_serial + 1
        return self.last_serial

    def listen(self, pushed):
        while True:
            frame = self.next_frame(deadline=None)
            if frame[1] == PUSH_SERIAL:
                pushed(frame)

    # Frames

    def send(self, type, serial, payload=b""):
        header = REQUEST_HEADER.pack(type, serial, len(payload))
        self.socket.settimeout(self.timeout)  # for a server that does not read
        self.socket.sendall(header + payload + CHECKSUM.pack(zlib.adler32(payload)))
        self.last_sent = time.monotonic()

    def next_frame(self, deadline):
        """The next frame that is not a heartbeat: type, serial, status, and payload, which is None if it is
        damaged. None when the deadline has passed."""
        while True:
            frame = self.take_frame()
            if frame is None:
                if not self.receive(deadline):
                    return None
                continue
            type, serial, status, payload = frame
            if type >= FIRST_APPLICATION_TYPE:
                return frame
            if type == HEARTBEAT and status == PING and payload is not None:
                self.send(HEARTBEAT, serial)
            # Else it is the answer to our ping, which has proved what it had to by coming, or an extension.

    def take_frame(self):
        """Takes one frame from what has been received, if there is a whole one."""
        if len(self.received) < RESPONSE_HEADER.size:
            return None
        type, serial, status, length = RESPONSE_HEADER.unpack_from(self.received)
        if length > LARGEST_PAYLOAD or self.previous_was_corrupt and type > LARGEST_TYPE:
            raise ConnectionError("what the server sends makes no sense")
        end = RESPONSE_HEADER.size + length
        if len(self.received) < end + CHECKSUM.size:
            return None
        payload = bytes(self.received[RESPONSE_HEADER.size : end])
        (checksum,) = CHECKSUM.unpack_from(self.received, end)
        del self.received[: end + CHECKSUM.size]
        self.previous_was_corrupt = checksum != zlib.adler32(payload)
        return type, serial, status, None if self.previous_was_corrupt else payload

    def receive(self, deadline):
        """Waits for bytes, and pings meanwhile. False when the deadline has passed."""
        while True:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            due = self.next_ping()
            if now >= due:
                self.ping()
                continue
            self.socket.settimeout((due if deadline is None else min(due, deadline)) - now)
            try:
                bytes = self.socket.recv(1 << 16)
            except socket.timeout:
                continue
            if not bytes:
                raise ConnectionError("the server closed the connection")
            self.received += bytes
            self.last_received = time.monotonic()
            self.pinged, self.missed = None, 0  # Any byte proves that the server lives.
            return True

    # Heartbeats

    def next_ping(self):
        if self.pinged is not None:
            return self.pinged + REPLY_TIMEOUT
        return min(self.last_sent, self.last_received) + self.heartbeat

    def ping(self):
        if self.pinged is not None:
            self.missed += 1
            if self.missed > MISSES:
                raise ConnectionError("the server gives no sign of life")
        self.send(HEARTBEAT, PING_SERIAL)
        self.pinged = time.monotonic()


def server_address(argument):
    host, _, port = argument.rpartition(":")
    return host.strip("[]"), int(port)


def application_type(argument):
    type = int(argument)
    if not FIRST_APPLICATION_TYPE <= type <= LARGEST_TYPE:
        raise ValueError(type)
    return type


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=server_address, metavar="HOST:PORT")
    parser.add_argument("--type", type=application_type, help="make a call of this type")
    parser.add_argument("--body", default="", help="its payload")
    parser.add_argument("--timeout", type=float, default=8.0, metavar="SECONDS")
    parser.add_argument("--listen", action="store_true", help="then print pushes, a line each: type and text")
    parser.add_argument("--count", type=int, metavar="N", help="end after N pushes")
    parser.add_argument("--heartbeat", type=float, default=30.0, metavar="SECONDS", help="silence before a ping")
    options = parser.parse_args()
    if options.type is None and not options.listen:
        parser.error("say --type, or --listen, or both")
    printed = 0

    def pushed(frame):
        nonlocal printed
        type, _, _, payload = frame
        if not options.listen or payload is None:
            return
        print(type, payload.decode(errors="backslashreplace").replace("\n", "\\n"), flush=True)
        printed += 1
        if printed == options.count:
            sys.exit(0)

    try:
        connection = Connection(options.server, options.timeout, options.heartbeat)
        if options.type is not None:
            body = options.body.encode(errors="surrogateescape")
            status, answer = connection.call(options.type, body, options.timeout, pushed)
            sys.stdout.buffer.write(answer)
            sys.stdout.flush()
            if status != OK:
                raise Failed("%d: the server answered with this status" % status)
        if options.listen:
            connection.listen(pushed)
    except (Failed, OSError) as error:
        sys.exit("error: %s" % error)
    except KeyboardInterrupt:
        sys.exit(1)


if __name__ == "__main__":
    main()
