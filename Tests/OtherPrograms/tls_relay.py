#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Relays bytes between a connection with TLS and one without, by Python's ssl: for tests.

in:  tls_relay.py in TARGET_PORT CERT KEY [CLIENT_CA]: accepts TLS, connects without.
out: tls_relay.py out TARGET_PORT CA: accepts without, connects with TLS to localhost.
"""

import asyncio
import signal
import ssl
import sys

mode, target = sys.argv[1], int(sys.argv[2])
context = None
if mode == "in":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    if len(sys.argv) > 5:
        context.load_verify_locations(sys.argv[5])
        context.verify_mode = ssl.CERT_REQUIRED
else:
    context = ssl.create_default_context(cafile=sys.argv[3])


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()  # TLS in Python knows no half-closed connections.
    except (OSError, ssl.SSLError):
        writer.close()


async def relay(reader, writer):
    outgoing = {"ssl": context, "server_hostname": "localhost"} if mode == "out" else {}
    try:
        streams = await asyncio.open_connection("127.0.0.1", target, **outgoing)
    except OSError as error:
        print(error, file=sys.stderr)
        return writer.close()
    await asyncio.gather(copy(reader, streams[1]), copy(streams[0], writer))


async def main():
    incoming = {"ssl": context} if mode == "in" else {}
    server = await asyncio.start_server(relay, "127.0.0.1", 0, **incoming)
    print("listening on 127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


asyncio.run(main())
