// SPDX-License-Identifier: Apache-2.0
// The part of protobuf's encoding that the messages here require: varints, strings and messages are read and written,
// other fields are skipped.

const encoder = new TextEncoder();
// A byte order mark is a character of the text.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The error of bytes that are not a message. */
export class MessageError extends Error {
    constructor(message, options) {
        super(message, options);
        this.name = "MessageError";
    }
}

function varint(value) {
    const bytes = [];
    let rest = value;
    for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
    bytes.push(rest);
    return bytes;
}

/**
 * Encodes a message whose fields all are strings; empty ones are omitted, as in proto3.
 * @param {[number, string][]} fields - Number and value of each.
 * @returns {Uint8Array}
 */
export function encodeStrings(fields) {
    const bytes = [];
    for (const [number, text] of fields) {
        const value = encoder.encode(text);
        if (value.length === 0) continue;
        bytes.push(...varint(number * 8 + 2), ...varint(value.length));
        for (const byte of value) bytes.push(byte);
    }
    return Uint8Array.from(bytes);
}

/** The bytes of a field as text. */
export function text(bytes) {
    try {
        return decoder.decode(bytes);
    } catch (error) {
        throw new MessageError("a string that is not UTF-8", { cause: error });
    }
}

/**
 * The fields of a message, in their order. The value of a varint is a bigint, that of a string, of bytes or of a
 * message a Uint8Array. Fields of other kinds are omitted. Groups, which proto3 does not have, are an error.
 * @param {Uint8Array} bytes
 * @returns {Generator<{number: number, value: bigint | Uint8Array}>}
 * @throws {MessageError}
 */
export function* fields(bytes) {
    let index = 0;

    function take(count) {
        if (count > bytes.length - index) throw new MessageError("the message ends within a field");
        index += count;
        return bytes.subarray(index - count, index);
    }

    function takeVarint() {
        let value = 0n;
        for (let shift = 0n; shift < 70n; shift += 7n) {
            if (index === bytes.length) throw new MessageError("the message ends within a field");
            const byte = bytes[index];
            index += 1;
            value |= BigInt(byte & 127) << shift;
            if (byte < 128) return BigInt.asUintN(64, value);
        }
        throw new MessageError("a varint of more than ten bytes");
    }

    while (index < bytes.length) {
        const tag = takeVarint();
        if (tag < 8n || tag > 0xffffffffn) throw new MessageError("a field's number is out of range");
        const number = Number(tag >> 3n);
        switch (Number(tag & 7n)) {
            case 0:
                yield { number, value: takeVarint() };
                break;
            case 1:
                take(8);
                break;
            case 2: {
                const length = takeVarint();
                yield { number, value: take(length > 0xffffffffn ? Infinity : Number(length)) };
                break;
            }
            case 5:
                take(4);
                break;
            default:
                throw new MessageError("a field's kind is not known");
        }
    }
}
