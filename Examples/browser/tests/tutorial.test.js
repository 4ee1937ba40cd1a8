// SPDX-License-Identifier: Apache-2.0
// The page of the tutorial Browser, run as it is.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { FakeSocket, requests } from "./fakes.js";

/** A WebSocket that opens by itself, pushes and echoes calls. */
class GreetingSocket extends FakeSocket {
    constructor(...parameters) {
        super(...parameters);
        queueMicrotask(() => this.open());
    }

    send(data) {
        super.send(data);
        this.push(2001, "welcome");
        for (const request of requests(data)) queueMicrotask(() => this.answer(request));
    }
}

test("the tutorial's page shows the state, the push and the answer", async () => {
    const folder = "../../../Sources/HHSocketRPC/HHSocketRPC.docc/Tutorials/Browser/";
    const page = await readFile(new URL(`${folder}browser-page-2.js`, import.meta.url), "utf8");
    const html = await readFile(new URL(`${folder}browser-page.html`, import.meta.url), "utf8");
    const code = page.replace('"./client.js"', JSON.stringify(new URL("../client.js", import.meta.url).href));

    const states = [];
    const lines = [];
    const elements = {
        state: { set textContent(text) { states.push(text); } },
        lines: { append: (item) => lines.push(item.textContent) },
    };
    for (const id of Object.keys(elements)) assert.ok(html.includes(`id="${id}"`));
    const { WebSocket, setTimeout } = globalThis;
    globalThis.WebSocket = GreetingSocket;
    // The page stays connected: its timers must not keep the process alive.
    globalThis.setTimeout = (...parameters) => setTimeout(...parameters).unref();
    globalThis.document = Object.assign(new EventTarget(), {
        getElementById: (id) => elements[id],
        createElement: () => ({}),
    });
    try {
        await import(`data:text/javascript,${encodeURIComponent(code)}`);
    } finally {
        Object.assign(globalThis, { WebSocket, setTimeout });
        delete globalThis.document;
    }
    assert.deepEqual(states, ["connecting", "ready"]);
    assert.deepEqual(lines, ["welcome", "Ann"]);
});
