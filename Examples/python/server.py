#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
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
OK, ILLEGAL_LENGTH, LOST_PACKET, ILLEGAL_FORMAT, UNDEFINED_TYPE, UNKNOWN = 200, 301, 302, 303, 401, 404
CORRUPT_RUN = 3  # the number of consecutive wrong checksums that ends the connection
MOST_UNREAD = 1 << 20  # bytes; a client that leaves more unread misses pushes
sessions = set()  # the connections that are open


# The handlers, one coroutine per type: each takes a payload and returns a status and a payload.
async def echo(payload):
    return OK, payload


async def sleep_then_echo(payload):
    if not payload.isdigit() or len(payload) > 9:
        return ILLEGAL_FORMAT, b""
    await asyncio.sleep(int(payload) / 1000)
    return OK, payload


HANDLERS = {1000: echo, 1001: sleep_then_echo}


class Session:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.in_flight = {}  # serial: the task that runs the request
        self.corrupt_run = 0  # consecutive frames with a wrong checksum

    async def run(self):
        sessions.add(self)
        try:
            while await self.read_frame():
                await self.writer.drain()  # A client that does not read answers is not read.
        except asyncio.IncompleteReadError:  # The client sends no more, but may still read answers.
            await asyncio.gather(*self.in_flight.values(), return_exceptions=True)
        except OSError:
            pass  # The client has gone.
        finally:
            sessions.discard(self)
            for task in self.in_flight.values():
                task.cancel()
            self.writer.close()

    def send(self, type, serial, status, payload=b""):
        header = RESPONSE_HEADER.pack(type, serial, status, len(payload))
        if not self.writer.is_closing():
            self.writer.write(header + payload + CHECKSUM.pack(zlib.adler32(payload)))

    async def read_frame(self):
        """Reads and handles a frame. Returns False if the connection must end."""
        type, serial, length = REQUEST_HEADER.unpack(await self.reader.readexactly(REQUEST_HEADER.size))
        if self.corrupt_run and type > LARGEST_TYPE:
            return False  # The length of the previous frame was wrong, too.
        if length > LARGEST_PAYLOAD:
            self.send(type, serial, ILLEGAL_LENGTH)
            return False  # The start of the next frame is unknown.
        payload = await self.reader.readexactly(length)  # Allocates only for received bytes.
        (checksum,) = CHECKSUM.unpack(await self.reader.readexactly(CHECKSUM.size))
        if checksum != zlib.adler32(payload):
            self.corrupt_run += 1
            if type == HEARTBEAT or type >= FIRST_APPLICATION_TYPE:
                self.send(type, serial, LOST_PACKET)
            return self.corrupt_run < CORRUPT_RUN
        self.corrupt_run = 0
        if type == HEARTBEAT:
            self.send(type, serial, OK)  # This server does not ping, so the frame is not an answer.
        elif type == CANCEL and serial in self.in_flight:
            self.in_flight.pop(serial).cancel()
        elif type < FIRST_APPLICATION_TYPE:
            pass
        elif serial < FIRST_REQUEST_SERIAL or serial in self.in_flight:
            self.send(type, serial, ILLEGAL_FORMAT)
        elif type not in HANDLERS:
            self.send(type, serial, UNDEFINED_TYPE)
        else:
            self.in_flight[serial] = asyncio.create_task(self.handle(type, serial, payload))
        return True

    async def handle(self, type, serial, payload):
        try:
            status, answer = await HANDLERS[type](payload)
        except Exception:  # Not CancelledError: a cancelled call needs no answer.
            status, answer = UNKNOWN, b""
        del self.in_flight[serial]
        self.send(type, serial, status, answer)


async def push(type, text, every):
    while True:
        await asyncio.sleep(every)
        for session in sessions:
            if session.writer.transport.get_write_buffer_size() < MOST_UNREAD:
                session.send(type, PUSH_SERIAL, OK, text.encode())


async def serve(options):
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = await asyncio.start_server(lambda *streams: Session(*streams).run(), options.host, options.port)
    print("listening on %s:%d" % server.sockets[0].getsockname()[:2], flush=True)
    if options.push:
        type, text = options.push.split(":", 1)
        pushing = asyncio.create_task(push(int(type), text, options.push_every))
    await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7000, help="0 picks a free one")
    parser.add_argument("--push", metavar="TYPE:TEXT", help="push to everyone")
    parser.add_argument("--push-every", type=float, default=1.0, metavar="SECONDS")
    asyncio.run(serve(parser.parse_args()))
