// SPDX-License-Identifier: Apache-2.0
// The chat of Protos/examples/chat.proto: its messages, and its calls and pushes. Examples/Chat is the server.

import { CallError } from "./errors.js";
import { MessageError, encodeStrings, fields, text } from "./protobuf.js";

/** The types of the calls and of the push. */
export const ChatType = Object.freeze({ send: 101, recall: 102, note: 2001 });

/** The value of a field, whose kind must be that of the .proto. */
function checked(value, kind) {
    const isVarint = typeof value === "bigint";
    if (isVarint !== (kind === "varint")) throw new MessageError("a field is of another kind than the .proto says");
    return value;
}

/**
 * @typedef {{author: string, text: string}} Message - A message of a person in the room.
 * @typedef {{number: bigint, at: Date | undefined}} Receipt - The server's answer to a message.
 * @typedef {{number: bigint, message: Message}} Note - A message with its number, as all clients receive it.
 */

/**
 * @param {Message} message
 * @returns {Uint8Array}
 */
export function encodeMessage(message) {
    return encodeStrings([[1, message.author], [2, message.text]]);
}

/** Decodes a message into `message`: of a repeated field the last value counts. */
function decodeMessage(bytes, message) {
    for (const { number, value } of fields(bytes)) {
        if (number === 1) message.author = text(checked(value, "bytes"));
        if (number === 2) message.text = text(checked(value, "bytes"));
    }
    return message;
}

/**
 * @param {Uint8Array} bytes
 * @returns {Note}
 * @throws {MessageError}
 */
export function decodeNote(bytes) {
    const note = { number: 0n, message: { author: "", text: "" } };
    for (const { number, value } of fields(bytes)) {
        if (number === 1) note.number = checked(value, "varint");
        if (number === 2) decodeMessage(checked(value, "bytes"), note.message);
    }
    return note;
}

/**
 * @param {Uint8Array} bytes - Of a `chat.History`.
 * @returns {Note[]}
 * @throws {MessageError}
 */
export function decodeHistory(bytes) {
    const notes = [];
    for (const { number, value } of fields(bytes)) {
        if (number === 1) notes.push(decodeNote(checked(value, "bytes")));
    }
    return notes;
}

/**
 * @param {Uint8Array} bytes
 * @returns {Receipt}
 * @throws {MessageError}
 */
export function decodeReceipt(bytes) {
    let receiptNumber = 0n;
    let time;
    for (const { number, value } of fields(bytes)) {
        if (number === 1) receiptNumber = checked(value, "varint");
        if (number !== 2) continue;
        time ??= { seconds: 0n, nanoseconds: 0n };
        for (const field of fields(checked(value, "bytes"))) {
            if (field.number === 1) time.seconds = BigInt.asIntN(64, checked(field.value, "varint"));
            if (field.number === 2) time.nanoseconds = BigInt.asIntN(32, checked(field.value, "varint"));
        }
    }
    const at = time && new Date(Number(time.seconds) * 1_000 + Number(time.nanoseconds) / 1_000_000);
    return { number: receiptNumber, at };
}

/** The room, as the page calls it. */
export class Chat {
    #client;

    /** @param {import("./client.js").Client} client */
    constructor(client) {
        this.#client = client;
    }

    /**
     * Sends a message to everyone in the room.
     * @param {Message} message
     * @param {{timeout?: number, signal?: AbortSignal}} [options]
     * @returns {Promise<Receipt>}
     * @throws {CallError}
     */
    async send(message, options) {
        return Chat.#decoded(decodeReceipt, await this.#client.call(ChatType.send, encodeMessage(message), options));
    }

    /**
     * Returns the last messages.
     * @param {{timeout?: number, signal?: AbortSignal}} [options]
     * @returns {Promise<Note[]>}
     * @throws {CallError}
     */
    async recall(options) {
        return Chat.#decoded(decodeHistory, await this.#client.call(ChatType.recall, undefined, options));
    }

    /**
     * Calls `handler` with each message from now on.
     * @param {(note: Note) => void} handler
     * @returns {() => void} Ends the subscription.
     */
    onNote(handler) {
        return this.#client.onPush(ChatType.note, (payload) => handler(decodeNote(payload)));
    }

    static #decoded(decode, payload) {
        try {
            return decode(payload);
        } catch (error) {
            if (!(error instanceof MessageError)) throw error;
            throw new CallError("decodingFailed", error.message, { delivery: "answered", payload, cause: error });
        }
    }
}
