#!/usr/bin/env python3
"""A server that speaks the standard format of Docs/Protocol.md, with nothing but the standard library."""

import argparse
import asyncio
import signal
import struct
import zlib

REQUEST_HEADER = struct.Struct(">III")  # type, serial, length
RESPONSE_HEADER = struct.Struct(">IIII")  # type, serial, status, length
CHECKSUM = struct.Struct(">I")
LARGEST_PAYLOAD = 16 << 20
HEARTBEAT, CANCEL, FIRST_APPLICATION_TYPE, LARGEST_TYPE = 0, 2, 16, 0x1FFFFFFF
PUSH_SERIAL, FIRST_REQUEST_SERIAL = 1, 50
OK, ILLEGAL_LENGTH, LOST_PACKET, ILLEGAL_FORMAT = 200, 301, 302, 303
UNDEFINED_TYPE, UNKNOWN, OVERLOADED, DRAINING = 401, 404, 503, 504

MOST_IN_FLIGHT = 1024  # requests of one client
MOST_UNREAD = 1 << 20  # bytes; a client that leaves more unread misses pushes
GRACE = 5  # seconds that requests in flight have when the server shuts down


def encode(type, serial, status, payload=b""):
    header = RESPONSE_HEADER.pack(type, serial, status, len(payload))
    return header + payload + CHECKSUM.pack(zlib.adler32(payload))


# What the server does: a coroutine for each type, from payload to status and payload.
def decimal(payload):
    if not payload.isdigit() or len(payload) > 9:
        raise ValueError(payload)
    return int(payload)


async def echo(payload):
    return OK, payload


async def sleep_then_echo(payload):
    await asyncio.sleep(decimal(payload) / 1000)
    return OK, payload


async def answer_with_status(payload):
    return decimal(payload), b""


HANDLERS = {1000: echo, 1001: sleep_then_echo, 1002: answer_with_status}


class Nonsense(Exception):
    """Where the next frame starts cannot be known any more."""


class Session:
    """One client's connection."""

    def __init__(self, server, reader, writer):
        self.server, self.reader, self.writer = server, reader, writer
        self.in_flight = {}  # serial: the task that runs the request
        self.previous_was_corrupt = False
        self.has_finished = False

    async def run(self):
        try:
            try:
                while await self.read_frame():
                    await asyncio.sleep(0)  # Requests just read get their turn.
                    await self.writer.drain()  # Who does not take answers is not read either.
                # The client has closed its sending half. It may still want the answers.
                await asyncio.gather(*self.in_flight.values(), return_exceptions=True)
            except Nonsense:
                pass
            self.has_finished = True
            self.writer.write_eof()
            # To close with bytes unread would reset the connection, and what we said last would be lost.
            await asyncio.wait_for(self.discard(), timeout=1)
        except (OSError, EOFError, asyncio.TimeoutError):
            pass  # The client has gone, perhaps in the middle of a frame.
        finally:
            self.end()

    def end(self):
        for task in self.in_flight.values():
            task.cancel()
        self.writer.close()

    async def discard(self):
        while await self.reader.read(1 << 16):
            pass

    def send(self, type, serial, status, payload=b""):
        self.writer.write(encode(type, serial, status, payload))

    def push(self, frame):
        if not self.has_finished and self.writer.transport.get_write_buffer_size() < MOST_UNREAD:
            self.writer.write(frame)

    async def read_frame(self):
        """Reads a frame and does what it says. False at the end of the stream."""
        first = await self.reader.read(1)
        if not first:
            return False
        header = first + await self.reader.readexactly(REQUEST_HEADER.size - 1)
        type, serial, length = REQUEST_HEADER.unpack(header)
        if self.previous_was_corrupt and type > LARGEST_TYPE:
            raise Nonsense  # So the length of the frame before was wrong, too.
        if length > LARGEST_PAYLOAD:
            self.send(type, serial, ILLEGAL_LENGTH)
            raise Nonsense
        payload = await self.reader.readexactly(length)  # Takes memory only for what has come.
        (checksum,) = CHECKSUM.unpack(await self.reader.readexactly(CHECKSUM.size))
        self.previous_was_corrupt = checksum != zlib.adler32(payload)

        if self.previous_was_corrupt:
            if type == HEARTBEAT or type >= FIRST_APPLICATION_TYPE:
                self.send(type, serial, LOST_PACKET)
        elif type == HEARTBEAT:
            self.send(type, serial, OK)  # This server does not ping, so it is never an answer.
        elif type == CANCEL and serial in self.in_flight:
            self.in_flight.pop(serial).cancel()
        elif type >= FIRST_APPLICATION_TYPE:
            self.begin(type, serial, payload)
        return True

    def begin(self, type, serial, payload):
        if serial < FIRST_REQUEST_SERIAL or serial in self.in_flight:
            self.send(type, serial, ILLEGAL_FORMAT)
        elif self.server.is_draining:
            self.send(type, serial, DRAINING)
        elif type not in HANDLERS:
            self.send(type, serial, UNDEFINED_TYPE)
        elif len(self.in_flight) >= MOST_IN_FLIGHT:
            self.send(type, serial, OVERLOADED)
        else:
            self.in_flight[serial] = asyncio.create_task(self.handle(type, serial, payload))

    async def handle(self, type, serial, payload):
        try:
            status, answer = await HANDLERS[type](payload)
        except ValueError:
            status, answer = ILLEGAL_FORMAT, b""
        except Exception:  # Not CancelledError: nobody waits for that answer.
            status, answer = UNKNOWN, b""
        del self.in_flight[serial]
        self.send(type, serial, status, answer)


class Server:
    def __init__(self):
        self.sessions = set()
        self.is_draining = False

    async def serve(self, host, port, push, push_every):
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        listener = await asyncio.start_server(self.accept, host, port)
        print("listening on %s:%d" % listener.sockets[0].getsockname()[:2], flush=True)
        pushing = asyncio.create_task(self.push(*push, push_every)) if push else None
        await stopped.wait()

        self.is_draining = True
        listener.close()
        if pushing:
            pushing.cancel()
        running = [task for session in self.sessions for task in session.in_flight.values()]
        if running:
            await asyncio.wait(running, timeout=GRACE)
        for session in self.sessions:
            session.end()
        while self.sessions:  # Each has still to write what it has to say.
            await asyncio.sleep(0.01)

    async def accept(self, reader, writer):
        session = Session(self, reader, writer)
        self.sessions.add(session)
        await session.run()
        self.sessions.discard(session)

    async def push(self, type, text, every):
        frame = encode(type, PUSH_SERIAL, OK, text.encode())
        while True:
            await asyncio.sleep(every)
            for session in self.sessions:
                session.push(frame)


def type_and_text(argument):
    type, text = argument.split(":", 1)
    if not FIRST_APPLICATION_TYPE <= int(type) <= LARGEST_TYPE:
        raise ValueError(type)
    return int(type), text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7000, help="0 picks a free one")
    parser.add_argument("--push", type=type_and_text, metavar="TYPE:TEXT", help="push to everyone")
    parser.add_argument("--push-every", type=float, default=1.0, metavar="SECONDS")
    options = parser.parse_args()
    asyncio.run(Server().serve(options.host, options.port, options.push, options.push_every))


if __name__ == "__main__":
    main()
