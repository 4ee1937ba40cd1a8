// SPDX-License-Identifier: Apache-2.0
// The errors of calls, and the meaning of statuses. The codes are those of HHSocket's SocketError; Docs/Protocol.md has
// the table of statuses, which are not HTTP's.

/** Success. */
export const OK = 200;
/** One of several answers, which only streams expect. */
export const PARTIAL = 206;
/** The server is shutting down. */
export const DRAINING = 504;

/** The code of each status, and whether a later attempt may succeed. */
const STATUSES = new Map([
    [PARTIAL, { code: "partial", isTransient: false }],
    [300, { code: "serverLostConnection", isTransient: true }],
    [301, { code: "illegalLength", isTransient: false }],
    [302, { code: "lostPacket", isTransient: true }],
    [303, { code: "illegalFormat", isTransient: false }],
    [304, { code: "notModified", isTransient: false }],
    [401, { code: "undefinedType", isTransient: true }],
    [402, { code: "protobufFailed", isTransient: false }],
    [403, { code: "database", isTransient: true }],
    [404, { code: "unknown", isTransient: true }],
    [405, { code: "noPermission", isTransient: true }],
    [408, { code: "deadlineExceeded", isTransient: true }],
    [409, { code: "cancelledByServer", isTransient: true }],
    [456, { code: "emptyProtobuf", isTransient: false }],
    [503, { code: "overloaded", isTransient: true }],
    [DRAINING, { code: "draining", isTransient: true }],
]);

/** Statuses of requests that the server has not begun, so that they may be sent again. */
const NOT_EXECUTED = new Set([401, 503, DRAINING]);

/** Codes of this side after which a later attempt may succeed. */
const TRANSIENT = new Set([
    "notConnected", "connectFailed", "connectTimeout", "connectionLost", "timeout", "checksumMismatch", "queueFull",
]);

/** An error of a call, or of the connection. */
export class CallError extends Error {
    /**
     * @param {string} code - Such as `timeout`, `cancelled`, `connectionLost`, `overloaded`; `server` for a status
     *   without a name.
     * @param {string} message
     * @param {object} [details]
     * @param {"notSent" | "sentUnknown" | "answered"} [details.delivery] - `sentUnknown`: bytes may have been sent, and
     *   it is unknown whether the server has run the request.
     * @param {number} [details.status] - That of the server's answer.
     * @param {Uint8Array} [details.payload] - That of the server's answer.
     * @param {unknown} [details.cause]
     */
    constructor(code, message, { delivery = "notSent", status, payload, cause } = {}) {
        super(message, { cause });
        this.name = "CallError";
        this.code = code;
        this.delivery = delivery;
        this.status = status;
        this.payload = payload;
    }

    /** The error of an answer with `status`. An unlisted status is an error too. */
    static answered(status, payload) {
        const code = STATUSES.get(status)?.code ?? "server";
        const message = `the server answered ${status} (${code})`;
        return new CallError(code, message, { delivery: "answered", status, payload });
    }

    /** Whether the server certainly has not run the request, so that sending it again runs it once. */
    get isNotExecuted() {
        return this.delivery === "notSent" || (this.delivery === "answered" && NOT_EXECUTED.has(this.status));
    }

    /** Whether a later attempt may succeed. */
    get isTransient() {
        return this.status === undefined ? TRANSIENT.has(this.code) : STATUSES.get(this.status)?.isTransient ?? false;
    }
}
