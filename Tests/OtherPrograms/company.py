# SPDX-License-Identifier: Apache-2.0
"""A company's server, as there were before HHSocket: a header of twelve bytes, and pushes with a counter of their own.

    company.py [--no-errors]     says `listening on HOST:PORT` and serves until SIGTERM

A frame is AC DC, a version or an error, flags, the length of what follows (4 bytes), a command and a sequence number
(2 bytes each), and a body. A request has version 1 and flags 0. In an answer the third byte is an error, 0 for none,
and the flags are 80; in a push the flags are 02. With --no-errors every frame has version 1 and flags 0, and pushes are
the frames with commands from 2000 to 2999.
"""

import asyncio
import signal
import struct
import sys

HEADER = struct.Struct(">2sBBIHH")  # magic, version or error, flags, length, command, sequence number
MAGIC, VERSION = b"\xac\xdc", 1
PING, PONG, ECHO, BOOK, ORDER, NEWS = 1, 2, 1001, 1002, 1003, 2001
UNKNOWN_COMMAND, FULL = 1, 5
HAS_ERRORS = "--no-errors" not in sys.argv


def frame(command, sequence, body=b"", error=0, flags=0x80):
    third, fourth = (error, flags) if HAS_ERRORS else (VERSION, 0)
    return HEADER.pack(MAGIC, third, fourth, 4 + len(body), command, sequence) + body


def answers(command, sequence, body):
    """The answer to a request. A push may precede it whose number equals the request's by chance."""
    if command == PING:
        return frame(PONG, sequence)
    if command == ECHO:
        return frame(command, sequence, body)
    if command == BOOK:
        return frame(command, sequence, error=FULL)
    if command == ORDER:
        return frame(NEWS, sequence, b"news", flags=0x02) + frame(command, sequence, b"ordered " + body)
    return frame(command, sequence, error=UNKNOWN_COMMAND)


async def session(reader, writer):
    try:
        while True:
            magic, version, flags, length, command, sequence = HEADER.unpack(await reader.readexactly(HEADER.size))
            if (magic, version, flags) != (MAGIC, VERSION, 0) or length < 4:
                sys.exit("a header that is none: %r" % ((magic, version, flags, length),))
            writer.write(answers(command, sequence, await reader.readexactly(length - 4)))
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
        pass  # The client has gone, or the test has ended.
    finally:
        writer.close()


async def serve():
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await asyncio.start_server(session, "127.0.0.1", 0)
    print("listening on %s:%d" % server.sockets[0].getsockname()[:2], flush=True)
    await stopped.wait()


asyncio.run(serve())
