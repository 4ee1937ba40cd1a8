// SPDX-License-Identifier: Apache-2.0
// The examples in JavaScript of Sources/HHSocket/HHSocket.docc/WebSocket.md, run as they are.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { FakeSocket, requests } from "./fakes.js";

/** A WebSocket that opens by itself and echoes calls. */
class EchoingSocket extends FakeSocket {
    constructor(...parameters) {
        super(...parameters);
        queueMicrotask(() => this.open());
    }

    send(data) {
        super.send(data);
        this.push(2001, "a push");
        for (const request of requests(data)) queueMicrotask(() => this.answer(request));
    }
}

test("the page's example runs and prints its answer", async (context) => {
    const path = "../../../Sources/HHSocket/HHSocket.docc/WebSocket.md";
    const page = await readFile(new URL(path, import.meta.url), "utf8");
    const examples = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);
    assert.equal(examples.length, 1);
    const code = examples[0].replace('"./client.js"', JSON.stringify(new URL("../client.js", import.meta.url).href));

    const printed = [];
    context.mock.method(console, "log", (...values) => printed.push(values.join(" ").trim()));
    const { WebSocket } = globalThis;
    globalThis.WebSocket = EchoingSocket;
    try {
        await import(`data:text/javascript,${encodeURIComponent(code)}`);
    } finally {
        globalThis.WebSocket = WebSocket;
    }
    assert.deepEqual(printed, ["connecting", "ready", "a push of 6 bytes", "hello", "closed"]);
});
