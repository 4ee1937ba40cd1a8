// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";

import { Client } from "../client.js";
import {
    FakeClock, Place, concatenated, fromUTF8, hex, randomNumbers, requests, response, scaled, settled, toHex, utf8,
} from "./fakes.js";

// Calls

test("the bytes of the first call are those of Docs/Protocol.md", async () => {
    const place = new Place();
    const socket = place.ready();
    assert.equal(socket.url, "ws://example.com/rpc");
    assert.deepEqual(socket.protocols, ["hhsocket.1"]);
    assert.equal(socket.binaryType, "arraybuffer");
    const call = place.call(1000, "hello");
    assert.equal(toHex(socket.messages[0]), toHex(hex("000003E8 00000032 00000005 68656C6C6F 062C0215")));
    socket.receive(hex("000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215"));
    await settled();
    assert.equal(call.text, "hello");
});

test("answers may come in any order, several in a message or in pieces", async () => {
    const place = new Place();
    const socket = place.ready();
    const calls = ["a", "b", "c"].map((text) => place.call(1000, text));
    const [a, b, c] = socket.takeCalls();
    assert.deepEqual([a, b, c].map(({ serial }) => serial), [50, 51, 52]);
    const bytes = concatenated([c, a, b].map(({ type, serial, payload }) => response(type, serial, 200, payload)));
    for (const piece of [bytes.subarray(0, 50), bytes.subarray(50, 51), bytes.subarray(51)]) socket.receive(piece);
    await settled();
    assert.deepEqual(calls.map(({ text }) => text), ["a", "b", "c"]);
});

test("statuses are typed errors, even unlisted ones", async () => {
    const place = new Place();
    const socket = place.ready();
    const expected = [
        [300, "serverLostConnection", false, true], [301, "illegalLength", false, false],
        [302, "lostPacket", false, true], [303, "illegalFormat", false, false], [304, "notModified", false, false],
        [401, "undefinedType", true, true], [402, "protobufFailed", false, false], [403, "database", false, true],
        [404, "unknown", false, true], [405, "noPermission", false, true], [408, "deadlineExceeded", false, true],
        [409, "cancelledByServer", false, true], [456, "emptyProtobuf", false, false],
        [503, "overloaded", true, true], [504, "draining", true, true], [0, "server", false, false],
        [201, "server", false, false], [999, "server", false, false],
    ];
    for (const [status, code, isNotExecuted, isTransient] of expected) {
        const { client } = place;
        const call = client.call(1000, utf8("x")).catch((error) => error);
        socket.answer(socket.takeCalls()[0], utf8("why"), status);
        const error = await call;
        assert.equal(error.name, "CallError");
        assert.deepEqual(
            [error.code, error.status, error.delivery, error.isNotExecuted, error.isTransient, fromUTF8(error.payload)],
            [code, status, "answered", isNotExecuted, isTransient, "why"],
        );
    }
});

test("a partial answer is an error that cancels the call, and further ones are dropped", async () => {
    const place = new Place();
    const socket = place.ready();
    const call = place.call(1000, "x");
    const [request] = socket.takeCalls();
    socket.answer(request, utf8("1"), 206);
    await settled();
    assert.equal(call.code, "partial");
    assert.deepEqual(socket.take().map(({ type, serial }) => [type, serial]), [[2, 50]]);
    socket.answer(request, utf8("2"), 206);
    socket.answer(request, utf8("3"), 200);
    assert.equal(place.client.state.name, "ready");
});

test("a call without an answer times out, cancels, and does not affect the connection", async () => {
    const place = new Place();
    const socket = place.ready();
    const slow = place.call(1000, "slow", { timeout: 100 });
    const other = place.call(1000, "other");
    const [late, request] = socket.takeCalls();
    await place.clock.advance(99);
    assert.equal(slow.isSettled, false);
    await place.clock.advance(1);
    assert.deepEqual([slow.code, slow.error.delivery], ["timeout", "sentUnknown"]);
    assert.deepEqual(socket.take().map(({ type, serial }) => [type, serial]), [[2, late.serial]]);
    socket.answer(late);
    socket.answer(request);
    await settled();
    assert.equal(other.text, "other");
    assert.equal(slow.code, "timeout");
    await place.clock.advance(8_000);
    assert.equal(place.client.state.name, "ready");
});

test("a call in flight that is aborted cancels once", async () => {
    const place = new Place();
    const socket = place.ready();
    const controller = new AbortController();
    const call = place.call(1000, "x", { signal: controller.signal });
    const [request] = socket.takeCalls();
    controller.abort(new Error("the user has left"));
    socket.answer(request);
    await settled();
    assert.deepEqual([call.code, call.error.delivery], ["cancelled", "sentUnknown"]);
    assert.equal(call.error.cause.message, "the user has left");
    assert.deepEqual(socket.take().map(({ type, serial }) => [type, serial]), [[2, 50]]);
    await place.clock.advance(20_000);
    assert.deepEqual(socket.take(), []);
});

test("a call that is aborted before it was sent is never sent", async () => {
    const place = new Place();
    place.client.connect();
    const controller = new AbortController();
    const call = place.call(1000, "x", { signal: controller.signal });
    controller.abort();
    await settled();
    assert.deepEqual([call.code, call.error.delivery], ["cancelled", "notSent"]);
    const early = place.call(1000, "y", { signal: controller.signal });
    await settled();
    assert.equal(early.code, "cancelled");
    assert.deepEqual(place.socket.open().take(), []);
});

test("an abort after the answer changes nothing", async () => {
    const place = new Place();
    const socket = place.ready();
    const controller = new AbortController();
    const call = place.call(1000, "x", { signal: controller.signal });
    socket.answer(socket.takeCalls()[0]);
    assert.equal(getEventListeners(controller.signal, "abort").length, 0);
    controller.abort();
    await settled();
    assert.equal(call.text, "x");
    assert.deepEqual(socket.take(), []);
});

test("serials of abandoned calls are not used while their answers may arrive", async () => {
    const place = new Place();
    const socket = place.ready();
    for (let count = 0; count < 3; count += 1) {
        place.call(1000, "x", { timeout: 1 });
        await place.clock.advance(1);
    }
    const serials = socket.takeCalls().map(({ serial }) => serial);
    place.call(1000, "y");
    assert.deepEqual([...serials, socket.takeCalls()[0].serial], [50, 51, 52, 53]);
});

test("an answer with a wrong checksum fails only its call", async () => {
    const place = new Place();
    const socket = place.ready();
    const [damaged, intact] = [place.call(1000, "a"), place.call(1000, "b")];
    const [first, second] = socket.takeCalls();
    socket.receive(response(1000, first.serial, 200, utf8("a"), 7));
    socket.receive(response(2001, 1, 200, utf8("a push"), 7));
    socket.answer(second);
    await settled();
    assert.deepEqual([damaged.code, damaged.error.delivery], ["checksumMismatch", "sentUnknown"]);
    assert.equal(intact.text, "b");
});

test("an answer with flags that were not agreed on fails only its call", async () => {
    const place = new Place();
    const socket = place.ready();
    const call = place.call(1000, "a");
    socket.receive(response(0x800003e8, socket.takeCalls()[0].serial, 200, utf8("a")));
    socket.receive(response(0x800007d1, 1, 200, utf8("a push")));
    await settled();
    assert.equal(call.code, "protocolViolation");
    assert.equal(place.client.state.name, "ready");
});

test("unknown serials, control types and answers of heartbeats are dropped", async () => {
    const place = new Place();
    const socket = place.ready();
    const call = place.call(1000, "x");
    const [request] = socket.takeCalls();
    socket.receive(response(1000, 77, 200));
    socket.receive(response(7, request.serial, 200));
    socket.receive(response(0, request.serial, 200));
    socket.receive(response(0, request.serial, 0));
    socket.receive(response(1000, 2, 200));
    await settled();
    assert.equal(call.isSettled, false);
    assert.deepEqual(socket.take(), []);
});

test("wrong arguments are reported immediately", async () => {
    const place = new Place({ maximumPayload: 10 });
    place.ready();
    const { client } = place;
    const wrong = { name: "CallError", code: "invalidArgument", delivery: "notSent" };
    for (const type of [15, 0, -1, 0x20000000, 1.5, "1000", undefined]) await assert.rejects(client.call(type), wrong);
    for (const payload of ["text", [1], new ArrayBuffer(1), null]) {
        await assert.rejects(client.call(1000, payload), wrong);
    }
    for (const timeout of [0, -1, NaN, Infinity, 2 ** 31, "1"]) {
        await assert.rejects(client.call(1000, undefined, { timeout }), wrong);
    }
    await assert.rejects(client.call(1000, new Uint8Array(11)), { code: "frameTooLarge", delivery: "notSent" });
    for (const url of ["", "example.com", "http://example.com", "ws://example.com/#x"]) {
        assert.throws(() => new Place({}, url), { code: "invalidArgument" }, url);
    }
    for (const options of [{ timeouts: 1 }, { timeout: "1" }, { backoffCap: -1 }, { timeout: Infinity }]) {
        assert.throws(() => new Place(options), { code: "invalidArgument" });
    }
    assert.throws(() => new Client("ws://example.com", {}, { WebSocket: undefined }), { code: "invalidArgument" });
});

test("long calls are sent in messages of 65,535 bytes", async () => {
    const place = new Place();
    const socket = place.ready();
    place.client.call(1000, new Uint8Array(200_000).fill(1)).catch(() => {});
    assert.deepEqual(socket.messages.map(({ length }) => length), [65_535, 65_535, 65_535, 3_411]);
    assert.equal(socket.takeCalls()[0].payload.length, 200_000);
});

test("a payload that its owner changes later is sent unchanged", () => {
    const place = new Place();
    place.client.connect();
    const payload = utf8("hello");
    place.client.call(1000, payload).catch(() => {});
    payload.fill(0);
    assert.equal(fromUTF8(place.socket.open().takeCalls()[0].payload), "hello");
});

// Waiting calls

test("calls wait for the connection, and are sent in order", async () => {
    const place = new Place();
    place.client.connect();
    const calls = ["a", "b", "c"].map((text) => place.call(1000, text));
    await place.clock.advance(5_000);
    const socket = place.socket.open();
    const sent = socket.takeCalls();
    assert.deepEqual(sent.map(({ payload }) => fromUTF8(payload)), ["a", "b", "c"]);
    for (const request of sent) socket.answer(request);
    await settled();
    assert.deepEqual(calls.map(({ text }) => text), ["a", "b", "c"]);
});

test("a call that waits too long fails, with the reason why there is no connection", async () => {
    const place = new Place();
    place.client.connect();
    place.socket.lose();
    const call = place.call(1000, "x", { timeout: 100 });
    await place.clock.advance(100);
    assert.deepEqual([call.code, call.error.delivery, call.error.cause.code], ["timeout", "notSent", "connectFailed"]);
    await place.clock.advance(1_000);
    assert.deepEqual(place.socket.open().take(), []);
});

test("waiting calls are bounded in number and in bytes", async () => {
    const place = new Place({ maximumWaiting: 2 });
    place.client.connect();
    const calls = ["a", "b", "c"].map((text) => place.call(1000, text));
    await settled();
    assert.deepEqual(calls.map(({ code }) => code), [undefined, undefined, "queueFull"]);
    const small = new Place({ maximumWaitingBytes: 100 });
    small.client.connect();
    const large = ["x".repeat(80), "y".repeat(5)].map((text) => small.call(1000, text));
    await settled();
    assert.deepEqual(large.map(({ code }) => code), [undefined, "queueFull"]);
    // Sent calls make room.
    small.socket.open();
    small.call(1000, "z".repeat(80));
    assert.equal(small.socket.takeCalls().length, 2);
});

test("without connect(), and after close(), calls fail immediately", async () => {
    const place = new Place();
    const early = place.call(1000, "x");
    await settled();
    assert.equal(early.code, "notConnected");
    place.ready();
    place.client.close();
    const late = place.call(1000, "x");
    await settled();
    assert.deepEqual([late.code, late.error.delivery], ["notConnected", "notSent"]);
});

test("calls wait while too many are in flight", async () => {
    const place = new Place({ maximumInFlight: 2 });
    const socket = place.ready();
    const controller = new AbortController();
    place.call(1000, "a");
    place.call(1000, "b", { timeout: 1_000 });
    place.call(1000, "c", { signal: controller.signal });
    ["d", "e", "f"].forEach((text) => place.call(1000, text));
    const texts = () => socket.takeCalls().map(({ payload }) => fromUTF8(payload));
    const [a, b] = socket.takeCalls();
    assert.equal(fromUTF8(b.payload), "b");
    // An answer, a timeout and a cancelled call make room.
    socket.answer(a);
    assert.deepEqual(texts(), ["c"]);
    await place.clock.advance(1_000);
    assert.deepEqual(texts(), ["d"]);
    controller.abort();
    assert.deepEqual(texts(), ["e"]);
});

test("calls wait while the browser holds too many bytes, and pings are not answered", async () => {
    const place = new Place();
    const socket = place.ready();
    socket.bufferedAmount = 2_000_000;
    const call = place.call(1000, "x");
    socket.receive(response(0, 5, 0));
    await place.clock.advance(1_000);
    assert.deepEqual(socket.take(), []);
    socket.bufferedAmount = 0;
    await place.clock.advance(100);
    assert.equal(socket.takeCalls().length, 1);
    assert.equal(call.isSettled, false);
});

// Pushes

test("pushes go to the handlers of their type, and a handler that throws has no effect on others", async () => {
    const place = new Place();
    const reported = [];
    globalThis.reportError = (error) => reported.push(error.message);
    const heard = [];
    place.client.onPush(2001, () => {
        throw new Error("a fault of the page");
    });
    const end = place.client.onPush(2001, (payload) => heard.push(fromUTF8(payload)));
    place.client.onPush(2002, () => heard.push("another type"));
    const socket = place.ready();
    socket.push(2001, "a");
    socket.push(2003, "nobody listens");
    socket.receive(response(2001, 1, 300, utf8("no push")));
    end();
    socket.push(2001, "b");
    delete globalThis.reportError;
    assert.deepEqual(heard, ["a"]);
    assert.deepEqual(reported, ["a fault of the page", "a fault of the page"]);
    assert.equal(place.client.state.name, "ready");
});

test("a handler that closes the client ends the frames that came with the push", () => {
    const place = new Place();
    const heard = [];
    place.client.onPush(2001, (payload) => {
        heard.push(fromUTF8(payload));
        place.client.close();
    });
    place.ready().receive(concatenated([response(2001, 1, 200, utf8("a")), response(2001, 1, 200, utf8("b"))]));
    assert.deepEqual(heard, ["a"]);
});

// Heartbeats

test("the server's pings are answered with their serial", () => {
    const place = new Place();
    const socket = place.ready();
    socket.receive(hex("00000000 00000005 00000000 00000000 00000001"));
    assert.equal(toHex(concatenated(socket.messages)), toHex(hex("00000000 00000005 00000000 00000001")));
    socket.take();
    socket.receive(response(0, 5, 200));
    socket.receive(response(0, 5, 0, new Uint8Array(0), 7));
    assert.deepEqual(socket.take(), []);
});

test("a ping is sent after silence, and two without a byte in return end the connection", async () => {
    const place = new Place({ heartbeatInterval: 30_000, heartbeatTimeout: 8_000 });
    const socket = place.ready();
    const call = place.call(1000, "x", { timeout: 100_000 });
    socket.take();
    await place.clock.advance(29_999);
    assert.deepEqual(socket.take(), []);
    await place.clock.advance(1);
    assert.deepEqual(socket.take().map(({ type, serial }) => [type, serial]), [[0, 0]]);
    await place.clock.advance(8_000);
    assert.equal(socket.take().length, 1);
    await place.clock.advance(7_999);
    assert.equal(place.client.state.name, "ready");
    await place.clock.advance(1);
    assert.deepEqual([place.client.state.name, place.client.state.error.code], ["waiting", "connectionLost"]);
    assert.equal(socket.closeCode, 1000);
    assert.deepEqual([call.code, call.error.delivery], ["connectionLost", "sentUnknown"]);
});

test("any byte is a sign of life, and silence of either side causes a ping", async () => {
    const place = new Place({ heartbeatInterval: 10_000, heartbeatTimeout: 4_000 });
    const socket = place.ready();
    // Only the server sends.
    for (let count = 0; count < 10; count += 1) {
        await place.clock.advance(3_000);
        socket.receive(response(2001, 1, 200).subarray(0, 0));
    }
    const pings = socket.take();
    assert.ok(pings.length >= 2 && pings.length <= 3, `${pings.length} pings`);
    assert.equal(place.client.state.name, "ready");
});

test("a ping that waits behind queued bytes does not count as missed", async () => {
    const place = new Place({ heartbeatInterval: 10_000, heartbeatTimeout: 1_000 });
    const socket = place.ready();
    socket.bufferedAmount = 100_000;
    await place.clock.advance(10_000);
    for (let left = 90_000; left >= 0; left -= 10_000) {
        socket.bufferedAmount = left;
        await place.clock.advance(1_000);
    }
    assert.equal(place.client.state.name, "ready");
    await place.clock.advance(2_000);
    assert.equal(place.client.state.name, "waiting");
});

// Reconnecting

test("the waits are drawn evenly below bounds that double, including the first", async () => {
    const place = new Place();
    place.share = 0.999;
    place.client.connect();
    const waits = [];
    for (let count = 0; count < 9; count += 1) {
        place.socket.lose();
        const wait = place.client.state.until - place.clock.now();
        waits.push(Math.round(wait / 999));
        await place.clock.advance(wait);
    }
    assert.deepEqual(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    const spread = new Place();
    spread.share = 0;
    spread.client.connect();
    spread.socket.lose();
    assert.equal(spread.client.state.until, spread.clock.now());
    await spread.clock.advance(0);
    spread.socket.lose();
    // Never a tight loop.
    assert.equal(spread.client.state.until, spread.clock.now() + 100);
});

test("the bounds start over after a connection that lasted, and not after one that did not", async () => {
    const place = new Place();
    place.share = 0.5;
    place.client.connect();
    const wait = () => place.client.state.until - place.clock.now();
    place.socket.lose();
    await place.clock.advance(500);
    place.socket.open();
    await place.clock.advance(9_999);
    place.socket.lose();
    assert.equal(wait(), 1_000);
    await place.clock.advance(1_000);
    place.socket.open();
    await place.clock.advance(10_000);
    place.socket.lose();
    assert.equal(wait(), 500);
});

test("calls in flight fail with the connection, and waiting ones are sent on the next one, once", async () => {
    const place = new Place();
    const first = place.ready();
    const lost = place.call(1000, "lost");
    first.lose(1001, "restart");
    const waiting = place.call(1000, "waiting");
    await settled();
    assert.deepEqual([lost.code, lost.error.delivery], ["connectionLost", "sentUnknown"]);
    assert.equal(lost.error.isNotExecuted, false);
    assert.match(lost.error.message, /1001 restart/);
    await place.clock.advance(1_000);
    assert.equal(place.sockets.length, 2);
    place.socket.open();
    const sent = place.socket.takeCalls();
    assert.deepEqual(sent.map(({ serial, payload }) => [serial, fromUTF8(payload)]), [[50, "waiting"]]);
    place.socket.answer(sent[0]);
    await settled();
    assert.equal(waiting.text, "waiting");
});

test("events of an old WebSocket are not taken for the new one's", async () => {
    const place = new Place({ openTimeout: 1_000 });
    place.client.connect();
    const late = place.socket;
    const callbacks = { open: late.onopen, message: late.onmessage, close: late.onclose, error: late.onerror };
    await place.clock.advance(1_000);
    assert.deepEqual([place.client.state.name, place.client.state.error.code], ["waiting", "connectTimeout"]);
    assert.equal(late.closeCode, 1000);
    assert.deepEqual([late.onopen, late.onmessage, late.onclose, late.onerror], [null, null, null, null]);
    await place.clock.advance(1_000);
    place.socket.open();
    const call = place.call(1000, "x");
    callbacks.close({ code: 1006, reason: "" });
    callbacks.error({});
    await settled();
    assert.equal(place.client.state.name, "ready");
    assert.equal(call.isSettled, false);
});

test("a failed opening is reported once although the browser reports it twice", async () => {
    const place = new Place();
    place.client.connect();
    place.socket.lose();
    await settled();
    assert.deepEqual(place.states, ["connecting", "waiting"]);
    await place.clock.advance(500);
    assert.equal(place.sockets.length, 2);
});

test("the return of the network or of the page connects immediately", async () => {
    for (const wake of [
        (place) => place.window.dispatchEvent(new Event("online")),
        (place) => place.document.dispatchEvent(new Event("visibilitychange")),
        (place) => place.client.connect(),
    ]) {
        const place = new Place();
        place.client.connect();
        place.socket.lose();
        wake(place);
        assert.equal(place.sockets.length, 2);
        wake(place);
        assert.equal(place.sockets.length, 2);
        place.socket.open();
        await place.clock.advance(5_000);
        assert.equal(place.sockets.length, 2);
        assert.equal(place.client.state.name, "ready");
    }
});

test("a page that becomes hidden does not connect immediately, unless the network returns", () => {
    const place = new Place();
    place.client.connect();
    place.socket.lose();
    place.document.visibilityState = "hidden";
    place.document.dispatchEvent(new Event("visibilitychange"));
    assert.equal(place.sockets.length, 1);
    place.window.dispatchEvent(new Event("online"));
    assert.equal(place.sockets.length, 2);
});

test("a connection that may have died unseen is probed when the page becomes visible again", async () => {
    const place = new Place({ heartbeatTimeout: 8_000 });
    const socket = place.ready();
    place.document.dispatchEvent(new Event("visibilitychange"));
    place.window.dispatchEvent(new Event("online"));
    assert.deepEqual(socket.take().map(({ type, serial }) => [type, serial]), [[0, 0]]);
    await place.clock.advance(16_000);
    assert.equal(place.client.state.name, "waiting");
});

test("close codes from 3500 to 3999 and from 4500 to 4999 end the attempts, others do not", async () => {
    for (const [code, isFinal] of [
        [1000, false], [1001, false], [1002, false], [1006, false], [1008, false], [3000, false], [3499, false],
        [3500, true], [3999, true], [4000, false], [4499, false], [4500, true], [4999, true],
    ]) {
        const place = new Place();
        const socket = place.ready();
        const call = place.call(1000, "x");
        socket.lose(code, "because");
        const waiting = place.call(1000, "y");
        await settled();
        assert.equal(place.client.state.name, isFinal ? "closed" : "waiting", `${code}`);
        assert.match(place.client.state.error.message, new RegExp(`${code} because`));
        assert.equal(call.code, "connectionLost");
        assert.equal(waiting.code, isFinal ? "notConnected" : undefined);
        place.window.dispatchEvent(new Event("online"));
        assert.equal(place.sockets.length, isFinal ? 1 : 2, `${code}`);
        if (isFinal) {
            assert.equal(place.clock.pendingTimers, 0);
            place.client.connect();
            place.socket.open();
            assert.equal(place.client.state.name, "ready");
        }
    }
});

test("a server that does not choose the subprotocol is left", async () => {
    const place = new Place();
    place.client.connect();
    const socket = place.socket.open("");
    assert.deepEqual([place.client.state.name, place.client.state.error.code], ["waiting", "handshakeRefused"]);
    assert.equal(socket.closeCode, 1000);
});

test("text, frames over the limit and a run of wrong checksums close and reconnect", async () => {
    const wrong = response(1000, 50, 200, utf8("x"), 7);
    for (const [bytes, closeCode, code] of [
        ["text", 4003, "protocolViolation"],
        [response(1000, 50, 200, new Uint8Array(11)), 4009, "frameTooLarge"],
        [concatenated([wrong, wrong, wrong]), 4002, "protocolViolation"],
    ]) {
        const place = new Place({ maximumPayload: 10 });
        const socket = place.ready();
        const heard = [];
        place.client.onPush(2001, (payload) => heard.push(fromUTF8(payload)));
        const call = place.call(1001, "x");
        // Frames before the fault are delivered.
        socket.push(2001, "before");
        socket.receive(bytes);
        await settled();
        assert.equal(socket.closeCode, closeCode);
        assert.deepEqual([place.client.state.name, place.client.state.error.code], ["waiting", code]);
        assert.ok(call.isSettled);
        assert.deepEqual(heard, ["before"]);
        await place.clock.advance(1_000);
        assert.equal(place.sockets.length, 2);
    }
});

test("close() fails every call once, and leaves neither timers nor listeners", async () => {
    const place = new Place({ maximumInFlight: 1 });
    const socket = place.ready();
    const calls = ["in flight", "waiting"].map((text) => place.call(1000, text));
    place.client.close();
    await settled();
    assert.deepEqual(calls.map(({ code, error }) => [code, error.delivery]), [
        ["cancelled", "sentUnknown"], ["cancelled", "notSent"],
    ]);
    assert.equal(socket.closeCode, 1000);
    assert.equal(place.clock.pendingTimers, 0);
    assert.deepEqual(place.states, ["connecting", "ready", "closed"]);
    place.window.dispatchEvent(new Event("online"));
    place.document.dispatchEvent(new Event("visibilitychange"));
    await place.clock.advance(100_000);
    assert.equal(place.sockets.length, 1);
    place.client.close();
    assert.equal(place.states.length, 3);
});

test("the client may be closed, and connected again, upon each state", async () => {
    for (const name of ["connecting", "ready", "waiting"]) {
        const place = new Place();
        const end = place.client.onState((state) => {
            if (state.name === name) place.client.close();
        });
        const heard = [];
        place.client.onState((state) => heard.push(state.name));
        place.client.connect();
        place.socket?.open();
        place.socket?.lose();
        await place.clock.advance(10_000);
        assert.equal(place.client.state.name, "closed", name);
        // The other handler has received the states in order.
        assert.equal(heard.at(-1), "closed", name);
        assert.equal(place.clock.pendingTimers, 0, name);
        assert.equal(place.sockets.length, name === "connecting" ? 0 : 1);
        end();
        place.client.onState((state) => {
            if (state.name === "closed") place.client.connect();
        });
        place.ready();
        place.client.close();
        place.socket.open();
        assert.equal(place.client.state.name, "ready", name);
    }
});

test("each attempt asks for its URL, and one that comes too late opens nothing", async () => {
    const tokens = [];
    const place = new Place({}, () => new Promise((resolve, reject) => tokens.push({ resolve, reject })));
    place.client.connect();
    assert.equal(place.sockets.length, 0);
    tokens[0].resolve("ws://example.com/rpc?token=1");
    await settled();
    assert.equal(place.socket.url, "ws://example.com/rpc?token=1");
    place.socket.lose();
    await place.clock.advance(1_000);
    tokens[1].reject(new Error("no token"));
    await settled();
    assert.deepEqual([place.client.state.name, place.client.state.error.message], ["waiting", "no token"]);
    await place.clock.advance(2_000);
    assert.equal(tokens.length, 3);
    place.client.close();
    tokens[2].resolve("ws://example.com/rpc?token=3");
    await settled();
    assert.equal(place.sockets.length, 1);
    assert.equal(place.client.state.name, "closed");
});

test("a WebSocket that the browser forbids ends the attempts", async () => {
    const clock = new FakeClock();
    const client = new Client("ws://example.com", {}, {
        clock,
        WebSocket: class {
            constructor() {
                throw new DOMException("an insecure WebSocket from a secure page", "SecurityError");
            }
        },
    });
    client.connect();
    assert.deepEqual([client.state.name, client.state.error.code], ["closed", "invalidArgument"]);
    assert.equal(clock.pendingTimers, 0);
});

// Go-away

/** A go-away of Docs/Protocol.md: reason `restart`, 1,500 ms. */
const GO_AWAY = hex(`
    00000004 00000004 000000C8 0000001B 0A0772657374617274 10DC0B 1A0D31302E302E302E323A37303030 682806B3
`);

test("after a go-away calls in flight are answered, and new ones are sent on the next connection", async () => {
    const place = new Place();
    const old = place.ready();
    const inFlight = place.call(1000, "in flight");
    const [request] = old.takeCalls();
    old.receive(GO_AWAY);
    assert.equal(place.client.state.name, "waiting");
    assert.match(place.client.state.error.message, /restart/);
    const next = place.call(1000, "next");
    assert.deepEqual(old.take(), []);
    // The server has asked for 1,500 ms, and neither the network nor the page shortens the wait.
    place.window.dispatchEvent(new Event("online"));
    await place.clock.advance(1_499);
    assert.equal(place.sockets.length, 1);
    await place.clock.advance(1);
    assert.equal(place.sockets.length, 2);
    place.socket.open();
    assert.equal(old.closeCode, undefined);
    old.answer(request);
    await settled();
    assert.equal(inFlight.text, "in flight");
    assert.equal(old.closeCode, 1000);
    place.socket.answer(place.socket.takeCalls()[0]);
    await settled();
    assert.equal(next.text, "next");
});

test("a call that the leaving server has not begun is sent again, on the next connection", async () => {
    const place = new Place();
    const old = place.ready();
    const crossed = place.call(1000, "crossed");
    const [request] = old.takeCalls();
    old.receive(response(4, 4, 200));
    old.answer(request, new Uint8Array(0), 504);
    await place.clock.advance(500);
    const sent = place.socket.open().takeCalls();
    assert.deepEqual(sent.map(({ serial, payload }) => [serial, fromUTF8(payload)]), [[50, "crossed"]]);
    place.socket.answer(sent[0]);
    await settled();
    assert.equal(crossed.text, "crossed");
    assert.equal(old.closeCode, 1000);
});

test("pushes of a leaving server are taken until there is another", async () => {
    const place = new Place();
    const heard = [];
    place.client.onPush(2001, (payload) => heard.push(fromUTF8(payload)));
    const old = place.ready();
    place.call(1000, "in flight", { timeout: 100_000 });
    old.receive(response(4, 4, 200, utf8("no message")));
    old.push(2001, "a");
    await place.clock.advance(500);
    old.push(2001, "b");
    place.socket.open();
    old.push(2001, "c");
    place.socket.push(2001, "d");
    assert.deepEqual(heard, ["a", "b", "d"]);
    // Its end is not the end of the new connection.
    old.lose(1001);
    assert.equal(place.client.state.name, "ready");
});

test("a go-away does not keep the client away forever, and a second one has no effect", async () => {
    const place = new Place();
    const old = place.ready();
    const forEver = hex("10FFFFFFFF0F");
    old.receive(response(4, 4, 200, forEver));
    old.receive(response(4, 4, 200));
    await place.clock.advance(5 * 60 * 1_000 - 1);
    assert.equal(place.sockets.length, 1);
    await place.clock.advance(1);
    assert.equal(place.sockets.length, 2);
});

// Everything at once

test("in random histories each call is settled once, with its own answer, and is sent at most once", async () => {
    let answered = 0;
    for (let seed = 1; seed <= scaled(300); seed += 1) {
        const random = randomNumbers(seed);
        const below = (count) => Math.floor(random() * count);
        const place = new Place({ maximumInFlight: 1 + below(4), maximumWaiting: 1 + below(5), backoffCap: 2_000 });
        const calls = [];
        /** The requests on each WebSocket, by text, and those that may be sent again. */
        const sent = new Map();
        const open = [];
        place.share = random();
        place.client.connect();
        const collect = () => {
            for (const socket of place.sockets) {
                for (const request of socket.take()) {
                    if (request.type !== 1000) continue;
                    const text = fromUTF8(request.payload);
                    sent.set(text, (sent.get(text) ?? 0) + 1);
                    open.push({ socket, request, text });
                }
            }
        };
        for (let step = 0; step < 60; step += 1) {
            const { socket } = place;
            switch (below(11)) {
                case 0: case 1: case 2: {
                    const controller = new AbortController();
                    const text = `${seed}/${calls.length}`;
                    const outcome = place.call(1000, text, { timeout: 1 + below(3_000), signal: controller.signal });
                    calls.push({ text, outcome, controller, mayRepeat: false });
                    break;
                }
                case 3: case 4: case 5: {
                    if (open.length === 0) break;
                    const [{ socket: link, request, text }] = open.splice(below(open.length), 1);
                    const status = [200, 200, 200, 404, 504, 206][below(6)];
                    if (status === 504) calls.find((call) => call.text === text).mayRepeat = true;
                    link.answer(request, request.payload, status);
                    if (random() < 0.1) link.answer(request, utf8("twice"), 200);
                    break;
                }
                case 6:
                    if (calls.length > 0) calls[below(calls.length)].controller.abort();
                    break;
                case 7:
                    if (socket.readyState === 0) socket.open();
                    break;
                case 8:
                    if (random() < 0.3 && socket.readyState < 2) socket.lose([1006, 1001][below(2)]);
                    else if (random() < 0.3 && socket.readyState === 1) socket.receive(response(4, 4, 200));
                    break;
                case 9:
                    place.share = random();
                    await place.clock.advance(below(2_000));
                    break;
                case 10:
                    if (socket.readyState === 1) socket.receive(new Uint8Array(below(5)));
                    break;
            }
            collect();
        }
        if (random() < 0.5) place.client.close();
        await place.clock.advance(60_000);
        collect();
        for (const { text, outcome, mayRepeat } of calls) {
            const where = `seed ${seed}, call ${text}`;
            const count = sent.get(text) ?? 0;
            assert.ok(outcome.isSettled, where);
            assert.ok(count <= 1 || mayRepeat, `${where}: sent ${count} times`);
            if (outcome.text !== undefined) {
                assert.equal(outcome.text, text, where);
                answered += 1;
            } else {
                assert.equal(outcome.error.name, "CallError", where);
                if (outcome.error.delivery === "notSent") assert.ok(count === 0 || mayRepeat, where);
                else assert.ok(count > 0, where);
            }
        }
        place.client.close();
        assert.equal(place.clock.pendingTimers, 0, `seed ${seed}`);
    }
    assert.ok(answered > 100, `${answered} answers`);
});
