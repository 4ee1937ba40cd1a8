// SPDX-License-Identifier: Apache-2.0
// The replacements of a browser, a network and a clock in the tests.

import assert from "node:assert/strict";

import { adler32, FIRST_SERIAL } from "../frames.js";
import { Client } from "../client.js";

/** Bytes written in hexadecimal, with spaces anywhere. */
export function hex(digits) {
    return Uint8Array.from(digits.replaceAll(/\s/g, "").match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export const toHex = (bytes) => Buffer.from(bytes).toString("hex").toUpperCase();
export const utf8 = (text) => new TextEncoder().encode(text);
export const fromUTF8 = (bytes) => new TextDecoder().decode(bytes);

export function concatenated(pieces) {
    return new Uint8Array(Buffer.concat(pieces));
}

/** A response frame, as a server encodes it, with another checksum if given. */
export function response(type, serial, status, payload = new Uint8Array(0), checksum = adler32(payload)) {
    const frame = new Uint8Array(20 + payload.length);
    const view = new DataView(frame.buffer);
    [type, serial, status, payload.length].forEach((field, index) => view.setUint32(4 * index, field));
    frame.set(payload, 16);
    view.setUint32(16 + payload.length, checksum);
    return frame;
}

/** The request frames in a stream of bytes, which must be complete and valid. */
export function requests(bytes) {
    const frames = [];
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    for (let at = 0; at < bytes.length; ) {
        const [type, serial, length] = [0, 4, 8].map((offset) => view.getUint32(at + offset));
        const payload = bytes.subarray(at + 12, at + 12 + length);
        assert.equal(view.getUint32(at + 12 + length), adler32(payload));
        frames.push({ type, serial, payload });
        at += 16 + length;
    }
    return frames;
}

/** Random numbers by mulberry32, from a seed that a failure can name. */
export function randomNumbers(seed) {
    let state = seed;
    return () => {
        state = (state + 0x6d2b79f5) | 0;
        let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
        mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
        return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    };
}

/** The number of repetitions, by HHSOCKET_EFFORT as in the other tests. */
export function scaled(count) {
    return Math.max(1, Math.round(count * Number(process.env.HHSOCKET_EFFORT ?? 1)));
}

/** Runs everything that is ready. */
export function settled() {
    return new Promise((resolve) => setImmediate(resolve));
}

/** A clock that moves only when the test advances it. */
export class FakeClock {
    #time = 1_000;
    #count = 0;
    #timers = new Map();

    now = () => this.#time;

    setTimeout = (action, delay) => {
        this.#count += 1;
        this.#timers.set(this.#count, { time: this.#time + delay, action });
        return this.#count;
    };

    clearTimeout = (timer) => {
        this.#timers.delete(timer);
    };

    get pendingTimers() {
        return this.#timers.size;
    }

    /** Moves the clock on, and runs in their order the timers that are due until then. */
    async advance(duration) {
        const end = this.#time + duration;
        for (;;) {
            await settled();
            const due = [...this.#timers].filter(([, { time }]) => time <= end);
            if (due.length === 0) break;
            due.sort(([one, a], [other, b]) => a.time - b.time || one - other);
            const [timer, { time, action }] = due[0];
            this.#timers.delete(timer);
            this.#time = Math.max(this.#time, time);
            action();
        }
        this.#time = end;
    }
}

/** A WebSocket whose other end is the test. It is as strict as a browser's. */
export class FakeSocket {
    binaryType = "blob";
    bufferedAmount = 0;
    protocol = "";
    readyState = 0;
    /** The messages that the client has sent since the last check, and the code with which it closed. */
    messages = [];
    closeCode;
    onopen = null;
    onmessage = null;
    onclose = null;
    onerror = null;

    constructor(url, protocols) {
        this.url = url;
        this.protocols = protocols;
    }

    // The client's side

    send(data) {
        assert.notEqual(this.readyState, 0, "InvalidStateError");
        if (this.readyState === 1) this.messages.push(data.slice());
    }

    close(code = 1000) {
        assert.ok(code === 1000 || (code >= 3_000 && code <= 4_999), `InvalidAccessError: ${code}`);
        if (this.readyState > 1) return;
        this.readyState = 2;
        this.closeCode = code;
    }

    // The test's side

    open(protocol = "hhsocket.1") {
        this.protocol = protocol;
        this.readyState = 1;
        this.onopen?.({});
        return this;
    }

    receive(data) {
        const message = typeof data === "string" ? data : data.slice().buffer;
        this.onmessage?.({ data: message });
    }

    answer(request, payload = request.payload, status = 200) {
        this.receive(response(request.type, request.serial, status, payload));
    }

    push(type, text) {
        this.receive(response(type, 1, 200, utf8(text)));
    }

    /** Ends the connection with the events that browsers report. */
    lose(code = 1006, reason = "") {
        if (this.readyState !== 1) this.onerror?.({});
        this.readyState = 3;
        this.onclose?.({ code, reason, wasClean: code !== 1006 });
    }

    /** The frames that the client has sent since the last check. */
    take() {
        const frames = requests(concatenated(this.messages));
        this.messages = [];
        return frames;
    }

    /** The calls among them. */
    takeCalls() {
        return this.take().filter(({ type, serial }) => type >= 16 && serial >= FIRST_SERIAL);
    }
}

/** A client in an environment of fakes. */
export class Place {
    clock = new FakeClock();
    /** Every WebSocket that was made. */
    sockets = [];
    /** The number that is drawn at random, from 0 to 1. */
    share = 0.5;
    states = [];
    window = new EventTarget();
    document = Object.assign(new EventTarget(), { visibilityState: "visible" });

    constructor(options = {}, url = "ws://example.com/rpc") {
        const { sockets } = this;
        this.client = new Client(url, options, {
            WebSocket: class extends FakeSocket {
                constructor(...parameters) {
                    super(...parameters);
                    sockets.push(this);
                }
            },
            clock: this.clock,
            random: () => this.share,
            window: this.window,
            document: this.document,
        });
        this.client.onState((state) => this.states.push(state.name));
    }

    /** The newest WebSocket. */
    get socket() {
        return this.sockets.at(-1);
    }

    /** Connects, and returns the open WebSocket. */
    ready() {
        this.client.connect();
        return this.socket.open();
    }

    /** A call whose outcome can be inspected. */
    call(type, text = "", options = {}) {
        const outcome = { isSettled: false };
        this.client.call(type, utf8(text), options).then(
            (payload) => {
                Object.assign(outcome, { isSettled: true, text: fromUTF8(payload) });
            },
            (error) => {
                Object.assign(outcome, { isSettled: true, error, code: error.code });
            },
        );
        return outcome;
    }
}
