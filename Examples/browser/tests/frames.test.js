// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { adler32 as zlibSum } from "./adler32.js";
import { FrameDecoder, FrameError, MAXIMUM_PAYLOAD, Serials, adler32, encodeRequest, setSerial } from "../frames.js";
import { concatenated, hex, randomNumbers, response, scaled, toHex, utf8 } from "./fakes.js";

/** The frames of Docs/Protocol.md, written by hand. */
const GOLDEN = [
    ["000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215", 1000, 50, 200, "hello"],
    ["000003E7 00000034 00000191 00000000 00000001", 999, 52, 401, ""],
    ["000007D1 00000001 000000C8 00000002 6869 013B00D2", 2001, 1, 200, "hi"],
    ["00000000 00000000 000000C8 00000000 00000001", 0, 0, 200, ""],
    ["00000000 00000005 00000000 00000000 00000001", 0, 5, 0, ""],
    ["000003E8 00000035 0000012E 00000000 00000001", 1000, 53, 302, ""],
].map(([digits, type, serial, status, text]) => ({ bytes: hex(digits), type, serial, status, text }));
const STREAM = concatenated(GOLDEN.map(({ bytes }) => bytes));

/** Decodes a stream that arrives in pieces. */
function decoded(pieces, options) {
    const decoder = new FrameDecoder(options);
    const frames = [];
    for (const piece of pieces) {
        decoder.append(piece);
        for (let frame = decoder.next(); frame !== undefined; frame = decoder.next()) frames.push(frame);
    }
    return { frames, pendingBytes: decoder.pendingBytes };
}

function expectGolden({ frames, pendingBytes }, where) {
    const expected = GOLDEN.map(({ type, serial, status, text }) => {
        return { type, serial, status, payload: utf8(text), isIntact: true };
    });
    assert.deepEqual(frames, expected, where);
    assert.equal(pendingBytes, 0);
}

test("checksums are those of RFC 1950", () => {
    assert.equal(adler32(new Uint8Array(0)), 1);
    assert.equal(adler32(utf8("Wikipedia")), 0x11e60398);
    assert.equal(adler32(utf8("hello")), 0x062c0215);
    // The largest possible sums, over more bytes than are added between two remainders.
    for (const length of [3_799, 3_800, 3_801, 5_552, 100_000]) {
        for (const bytes of [new Uint8Array(length).fill(255), Uint8Array.from({ length }, (_, index) => index * 7)]) {
            assert.equal(adler32(bytes), zlibSum(bytes), `${length} bytes`);
        }
    }
});

test("requests are encoded as in Docs/Protocol.md", () => {
    for (const [digits, type, serial, text] of [
        ["000003E8 00000032 00000005 68656C6C6F 062C0215", 1000, 50, "hello"],
        ["00000010 FFFFFFFF 00000000 00000001", 16, 0xffffffff, ""],
        ["00000002 00000032 00000000 00000001", 2, 50, ""],
        ["00000000 00000005 00000000 00000001", 0, 5, ""],
    ]) {
        assert.equal(toHex(encodeRequest(type, serial, utf8(text))), toHex(hex(digits)));
    }
    assert.equal(encodeRequest(0, 5).length, 16);
    const frame = encodeRequest(1000, 0, utf8("hello"));
    setSerial(frame, 50);
    assert.equal(toHex(frame), toHex(encodeRequest(1000, 50, utf8("hello"))));
});

test("frames are the same wherever the stream is split in two", () => {
    for (let at = 0; at <= STREAM.length; at += 1) {
        expectGolden(decoded([STREAM.subarray(0, at), STREAM.subarray(at)]), `at ${at}`);
    }
});

test("frames are the same wherever the stream is split in three", () => {
    for (let first = 0; first <= STREAM.length; first += 1) {
        for (let second = first; second <= STREAM.length; second += 1) {
            const pieces = [STREAM.subarray(0, first), STREAM.subarray(first, second), STREAM.subarray(second)];
            expectGolden(decoded(pieces), `at ${first} and ${second}`);
        }
    }
});

test("frames are the same in pieces of every size", () => {
    for (let size = 1; size <= STREAM.length; size += 1) {
        const pieces = [];
        for (let at = 0; at < STREAM.length; at += size) pieces.push(STREAM.subarray(at, at + size));
        expectGolden(decoded(pieces), `pieces of ${size}`);
    }
});

test("large and small frames in random pieces are decoded", () => {
    for (let seed = 1; seed <= scaled(30); seed += 1) {
        const random = randomNumbers(seed);
        const below = (count) => Math.floor(random() * count);
        const sent = Array.from({ length: 20 }, (_, index) => {
            const payload = new Uint8Array(random() < 0.2 ? below(300_000) : below(100)).fill(index + 1);
            return { type: 16 + below(1_000), serial: 50 + index, status: 200, payload, isIntact: true };
        });
        const stream = concatenated(
            sent.map(({ type, serial, status, payload }) => response(type, serial, status, payload)),
        );
        const pieces = [];
        for (let at = 0; at < stream.length; ) {
            const size = random() < 0.5 ? below(20) : below(100_000);
            pieces.push(stream.subarray(at, at + size));
            at += size;
        }
        assert.deepEqual(decoded(pieces).frames, sent, `seed ${seed}`);
    }
});

test("payloads do not change when the buffer is reused", () => {
    const decoder = new FrameDecoder();
    decoder.append(GOLDEN[0].bytes);
    const { payload } = decoder.next();
    decoder.append(new Uint8Array(20).fill(0));
    assert.deepEqual(payload, utf8("hello"));
});

test("appended bytes stay the caller's", () => {
    const stream = concatenated([STREAM, STREAM]);
    decoded([stream.subarray(0, 30), stream.subarray(30, 31), stream.subarray(31)]);
    assert.deepEqual(stream, concatenated([STREAM, STREAM]));
});

test("a wrong checksum damages only its frame", () => {
    const damaged = response(1000, 50, 200, utf8("hello"), 0x062c0216);
    const { frames } = decoded([damaged, GOLDEN[1].bytes]);
    assert.deepEqual(frames.map(({ serial, isIntact }) => [serial, isIntact]), [[50, false], [52, true]]);
});

test("three wrong checksums in a row end the stream, two do not", () => {
    const wrong = response(1000, 50, 200, utf8("x"), 7);
    const right = response(1000, 51, 200, utf8("x"));
    assert.equal(decoded([wrong, wrong, right, wrong, wrong, right]).frames.length, 6);
    const decoder = new FrameDecoder();
    decoder.append(concatenated([wrong, wrong, wrong, right]));
    assert.equal(decoder.next().isIntact, false);
    assert.equal(decoder.next().isIntact, false);
    assert.throws(() => decoder.next(), { name: "FrameError", code: "protocolViolation" });
    // Nothing is decoded after the error.
    decoder.append(right);
    assert.throws(() => decoder.next(), { name: "FrameError", code: "protocolViolation" });
});

test("a type with flags after a wrong checksum shows that the length was wrong", () => {
    const wrong = response(1000, 50, 200, utf8("x"), 7);
    const flagged = response(0x400003e8, 51, 200, utf8("x"));
    assert.deepEqual(decoded([flagged]).frames.map(({ type }) => type), [0x400003e8]);
    assert.throws(() => decoded([wrong, flagged]), { code: "protocolViolation" });
    // The header of the wrong frame is enough.
    assert.throws(() => decoded([wrong, flagged.subarray(0, 16)]), { code: "protocolViolation" });
});

test("a length up to the limit passes, and one above it is an error at its header", () => {
    const limit = { maximumPayload: 10 };
    assert.equal(decoded([response(16, 50, 200, new Uint8Array(10))], limit).frames.length, 1);
    const header = response(16, 50, 200, new Uint8Array(11)).subarray(0, 16);
    assert.equal(decoded([header.subarray(0, 15)], limit).frames.length, 0);
    assert.throws(() => decoded([header], limit), { name: "FrameError", code: "frameTooLarge" });
    const longest = hex("000003E8 00000032 000000C8 FFFFFFFF");
    assert.throws(() => decoded([longest]), { code: "frameTooLarge" });
});

test("16 MiB pass by default, and memory is not allocated for announced bytes", () => {
    const payload = new Uint8Array(MAXIMUM_PAYLOAD).fill(1);
    const frame = response(16, 50, 200, payload);
    const before = process.memoryUsage().arrayBuffers;
    const decoders = Array.from({ length: 32 }, () => {
        const decoder = new FrameDecoder();
        decoder.append(frame.subarray(0, 16));
        assert.equal(decoder.next(), undefined);
        return decoder;
    });
    assert.ok(process.memoryUsage().arrayBuffers - before < MAXIMUM_PAYLOAD);
    assert.equal(decoders.length, 32);
    const pieces = Array.from({ length: 257 }, (_, index) => frame.subarray(index * 65_535, (index + 1) * 65_535));
    const { frames } = decoded(pieces);
    assert.equal(frames.length, 1);
    assert.deepEqual(frames[0].payload, payload);
});

test("garbage is decoded into frames or ends with an error, never with anything else", () => {
    let errors = 0;
    for (let seed = 1; seed <= scaled(2_000); seed += 1) {
        const random = randomNumbers(seed);
        // Many small numbers, so that some bytes look like frames.
        const bytes = Uint8Array.from({ length: 200 }, () => (random() < 0.8 ? 0 : random() * 256));
        try {
            for (const { payload } of decoded([bytes.subarray(0, 90), bytes.subarray(90)]).frames) {
                assert.ok(payload.length <= bytes.length);
            }
        } catch (error) {
            assert.ok(error instanceof FrameError, `seed ${seed}: ${error}`);
            errors += 1;
        }
    }
    assert.ok(errors > 0);
});

test("serials count from 50, and after the largest from 50 again", () => {
    const fresh = new Serials();
    assert.deepEqual([1, 2, 3].map(() => fresh.next(() => false)), [50, 51, 52]);
    const old = new Serials({ last: 0xfffffffd });
    assert.deepEqual([1, 2, 3, 4].map(() => old.next(() => false)), [0xfffffffe, 0xffffffff, 50, 51]);
});

test("serials in flight or abandoned are skipped", () => {
    const serials = new Serials({ last: 0xfffffffe });
    serials.abandon(50);
    assert.equal(serials.next((serial) => serial === 0xffffffff || serial === 51), 52);
    const again = new Serials();
    again.abandon(50);
    again.abandon(51);
    again.release(50);
    assert.equal(again.next(() => false), 50);
    assert.equal(again.next(() => false), 52);
});

test("the oldest abandoned serials become free if there are too many", () => {
    const serials = new Serials({ maximumAbandoned: 2 });
    for (const serial of [50, 51, 52]) serials.abandon(serial);
    assert.equal(serials.next(() => false), 50);
    assert.equal(serials.next(() => false), 53);
});
