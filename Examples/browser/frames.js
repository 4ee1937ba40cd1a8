// SPDX-License-Identifier: Apache-2.0
// The frames of HHSocket's standard format, as a client sends and receives them: no I/O and no clock.
// Docs/Protocol.md describes the format. All integers are unsigned, 32 bits, big-endian.

/** Types of control frames. Applications have those from 16 to `LARGEST_TYPE`. */
export const FrameType = Object.freeze({ heartbeat: 0, cancel: 2, goAway: 4 });
export const FIRST_APPLICATION_TYPE = 16;
/** Bits above it are flags, which need the agreement of a hello. */
export const LARGEST_TYPE = 0x1fffffff;
/** The serial of every push. */
export const PUSH_SERIAL = 1;
/** The serial of the client's ping. */
export const PING_SERIAL = 0;
/** Serials below it are reserved. */
export const FIRST_SERIAL = 50;
export const LAST_SERIAL = 0xffffffff;
/** The largest payload in bytes unless both sides are configured otherwise. */
export const MAXIMUM_PAYLOAD = 16 * 1024 * 1024;

const REQUEST_HEADER = 12;
const RESPONSE_HEADER = 16;
const CHECKSUM = 4;
/** The capacity in bytes that a decoder keeps while it is idle. */
const IDLE_CAPACITY = 64 * 1024;
const NO_BYTES = new Uint8Array(0);

/** An error of the byte stream, after which no frame can be found: the connection must be closed. */
export class FrameError extends Error {
    /**
     * @param {"frameTooLarge" | "protocolViolation"} code
     * @param {string} message
     */
    constructor(code, message) {
        super(message);
        this.name = "FrameError";
        this.code = code;
    }
}

/**
 * The adler32 of `bytes` as in RFC 1950; 1 without bytes.
 * @param {Uint8Array} bytes
 * @returns {number}
 */
export function adler32(bytes) {
    let low = 1;
    let high = 0;
    // Both sums stay below 2^31 for 3,800 bytes, so the remainders are computed once per 3,800 bytes.
    for (let index = 0; index < bytes.length; ) {
        const end = Math.min(index + 3_800, bytes.length);
        for (; index < end; index += 1) {
            low += bytes[index];
            high += low;
        }
        low %= 65_521;
        high %= 65_521;
    }
    return high * 65_536 + low;
}

/**
 * Encodes a request frame.
 * @param {number} type
 * @param {number} serial
 * @param {Uint8Array} [payload]
 * @returns {Uint8Array}
 */
export function encodeRequest(type, serial, payload = NO_BYTES) {
    const frame = new Uint8Array(REQUEST_HEADER + payload.length + CHECKSUM);
    const view = new DataView(frame.buffer);
    view.setUint32(0, type);
    view.setUint32(4, serial);
    view.setUint32(8, payload.length);
    frame.set(payload, REQUEST_HEADER);
    view.setUint32(REQUEST_HEADER + payload.length, adler32(payload));
    return frame;
}

/**
 * Gives a request frame another serial, which the checksum does not cover.
 * @param {Uint8Array} frame
 * @param {number} serial
 */
export function setSerial(frame, serial) {
    new DataView(frame.buffer, frame.byteOffset).setUint32(4, serial);
}

/**
 * A response frame: an answer, a push or a control frame.
 * @typedef {object} ResponseFrame
 * @property {number} type
 * @property {number} serial
 * @property {number} status
 * @property {Uint8Array} payload
 * @property {boolean} isIntact - Whether the checksum is that of the payload.
 */

/** Decodes response frames from a stream of bytes, however it is split. */
export class FrameDecoder {
    #bytes = NO_BYTES;
    /** The range of the bytes that were not taken. */
    #start = 0;
    #end = 0;
    /** The number of consecutive frames with a wrong checksum. */
    #damaged = 0;
    #maximumPayload;
    #maximumDamaged;
    /** @type {FrameError | undefined} */
    #error;

    /**
     * @param {object} [options]
     * @param {number} [options.maximumPayload] - In bytes; 16 MiB by default.
     * @param {number} [options.maximumDamaged] - The number of wrong checksums in a row that is an error; 3 by default.
     */
    constructor({ maximumPayload = MAXIMUM_PAYLOAD, maximumDamaged = 3 } = {}) {
        this.#maximumPayload = maximumPayload;
        this.#maximumDamaged = maximumDamaged;
    }

    /** The number of bytes that belong to no complete frame yet. */
    get pendingBytes() {
        return this.#end - this.#start;
    }

    /**
     * Appends bytes of the stream. Memory is allocated for received bytes, not for an announced length.
     * @param {Uint8Array} chunk
     */
    append(chunk) {
        const pending = this.pendingBytes;
        const needed = pending + chunk.length;
        if (needed > this.#bytes.length) {
            const grown = new Uint8Array(Math.max(needed, Math.min(2 * this.#bytes.length, needed + MAXIMUM_PAYLOAD)));
            grown.set(this.#bytes.subarray(this.#start, this.#end));
            this.#bytes = grown;
            this.#start = 0;
            this.#end = pending;
        } else if (this.#end + chunk.length > this.#bytes.length) {
            this.#bytes.copyWithin(0, this.#start, this.#end);
            this.#start = 0;
            this.#end = pending;
        }
        this.#bytes.set(chunk, this.#end);
        this.#end += chunk.length;
    }

    /**
     * Takes the next frame; undefined if more bytes are needed.
     * @returns {ResponseFrame | undefined}
     * @throws {FrameError} Also at each later call.
     */
    next() {
        if (this.#error !== undefined) throw this.#error;
        if (this.pendingBytes < RESPONSE_HEADER) return undefined;
        const view = new DataView(this.#bytes.buffer, this.#start, this.pendingBytes);
        const type = view.getUint32(0);
        const length = view.getUint32(12);
        if (this.#damaged > 0 && type > LARGEST_TYPE) {
            this.#fail("protocolViolation", `the length was wrong with the checksum: a frame of type ${type} follows`);
        }
        if (length > this.#maximumPayload) {
            this.#fail("frameTooLarge", `a frame of ${length} bytes, over the limit of ${this.#maximumPayload}`);
        }
        const size = RESPONSE_HEADER + length + CHECKSUM;
        if (this.pendingBytes < size) return undefined;

        const begin = this.#start + RESPONSE_HEADER;
        const payload = this.#bytes.slice(begin, begin + length);
        const isIntact = view.getUint32(RESPONSE_HEADER + length) === adler32(payload);
        this.#damaged = isIntact ? 0 : this.#damaged + 1;
        if (this.#damaged >= this.#maximumDamaged) {
            this.#fail("protocolViolation", `${this.#damaged} wrong checksums in a row`);
        }
        this.#skip(size);
        return { type, serial: view.getUint32(4), status: view.getUint32(8), payload, isIntact };
    }

    #skip(count) {
        this.#start += count;
        if (this.#start < this.#end) return;
        this.#start = 0;
        this.#end = 0;
        // A large frame's memory is not kept for the small ones that follow.
        if (this.#bytes.length > IDLE_CAPACITY) this.#bytes = NO_BYTES;
    }

    #fail(code, message) {
        this.#error = new FrameError(code, message);
        this.#bytes = NO_BYTES;
        this.#start = 0;
        this.#end = 0;
        throw this.#error;
    }
}

/**
 * The serials of one connection: 50 to 0xFFFFFFFF, then from 50 again.
 *
 * A serial of an abandoned call may still be answered. It is not reused until it was answered, or until 1,024 later
 * calls have been abandoned too.
 */
export class Serials {
    #last;
    /** @type {Set<number>} Oldest first. */
    #abandoned = new Set();
    #maximumAbandoned;

    /**
     * @param {object} [options]
     * @param {number} [options.last] - The serial before the first.
     * @param {number} [options.maximumAbandoned]
     */
    constructor({ last = FIRST_SERIAL - 1, maximumAbandoned = 1_024 } = {}) {
        this.#last = last;
        this.#maximumAbandoned = maximumAbandoned;
    }

    /**
     * Returns the next serial that is neither in flight nor abandoned.
     * @param {(serial: number) => boolean} isInFlight - True for a number of serials that is bounded by the caller.
     * @returns {number}
     */
    next(isInFlight) {
        do {
            this.#last = this.#last >= LAST_SERIAL ? FIRST_SERIAL : this.#last + 1;
        } while (this.#abandoned.has(this.#last) || isInFlight(this.#last));
        return this.#last;
    }

    /** Keeps `serial` from being reused while an answer to its call may arrive. */
    abandon(serial) {
        this.#abandoned.add(serial);
        if (this.#abandoned.size <= this.#maximumAbandoned) return;
        const [oldest] = this.#abandoned;
        this.#abandoned.delete(oldest);
    }

    /** Frees `serial`, whose answer has arrived. */
    release(serial) {
        this.#abandoned.delete(serial);
    }
}
