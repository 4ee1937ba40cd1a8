#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams of Docs/Protocol.md, with nothing but the standard library: a server and a client.

The server streams as `hhsocket serve` does: 1010 takes "COUNT SIZE" and sends so many items, 1011 takes a stream and
answers its count, bytes and SHA-256, 1012 echoes each item. The client opens one stream, sends the lines of stdin with
--items, and prints each item on a line and then the answer. It exits with 1 when something failed, and with 2 for wrong
usage.
"""

import argparse
import asyncio
import contextlib
import hashlib
import signal
import struct
import sys
import zlib

REQUEST_HEADER = struct.Struct(">III")  # type, serial, length
RESPONSE_HEADER = struct.Struct(">IIII")  # type, serial, status, length
CHECKSUM, CREDIT = struct.Struct(">I"), struct.Struct(">Q")
HEARTBEAT, CANCEL_TYPE, HELLO, CREDIT_TYPE, END, ITEM, FIRST_APPLICATION_TYPE = 0, 2, 3, 6, 7, 8, 16
CONTINUES, FLAGS = 1 << 29, 7 << 29  # bit 29: the payload continues in the next frame of this serial
OK, PARTIAL, LOST_PACKET, ILLEGAL_LENGTH, ILLEGAL_FORMAT, UNDEFINED_TYPE, OVERLOADED = 200, 206, 302, 301, 303, 401, 503
LARGEST_PAYLOAD, LARGEST_PIECE, FRAME_COST = 16 << 20, 65_536, 16
STREAM_WINDOW, CONNECTION_WINDOW, MAXIMUM_STREAMS = 262_144, 4_194_304, 100


class StreamError(Exception):
    def __init__(self, status):
        super().__init__("the stream ended with status %d" % status)
        self.status = status


# Hello, in protobuf: varints (kind 0) and bytes (kind 2).
def varint(number):
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def message(*fields):
    text = b""
    for number, value in fields:
        if isinstance(value, bytes):
            text += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            text += varint(number << 3) + varint(value)
    return text


def fields_of(text):
    """Yields the numbers and values of a message's fields."""
    offset = 0

    def read():
        nonlocal offset
        number = shift = 0
        while True:
            byte = text[offset]
            offset += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while offset < len(text):
        key = read()
        if key & 7 == 0:
            yield key >> 3, read()
        elif key & 7 == 2:
            length = read()
            yield key >> 3, text[offset : offset + length]
            offset += length
        else:
            raise ValueError("a field of another kind")


class SendWindow:
    """The amount that may be sent: all credit since the beginning, less what was sent."""

    def __init__(self, window):
        self.sent, self.granted, self.window = 0, window, window

    @property
    def free(self):
        return self.granted - self.sent

    def grant(self, total):
        if total > self.granted:
            self.granted = total
            self.window = max(self.window, self.free)


class ReceiveWindow:
    """The amount that may arrive, and the time for granting more."""

    def __init__(self, window):
        self.window = self.granted = window
        self.received = self.taken = self.taken_at_grant = 0

    def due(self):
        """Returns the grant that is due; None if none is."""
        fresh = self.taken - self.taken_at_grant
        if not (2 * fresh >= self.window or fresh > 0 and self.granted - self.received < LARGEST_PIECE + FRAME_COST):
            return None
        self.taken_at_grant = self.taken
        if self.taken + self.window <= self.granted:
            return None  # A grant never shrinks.
        self.granted = self.taken + self.window
        return self.granted


class Stream:
    def __init__(self, link, type, serial):
        self.link, self.type, self.serial = link, type, serial
        self.out, self.into = SendWindow(link.peer_stream_window), ReceiveWindow(link.stream_window)
        self.waiting = asyncio.Queue()  # received items: (item, cost, cost of its last frame); None at the end
        self.piece, self.piece_cost = b"", 0  # of an incomplete item
        self.has_ended = False  # whether the other side sends no more items
        self.answer = asyncio.get_running_loop().create_future()  # at the client: status and payload of the end
        self.task = None  # at the server

    async def send(self, item):
        rest, is_first = memoryview(item), True
        while is_first or rest:
            is_first = False
            async with self.link.moved:
                await self.link.moved.wait_for(lambda: self.answer.done() or self.room(len(rest)) is not None)
                if self.answer.done():
                    raise StreamError(self.answer.result()[0])
                size = self.room(len(rest))
                self.out.sent += size + FRAME_COST
                self.link.out.sent += size + FRAME_COST
            self.link.send_item(self, bytes(rest[:size]), continues=size < len(rest))
            rest = rest[size:]
            await self.link.writer.drain()

    def room(self, rest):
        """Returns the length that the next frame of an item may have; None if it has to wait."""
        size = min(rest, LARGEST_PIECE)
        free = min(self.out.free, self.link.out.free)
        if size + FRAME_COST <= free:
            return size
        least = min(8_192, self.link.out.window / 2)
        if 2 * self.out.free < self.out.window or self.link.out.free < least or free <= FRAME_COST:
            return None
        return free - FRAME_COST

    async def items(self):
        while True:
            entry = await self.waiting.get()
            if entry is None:
                return
            item, cost, last_cost = entry
            self.into.taken += cost
            self.link.into.taken += last_cost
            self.link.send_credit(self)
            yield item

    def received(self, piece, continues):
        """Takes a frame of an item. Raises StreamError with the status to answer."""
        cost = len(piece) + FRAME_COST
        self.into.received += cost
        if self.into.received > self.into.granted or self.has_ended:
            self.link.into.taken += cost
            raise StreamError(ILLEGAL_FORMAT)
        if len(self.piece) + len(piece) > LARGEST_PAYLOAD:
            self.link.into.taken += cost
            raise StreamError(ILLEGAL_LENGTH)
        self.piece += piece
        if continues:  # Taken at once, so that an item may exceed the window.
            self.piece_cost += cost
            self.into.taken += cost
            self.link.into.taken += cost
        else:  # The whole item counts as waiting until it is taken.
            self.into.taken -= self.piece_cost
            self.waiting.put_nowait((self.piece, self.piece_cost + cost, cost))
            self.piece, self.piece_cost = b"", 0
        self.link.send_credit(self)

    def drop(self):
        """Takes the waiting items of a stream that has ended."""
        while not self.waiting.empty():
            entry = self.waiting.get_nowait()
            if entry:
                self.link.into.taken += entry[2]
        self.link.send_credit()


class Link:
    """The common part of both sides of a connection."""

    def __init__(self, reader, writer, options):
        self.reader, self.writer = reader, writer
        self.stream_window, self.connection_window = options.stream_window, options.connection_window
        self.peer_stream_window = STREAM_WINDOW
        self.into, self.out = ReceiveWindow(self.connection_window), SendWindow(CONNECTION_WINDOW)
        self.streams = {}  # open streams, by serial
        self.pieces = {}  # of openings and answers in several frames, by serial
        self.moved = asyncio.Condition()  # a credit or an end has arrived

    def agree(self, stream_window, connection_window):
        self.peer_stream_window = stream_window or STREAM_WINDOW
        self.out = SendWindow(connection_window or CONNECTION_WINDOW)

    def send_credit(self, stream=None):
        for serial, window in [(0, self.into)] + ([(stream.serial, stream.into)] if stream else []):
            if (total := window.due()) is not None and not (stream and serial and serial not in self.streams):
                self.send(CREDIT_TYPE, serial, OK, CREDIT.pack(total))

    def whole(self, type, serial, payload):
        """Joins the pieces of an opening or an answer; None while some are missing."""
        pieces = self.pieces.pop(serial, b"") + payload
        if not type & CONTINUES:
            return pieces
        if len(pieces) > LARGEST_PAYLOAD:
            raise ConnectionError("a payload is too long")
        self.pieces[serial] = pieces
        return None

    def count_item(self, payload):
        self.into.received += len(payload) + FRAME_COST
        if self.into.received > self.into.granted:
            raise ConnectionError("more has come than was granted")

    def drop_item(self, payload):
        self.into.taken += len(payload) + FRAME_COST
        self.send_credit()

    async def credit(self, serial, payload):
        stream = self.streams.get(serial)
        if len(payload) == CREDIT.size and (serial == 0 or stream):
            async with self.moved:
                (stream.out if serial else self.out).grant(CREDIT.unpack(payload)[0])
                self.moved.notify_all()

    async def read(self, header):
        """Returns a frame's fields except the length, its payload, and whether the checksum is right."""
        *fields, length = header.unpack(await self.reader.readexactly(header.size))
        if length > LARGEST_PAYLOAD:
            raise ConnectionError("a frame is too long")
        payload = await self.reader.readexactly(length)
        (checksum,) = CHECKSUM.unpack(await self.reader.readexactly(CHECKSUM.size))
        return fields, payload, checksum == zlib.adler32(payload)


class Session(Link):
    """The server's side."""

    has_streams = False

    def send(self, type, serial, status, payload=b""):
        if not self.writer.is_closing():
            header = RESPONSE_HEADER.pack(type, serial, status, len(payload))
            self.writer.write(header + payload + CHECKSUM.pack(zlib.adler32(payload)))

    def send_item(self, stream, piece, continues):
        self.send(stream.type | (CONTINUES if continues else 0), stream.serial, PARTIAL, piece)

    async def run(self):
        try:
            while True:
                await self.frame(*await self.read(REQUEST_HEADER))
        except (asyncio.IncompleteReadError, OSError):
            pass  # The client has gone, or violates the protocol.
        finally:
            for stream in self.streams.values():
                stream.task.cancel()
            self.writer.close()

    async def frame(self, fields, payload, is_sound):
        type, serial = fields
        kind, stream = type & ~FLAGS, self.streams.get(serial)
        if kind == ITEM:
            self.count_item(payload)
            if stream is None:
                self.drop_item(payload)  # Late, which is harmless.
            elif not is_sound:
                self.drop_item(payload)
                self.end(stream, LOST_PACKET)
            else:
                try:
                    stream.received(payload, type & CONTINUES)
                except StreamError as error:
                    self.end(stream, error.status)
        elif not is_sound:
            if kind >= FIRST_APPLICATION_TYPE or kind == HEARTBEAT:
                self.send(kind, serial, LOST_PACKET)
        elif kind == HEARTBEAT:
            self.send(kind, serial, OK)
        elif kind == HELLO:
            self.hello(payload)
        elif kind == CREDIT_TYPE:
            await self.credit(serial, payload)
        elif kind == END and stream and not stream.has_ended:
            if stream.piece_cost:
                self.end(stream, ILLEGAL_FORMAT)
            else:
                stream.has_ended = True
                stream.waiting.put_nowait(None)
        elif kind == CANCEL_TYPE:
            self.pieces.pop(serial, None)
            if stream:
                self.end(stream, None)
        elif kind >= FIRST_APPLICATION_TYPE and (payload := self.whole(type, serial, payload)) is not None:
            self.open(kind, serial, payload)

    def hello(self, payload):
        try:
            fields = list(fields_of(payload))
        except (ValueError, IndexError):
            return self.send(HELLO, HELLO, 402)
        self.has_streams = (2, b"streams") in fields
        numbers = {number: value for number, value in fields if isinstance(value, int)}
        reply = [(1, 1)]
        if self.has_streams:
            self.agree(numbers.get(6), numbers.get(7))
            reply += [(2, b"streams"), (4, self.stream_window), (5, self.connection_window), (6, MAXIMUM_STREAMS)]
        self.send(HELLO, HELLO, OK, message(*reply))

    def open(self, type, serial, payload):
        if type not in HANDLERS:
            return self.send(type, serial, UNDEFINED_TYPE)
        handler, client_streams = HANDLERS[type]
        if not self.has_streams or serial in self.streams or client_streams and payload:
            return self.send(type, serial, ILLEGAL_FORMAT)
        if len(self.streams) >= MAXIMUM_STREAMS:
            return self.send(type, serial, OVERLOADED)
        stream = self.streams[serial] = Stream(self, type, serial)
        stream.has_ended = not client_streams  # An item on a call without a client stream is an error, too.
        stream.task = asyncio.create_task(self.handle(handler, stream, payload))

    async def handle(self, handler, stream, payload):
        try:
            answer = await handler(stream, payload)
        except StreamError as error:
            return self.end(stream, error.status)
        self.end(stream, OK, answer)

    def end(self, stream, status, payload=b""):
        """Ends a stream: with this status, or without an answer for None."""
        if self.streams.pop(stream.serial, None) is None:
            return
        if status is not None:
            self.send(stream.type, stream.serial, status, payload)
        if stream.task is not asyncio.current_task():
            stream.task.cancel()
        stream.drop()


async def count(stream, payload):
    words = payload.split(b" ")
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) > LARGEST_PAYLOAD:
        raise StreamError(ILLEGAL_FORMAT)
    for _ in range(int(words[0])):
        await stream.send(b"x" * int(words[1]))
    return b""


async def digest(stream, _):
    number, length, sha256 = 0, 0, hashlib.sha256()
    async for item in stream.items():
        number, length = number + 1, length + len(item)
        sha256.update(item)
    return b"%d %d %s" % (number, length, sha256.hexdigest().encode())


async def echo(stream, _):
    async for item in stream.items():
        await stream.send(item)
    return b""


# The handler of each type, and whether the client streams.
HANDLERS = {1010: (count, False), 1011: (digest, True), 1012: (echo, True)}


class Client(Link):
    def send(self, type, serial, _=None, payload=b""):
        header = REQUEST_HEADER.pack(type, serial, len(payload))
        self.writer.write(header + payload + CHECKSUM.pack(zlib.adler32(payload)))

    def send_item(self, stream, piece, continues):
        self.send(ITEM | (CONTINUES if continues else 0), stream.serial, None, piece)

    async def hello(self):
        offer = [(1, 1), (2, b"streams"), (5, 1), (6, self.stream_window), (7, self.connection_window)]
        self.send(HELLO, HELLO, None, message(*offer))
        (type, _, status), payload, is_sound = await self.read(RESPONSE_HEADER)
        fields = list(fields_of(payload)) if is_sound else []
        if type != HELLO or status != OK or (2, b"streams") not in fields:
            raise ConnectionError("the server has no streams")
        numbers = {number: value for number, value in fields if isinstance(value, int)}
        self.agree(numbers.get(4), numbers.get(5))

    def open(self, type, payload):
        serial = 50  # With more than one call on the connection, the next that is free.
        stream = self.streams[serial] = Stream(self, type, serial)
        pieces = [payload[at : at + LARGEST_PIECE] for at in range(0, len(payload), LARGEST_PIECE)] or [b""]
        for piece in pieces[:-1]:
            self.send(type | CONTINUES, serial, None, piece)
        self.send(type, serial, None, pieces[-1])
        return stream

    async def run(self):
        """Reads frames until the streams have ended."""
        while self.streams:
            (type, serial, status), payload, is_sound = await self.read(RESPONSE_HEADER)
            kind, stream = type & ~FLAGS, self.streams.get(serial)
            if kind >= FIRST_APPLICATION_TYPE and status == PARTIAL:
                self.count_item(payload)
                if stream is None or not is_sound:
                    self.drop_item(payload)
                if stream and not is_sound:
                    await self.fail(stream, "an item was damaged on its way")
                elif stream:
                    try:
                        stream.received(payload, type & CONTINUES)
                    except StreamError:
                        await self.fail(stream, "the server sends what it must not")
            elif not is_sound:
                if stream:
                    await self.fail(stream, "the answer was damaged on its way")
            elif kind == HEARTBEAT and status == 0:
                self.send(HEARTBEAT, serial)
            elif kind == CREDIT_TYPE:
                await self.credit(serial, payload)
            elif kind >= FIRST_APPLICATION_TYPE and stream:
                if (payload := self.whole(type, serial, payload)) is not None:
                    await self.end(stream, status, payload)

    async def fail(self, stream, reason):
        self.send(CANCEL_TYPE, stream.serial)
        await self.end(stream, 0, reason.encode())

    async def end(self, stream, status, payload):
        del self.streams[stream.serial]
        async with self.moved:
            stream.answer.set_result((status, payload))
            self.moved.notify_all()
        stream.waiting.put_nowait(None)


async def send_lines(client, stream):
    loop = asyncio.get_running_loop()
    with contextlib.suppress(StreamError):
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            await stream.send(line[:-1] if line.endswith(b"\n") else line)
        client.send(END, stream.serial)


async def call(options):
    host, _, port = options.server.rpartition(":")
    client = Client(*await asyncio.open_connection(host.strip("[]"), int(port)), options)
    await client.hello()
    stream = client.open(options.type, options.body.encode())
    reading = asyncio.create_task(client.run())
    reading.add_done_callback(lambda task: stream.waiting.put_nowait(None))  # also when the connection was lost
    sending = asyncio.create_task(send_lines(client, stream)) if options.items else None
    async for item in stream.items():
        sys.stdout.buffer.write(item + b"\n")
        sys.stdout.buffer.flush()
    await reading
    if sending:
        sending.cancel()
    status, answer = stream.answer.result()
    if status != OK:
        sys.exit("error: %d: %s" % (status, answer.decode(errors="backslashreplace")))
    sys.stdout.buffer.write(answer)


async def serve(options):
    server = await asyncio.start_server(lambda *ends: Session(*ends, options).run(), options.host, options.port)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    print("listening on %s:%d" % server.sockets[0].getsockname()[:2], flush=True)
    await stopped.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream-window", type=int, default=STREAM_WINDOW, metavar="BYTES")
    parser.add_argument("--connection-window", type=int, default=CONNECTION_WINDOW, metavar="BYTES")
    roles = parser.add_subparsers(required=True)
    server = roles.add_parser("serve")
    server.set_defaults(run=serve)
    server.add_argument("--host", default="127.0.0.1")
    server.add_argument("--port", type=int, default=7000, help="0 picks a free one")
    client = roles.add_parser("call")
    client.set_defaults(run=call)
    client.add_argument("server", metavar="HOST:PORT")
    client.add_argument("--type", type=int, required=True)
    client.add_argument("--body", default="", help="the request, where the client does not stream")
    client.add_argument("--items", action="store_true", help="send each line of stdin as an item")
    options = parser.parse_args()
    try:
        asyncio.run(options.run(options))
    except (OSError, asyncio.IncompleteReadError) as error:
        sys.exit("error: %s" % error)
    except KeyboardInterrupt:
        sys.exit(1)


if __name__ == "__main__":
    main()
