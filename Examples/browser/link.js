// SPDX-License-Identifier: Apache-2.0
// One WebSocket that carries frames: the calls in flight on it, their serials, and heartbeats. It ends once, and is not
// opened again; client.js decides on the next one.

import { CallError, DRAINING, OK, PARTIAL } from "./errors.js";
import {
    FIRST_APPLICATION_TYPE, FIRST_SERIAL, FrameDecoder, FrameError, FrameType, LARGEST_TYPE, PING_SERIAL, PUSH_SERIAL,
    Serials, encodeRequest, setSerial,
} from "./frames.js";
import { fields, text } from "./protobuf.js";

export const SUBPROTOCOL = "hhsocket.1";

/** The longest message in bytes: proxies pass it on without collecting it first. */
const LONGEST_MESSAGE = 65_535;
/** The number of bytes queued in the browser above which calls wait in the client. */
const CONGESTED = 1024 * 1024;
/** The longest payload of a go-away that is decoded. */
const LONGEST_GO_AWAY = 64 * 1024;

/**
 * The codes of our close frames. RFC 6455 has 1002, 1003 and 1009 for the last three, but browsers do not let a page
 * send these.
 */
export const CloseCode = Object.freeze({ normal: 1000, protocolViolation: 4002, unexpectedText: 4003, tooLarge: 4009 });

/** Decodes a go-away tolerantly: it counts even if its details cannot be read. */
function decodeGoAway(payload) {
    const news = { reason: "", retryAfter: 0 };
    if (payload.length > LONGEST_GO_AWAY) return news;
    try {
        for (const { number, value } of fields(payload)) {
            if (number === 1 && value instanceof Uint8Array) news.reason = text(value);
            if (number === 2 && typeof value === "bigint") news.retryAfter = Number(BigInt.asUintN(32, value));
        }
    } catch {
        return { reason: "", retryAfter: 0 };
    }
    return news;
}

/**
 * The events of a link.
 * @typedef {object} LinkOwner
 * @property {(link: Link) => void} opened
 * @property {(link: Link) => void} hasRoom - A call may be sent that had to wait.
 * @property {(link: Link, type: number, payload: Uint8Array) => void} push
 * @property {(link: Link, news: {reason: string, retryAfter: number}) => void} goAway - The server shuts down.
 * @property {(call: object) => void} refused - The server is shutting down, and has not begun this call.
 * @property {(link: Link, error: CallError, closeCode?: number) => void} ended - Calls in flight have failed.
 */

export class Link {
    #socket;
    #settings;
    #clock;
    /** @type {LinkOwner} */
    #owner;
    #decoder;
    #serials = new Serials();
    /** The calls in flight, by serial. */
    #calls = new Map();
    #isOpen = false;
    #isEnded = false;
    #isLeaving = false;
    #timer;
    #lastReceived = 0;
    #lastSent = 0;
    /** The unanswered ping, with the bytes queued in the browser and the pings missed before it. */
    #ping;

    /**
     * @param {WebSocket} socket - A new socket.
     * @param {object} settings - Those of the client.
     * @param {LinkOwner} owner
     */
    constructor(socket, settings, owner) {
        this.#socket = socket;
        this.#settings = settings;
        this.#clock = settings.clock;
        this.#owner = owner;
        this.#decoder = new FrameDecoder({ maximumPayload: settings.maximumPayload });
        socket.binaryType = "arraybuffer";
        socket.onopen = () => this.#opened();
        socket.onmessage = ({ data }) => this.#received(data);
        socket.onclose = ({ code, reason }) => this.#closed(code, reason);
        // Browsers report a failed opening twice, some versions of node only by the error.
        socket.onerror = () => {
            if (!this.#isOpen) this.#closed(undefined, "");
        };
        this.#timer = this.#clock.setTimeout(() => {
            const seconds = settings.openTimeout / 1_000;
            this.end(new CallError("connectTimeout", `the WebSocket was not open after ${seconds} s`));
        }, settings.openTimeout);
    }

    // Calls

    /** Whether a call may be sent now. */
    get hasRoom() {
        return this.#isOpen && !this.#isEnded && !this.#isLeaving && !this.isCongested
            && this.#calls.size < this.#settings.maximumInFlight;
    }

    /** Whether the browser has too many bytes queued. There is no event for a change of this. */
    get isCongested() {
        return this.#socket.bufferedAmount > CONGESTED;
    }

    /** Whether calls are in flight. */
    get isBusy() {
        return this.#calls.size > 0;
    }

    /**
     * Sends a call, which must have room. It is in flight until its answer arrives, it is abandoned, or the link ends.
     */
    send(call) {
        call.serial = this.#serials.next((serial) => this.#calls.has(serial));
        call.link = this;
        this.#calls.set(call.serial, call);
        setSerial(call.frame, call.serial);
        this.#write(call.frame);
    }

    /** Removes a call from those in flight, and notifies the server to stop working on it. */
    abandon(call) {
        this.#take(call);
        this.#cancel(call.serial);
        this.#owner.hasRoom(this);
    }

    #take(call) {
        this.#calls.delete(call.serial);
        call.link = undefined;
    }

    #cancel(serial) {
        this.#serials.abandon(serial);
        this.#write(encodeRequest(FrameType.cancel, serial));
    }

    // Receiving

    #opened() {
        if (this.#socket.protocol !== SUBPROTOCOL) {
            this.end(new CallError("handshakeRefused", `the server does not speak ${SUBPROTOCOL}`));
            return;
        }
        this.#isOpen = true;
        this.#clock.clearTimeout(this.#timer);
        this.#lastReceived = this.#clock.now();
        this.#lastSent = this.#lastReceived;
        this.#beatLater(this.#settings.heartbeatInterval);
        this.#owner.opened(this);
    }

    #received(data) {
        this.#lastReceived = this.#clock.now();
        // Any byte proves that the server is alive, not only the answer to the ping.
        this.#ping = undefined;
        if (typeof data === "string") {
            this.#violated("a text message, where frames are binary", CloseCode.unexpectedText);
            return;
        }
        try {
            // Message boundaries have no meaning.
            this.#decoder.append(new Uint8Array(data));
            for (;;) {
                const frame = this.#decoder.next();
                if (frame === undefined) return;
                this.#receivedFrame(frame);
                if (this.#isEnded) return;
            }
        } catch (error) {
            if (!(error instanceof FrameError)) throw error;
            const isTooLarge = error.code === "frameTooLarge";
            this.#violated(error.message, isTooLarge ? CloseCode.tooLarge : CloseCode.protocolViolation);
        }
    }

    #violated(message, closeCode) {
        const code = closeCode === CloseCode.tooLarge ? "frameTooLarge" : "protocolViolation";
        this.end(new CallError(code, message), closeCode);
    }

    #receivedFrame(frame) {
        const { type, serial, status, payload, isIntact } = frame;
        if (type < FIRST_APPLICATION_TYPE) {
            this.#receivedControl(frame);
        } else if (serial === PUSH_SERIAL) {
            if (isIntact && type <= LARGEST_TYPE && status === OK) this.#owner.push(this, type, payload);
        } else {
            this.#receivedAnswer(frame);
        }
    }

    #receivedControl({ type, serial, status, payload, isIntact }) {
        if (!isIntact) return;
        if (type === FrameType.heartbeat) {
            // Any other status than 0 is an answer. A server that pings without reading would make answers pile up
            // here.
            if (status === 0 && serial < FIRST_SERIAL && !this.isCongested) {
                this.#write(encodeRequest(FrameType.heartbeat, serial));
            }
        } else if (type === FrameType.goAway && !this.#isLeaving) {
            this.#isLeaving = true;
            this.#owner.goAway(this, decodeGoAway(payload));
        }
    }

    #receivedAnswer({ type, serial, status, payload, isIntact }) {
        const call = this.#calls.get(serial);
        if (call === undefined) {
            // The answer is late, or unknown. After a partial one more follow.
            if (status !== PARTIAL) this.#serials.release(serial);
            return;
        }
        this.#take(call);
        if (!isIntact) {
            const message = "the answer's checksum is wrong";
            call.fail(new CallError("checksumMismatch", message, { delivery: "sentUnknown" }));
        } else if (type > LARGEST_TYPE) {
            const message = `the answer's type ${type} has flags that were not agreed on`;
            call.fail(new CallError("protocolViolation", message, { delivery: "sentUnknown" }));
        } else if (status === OK) {
            call.succeed(payload);
        } else if (status === DRAINING && this.#isLeaving) {
            this.#owner.refused(call);
        } else {
            if (status === PARTIAL) this.#cancel(serial);
            call.fail(CallError.answered(status, payload));
        }
        this.#owner.hasRoom(this);
    }

    // Sending and heartbeats

    #write(bytes) {
        // Calls may be abandoned on links that have just ended.
        if (this.#isEnded) return;
        for (let start = 0; start < bytes.length; start += LONGEST_MESSAGE) {
            this.#socket.send(bytes.subarray(start, start + LONGEST_MESSAGE));
        }
        this.#lastSent = this.#clock.now();
    }

    /** Sends a ping immediately, for example after a change of the network. */
    probe() {
        if (!this.#isOpen || this.#isEnded || this.#ping !== undefined) return;
        this.#clock.clearTimeout(this.#timer);
        this.#sendPing(0);
    }

    #sendPing(missed) {
        this.#write(encodeRequest(FrameType.heartbeat, PING_SERIAL));
        this.#ping = { missed, buffered: this.#socket.bufferedAmount };
        this.#beatLater(this.#settings.heartbeatTimeout);
    }

    #beatLater(delay) {
        this.#timer = this.#clock.setTimeout(() => this.#beat(), delay);
    }

    #beat() {
        const ping = this.#ping;
        if (ping === undefined) {
            // One timer, which is not restarted for each message.
            const idleSince = Math.min(this.#lastSent, this.#lastReceived);
            const left = idleSince + this.#settings.heartbeatInterval - this.#clock.now();
            if (left > 0) this.#beatLater(left);
            else this.#sendPing(0);
        } else if (this.#socket.bufferedAmount < ping.buffered) {
            // The ping is queued after the data being sent.
            ping.buffered = this.#socket.bufferedAmount;
            this.#beatLater(this.#settings.heartbeatTimeout);
        } else if (ping.missed === 0) {
            this.#sendPing(1);
        } else {
            this.end(new CallError("connectionLost", "the server has not answered two pings"));
        }
    }

    // Ends

    #closed(code, reason) {
        const message = this.#isOpen
            ? `the connection was closed: ${code} ${reason}`.trimEnd()
            : "the WebSocket could not be opened; the browser's console may say why";
        this.end(new CallError(this.#isOpen ? "connectionLost" : "connectFailed", message), undefined, code);
    }

    /**
     * Closes the WebSocket and fails the calls in flight. Does not wait for the other side, which may be dead.
     * @param {CallError} error
     * @param {number} [closeCode] - That of our close frame; 1000 by default.
     * @param {number} [received] - That of the server's close frame, if the server has closed.
     */
    end(error, closeCode = CloseCode.normal, received = undefined) {
        if (this.#isEnded) return;
        this.#isEnded = true;
        this.#clock.clearTimeout(this.#timer);
        // Events of this socket no longer belong to a link.
        this.#socket.onopen = null;
        this.#socket.onmessage = null;
        this.#socket.onclose = null;
        this.#socket.onerror = null;
        this.#socket.close(closeCode);
        const calls = [...this.#calls.values()];
        this.#calls.clear();
        for (const call of calls) {
            call.link = undefined;
            call.fail(new CallError(error.code, error.message, { delivery: "sentUnknown", cause: error }));
        }
        this.#owner.ended(this, error, received);
    }
}
