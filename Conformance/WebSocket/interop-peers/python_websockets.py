# SPDX-License-Identifier: Apache-2.0
"""The other side of Conformance/WebSocket/interop, by PyPI websockets. Protocol and arguments are described there."""

import asyncio
import base64
import json
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

OPTIONS = {"max_size": None, "ping_interval": None}


def say(**record):
    print(json.dumps(record), flush=True)


async def exchange(connection, messages):
    """Sends each message and compares the answer, type and content. Returns what differs."""
    problems = []
    for index, message in enumerate(messages):
        await connection.send(message)
        answer = await asyncio.wait_for(connection.recv(), 20)
        if type(answer) is not type(message) or answer != message:
            problems.append(f"message {index} came back as {answer[:40]!r}")
    return problems


async def run(connection, code, messages):
    """Exchanges the messages and closes with the code, or without one echoes until the other side closes."""
    problems = []
    try:
        if code is None:
            async for message in connection:
                await connection.send(message)
        else:
            problems = await exchange(connection, messages)
            await connection.close(code, "bye")
    except (ConnectionClosed, TimeoutError) as error:
        problems.append(repr(error))
    await connection.wait_closed()
    say(
        protocol=connection.subprotocol,
        deflate=any(extension.name == "permessage-deflate" for extension in connection.protocol.extensions),
        problems=problems,
        close=connection.protocol.close_rcvd.code if connection.protocol.close_rcvd else None,
    )


async def server(messages, *files):
    context = None
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)

    async def handler(connection):
        code = connection.request.path.rpartition("/")[2]
        await run(connection, None if code == "echo" else int(code), messages)

    async with serve(handler, "127.0.0.1", 0, ssl=context, subprotocols=["chat"], **OPTIONS) as listener:
        say(port=listener.sockets[0].getsockname()[1])
        await listener.serve_forever()


async def client(messages, url, code, *authority):
    context = ssl.create_default_context(cafile=authority[0]) if authority else None
    async with connect(url, ssl=context, subprotocols=["other", "chat"], proxy=None, **OPTIONS) as connection:
        await run(connection, int(code), messages)


if __name__ == "__main__":
    sent = [item["text"] if "text" in item else base64.b64decode(item["base64"]) for item in json.loads(sys.stdin.readline())]
    asyncio.run({"server": server, "client": client}[sys.argv[1]](sent, *sys.argv[2:]))
