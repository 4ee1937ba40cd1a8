// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat, decodeHistory, decodeNote, decodeReceipt, encodeMessage } from "../chat.js";
import { concatenated, hex, randomNumbers, response, scaled, settled, toHex, utf8, Place } from "./fakes.js";

// Written by hand: a field is its number times 8 plus its kind (0 a varint, 2 bytes), then its value.
const MESSAGE = "0A 05 616C696365 12 02 6869"; // author "alice", text "hi"
const NOTE = `08 AC02 12 0B ${MESSAGE}`; // number 300
const HISTORY = `0A 10 ${NOTE} 0A 02 0801`; // and a note with nothing but its number
const RECEIPT = "08 07 12 0C 08 80A8D6B906 10 80CAB5EE01"; // 7, 1,731,564,544.5 s after 1970

test("messages are encoded as in protobuf", () => {
    assert.equal(toHex(encodeMessage({ author: "alice", text: "hi" })), toHex(hex(MESSAGE)));
    assert.equal(toHex(encodeMessage({ author: "", text: "ö" })), "1202C3B6");
    assert.equal(encodeMessage({ author: "", text: "" }).length, 0);
    const long = encodeMessage({ author: "a", text: "x".repeat(300) });
    assert.equal(toHex(long.subarray(0, 6)), "0A016112AC02");
    assert.equal(long.length, 306);
});

test("notes, histories and receipts are decoded", () => {
    const note = { number: 300n, message: { author: "alice", text: "hi" } };
    assert.deepEqual(decodeNote(hex(NOTE)), note);
    assert.deepEqual(decodeHistory(hex(HISTORY)), [note, { number: 1n, message: { author: "", text: "" } }]);
    assert.deepEqual(decodeReceipt(hex(RECEIPT)), { number: 7n, at: new Date(1_731_564_544_500) });
    assert.deepEqual(decodeReceipt(new Uint8Array(0)), { number: 0n, at: undefined });
    assert.deepEqual(decodeReceipt(hex("12 00")), { number: 0n, at: new Date(0) });
    // Before 1970, and the largest number.
    assert.deepEqual(decodeReceipt(hex("08 FFFFFFFFFFFFFFFFFF01 12 0B 08 FFFFFFFFFFFFFFFFFF01")), {
        number: 2n ** 64n - 1n, at: new Date(-1_000),
    });
});

test("fields in any order, unknown ones and repeated ones are decoded as in protobuf", () => {
    const unknown = "20 01 29 0102030405060708 35 01020304 3A 01 00";
    const message = concatenated([hex("12 01 78"), hex(unknown), hex(MESSAGE)]);
    const note = concatenated([hex("12"), Uint8Array.of(message.length), message, hex("08 05 12 03 12 01 79")]);
    assert.deepEqual(decodeNote(note), { number: 5n, message: { author: "alice", text: "y" } });
    // A byte order mark is text.
    assert.equal(decodeNote(hex("12 05 12 03 EFBBBF")).message.text, "\ufeff");
});

test("bytes that are no message are a MessageError", () => {
    const wrong = [
        "08", "08 80", "08 FFFFFFFFFFFFFFFFFFFF01", "12 05 0A", "12 FFFFFFFFFFFFFFFFFF01 00", "00 01", "0B 0C", "0E 00",
        "0D 010203", "09 01", "12 04 0A 02 FFFE", "0A 00", "10 01", "12 02 08 01",
    ];
    for (const bytes of wrong) assert.throws(() => decodeNote(hex(bytes)), { name: "MessageError" }, bytes);
    const note = hex(NOTE);
    for (let length = 1; length < note.length; length += 1) {
        // Bytes that end between two fields are a message too.
        if (length === 3) continue;
        assert.throws(() => decodeNote(note.subarray(0, length)), { name: "MessageError" }, `${length} bytes`);
    }
});

test("random bytes are decoded or are a MessageError", () => {
    for (let seed = 1; seed <= scaled(3_000); seed += 1) {
        const random = randomNumbers(seed);
        const length = 1 + random() * 30;
        const bytes = Uint8Array.from({ length }, () => random() * (random() < 0.5 ? 24 : 256));
        for (const decode of [decodeNote, decodeHistory, decodeReceipt]) {
            try {
                decode(bytes);
            } catch (error) {
                assert.equal(error.name, "MessageError", `seed ${seed}: ${error.stack}`);
            }
        }
    }
});

test("the room is called by its types, and its notes are received", async () => {
    const place = new Place();
    const socket = place.ready();
    const chat = new Chat(place.client);
    const heard = [];
    const end = chat.onNote(({ number }) => heard.push(number));

    const sent = chat.send({ author: "alice", text: "hi" });
    const [request] = socket.takeCalls();
    assert.equal(request.type, 101);
    assert.equal(toHex(request.payload), toHex(hex(MESSAGE)));
    socket.receive(response(2001, 1, 200, hex(NOTE)));
    socket.answer(request, hex(RECEIPT));
    assert.equal((await sent).number, 7n);

    const recalled = chat.recall();
    const [recall] = socket.takeCalls();
    assert.equal(recall.type, 102);
    assert.equal(recall.payload.length, 0);
    socket.answer(recall, hex(HISTORY));
    assert.equal((await recalled).length, 2);

    end();
    socket.receive(response(2001, 1, 200, hex(NOTE)));
    assert.deepEqual(heard, [300n]);
    place.client.close();
});

test("an answer that is no message fails only its call", async () => {
    const place = new Place();
    const socket = place.ready();
    const chat = new Chat(place.client);
    const sent = chat.send({ author: "alice", text: "hi" });
    socket.answer(socket.takeCalls()[0], utf8("no message"));
    await assert.rejects(sent, { name: "CallError", code: "decodingFailed", delivery: "answered" });
    await settled();
    assert.equal(place.client.state.name, "ready");
    place.client.close();
});
