// SPDX-License-Identifier: Apache-2.0
// A client of HHSocket's servers over WebSocket: calls as promises, pushes, and a connection that is reopened when it
// is lost. It runs in browsers, and in node from version 22 (or 20 with --experimental-websocket).

import { CallError } from "./errors.js";
import { FIRST_APPLICATION_TYPE, LARGEST_TYPE, MAXIMUM_PAYLOAD, encodeRequest } from "./frames.js";
import { Link, SUBPROTOCOL } from "./link.js";

/** The longest time in milliseconds that timers take. */
const LONGEST_TIMEOUT = 0x7fffffff;
/** The time in milliseconds between two checks whether a congested link has room for a call. */
const CONGESTION_POLL = 20;
/** The longest time in milliseconds for which a go-away keeps the client away. */
const LONGEST_RETREAT = 5 * 60 * 1_000;
/** The greatest number of links with calls in flight whose servers have sent go-away. */
const MAXIMUM_LEAVING = 4;

/** The clock of the browser, or of node. */
const systemClock = {
    now: () => performance.now(),
    setTimeout: (action, delay) => setTimeout(action, delay),
    clearTimeout: (timer) => clearTimeout(timer),
};

/** Times are in milliseconds, sizes in bytes. */
export const DEFAULTS = Object.freeze({
    /** The time that a call may take, including the wait for a connection. */
    timeout: 8_000,
    /** The time for the opening of a WebSocket. */
    openTimeout: 10_000,
    maximumPayload: MAXIMUM_PAYLOAD,
    /** The number of calls in flight; more wait. Servers answer 503 above their limit, 1,024 by default. */
    maximumInFlight: 1_024,
    /** The number of calls that wait for a connection, or for room on it; more fail with `queueFull`. */
    maximumWaiting: 100,
    /** The size of all calls that wait. */
    maximumWaitingBytes: 2 * MAXIMUM_PAYLOAD,
    /** The bound of the first wait for a new connection. Each wait is drawn evenly from zero to its bound. */
    backoffBase: 1_000,
    /** The longest bound; each one is twice that before it. */
    backoffCap: 60_000,
    /** The shortest wait but for the first. */
    backoffMinimum: 100,
    /** The time a connection must have been ready for the bounds to start over. */
    backoffReset: 10_000,
    /** The time without a byte, in either direction, after which a ping is sent. Many proxies give up after 60 s. */
    heartbeatInterval: 30_000,
    /** The time for an answer to a ping. After a second ping without one the connection is given up. */
    heartbeatTimeout: 8_000,
});

/** Whether a server that closes with `code` asks clients not to reconnect. */
function isFinal(code) {
    return (code >= 3_500 && code <= 3_999) || (code >= 4_500 && code <= 4_999);
}

function isTime(value) {
    return typeof value === "number" && value > 0 && value <= LONGEST_TIMEOUT;
}

/** Reports an error that a handler of the application has thrown, which does not affect the connection. */
function report(error) {
    if (typeof globalThis.reportError === "function") globalThis.reportError(error);
    else console.error(error);
}

/**
 * The state of a client.
 *
 * - `idle`: `connect()` was not called yet.
 * - `connecting`: a WebSocket is being opened.
 * - `ready`: calls are sent immediately.
 * - `waiting`: the next attempt is made at the time `until` of the clock (`performance.now()`), because of `error`.
 * - `closed`: by `close()`, or because of `error`; no attempt is made before the next `connect()`.
 * @typedef {object} State
 * @property {"idle" | "connecting" | "ready" | "waiting" | "closed"} name
 * @property {number} [until]
 * @property {CallError} [error]
 */

export class Client {
    #url;
    #settings;
    #environment;
    /** @type {State} */
    #state = { name: "idle" };
    #stateHandlers = new Set();
    /** @type {Map<number, Set<(payload: Uint8Array) => void>>} */
    #pushHandlers = new Map();
    /** The calls that wait for a link with room, in their order. */
    #waiting = new Set();
    #waitingBytes = 0;
    /** The link that is being opened, or on which calls are sent. */
    #link;
    /** Links whose servers shut down, kept for their calls in flight or until there is another link. */
    #leaving = new Set();
    /** The number of attempts, so that a URL that is resolved late opens nothing. */
    #attempts = 0;
    /** The number of waits since a connection was last ready for long enough. */
    #failures = 0;
    #readySince;
    #retryTimer;
    #flushTimer;
    /** Whether a server has requested the current wait. */
    #isSentAway = false;
    #networkReturned = () => this.#wake();
    #visibilityChanged = () => {
        if (this.#environment.document.visibilityState === "visible") this.#wake();
    };

    /**
     * @param {string | (() => string | Promise<string>)} url - Such as `wss://example.com/rpc`; a function is called
     *   for each attempt, for example to get a fresh token for the query.
     * @param {Partial<typeof DEFAULTS>} [options]
     * @param {object} [environment] - Replaces WebSocket, clock, random numbers, window and document in tests.
     * @throws {CallError} With code `invalidArgument`.
     */
    constructor(url, options = {}, environment = {}) {
        this.#url = url;
        if (typeof url !== "function") Client.#check(url);
        this.#environment = {
            WebSocket: globalThis.WebSocket,
            clock: systemClock,
            random: Math.random,
            window: globalThis.window,
            document: globalThis.document,
            ...environment,
        };
        this.#settings = { ...DEFAULTS, ...options, clock: this.#environment.clock };
        for (const name of Object.keys(options)) {
            const value = options[name];
            if (!(name in DEFAULTS) || typeof value !== "number" || !(value >= 0 && value <= LONGEST_TIMEOUT)) {
                const range = `a number from 0 to ${LONGEST_TIMEOUT}`;
                throw new CallError("invalidArgument", `the option ${name} must be one of DEFAULTS, with ${range}`);
            }
        }
        if (typeof this.#environment.WebSocket !== "function") {
            throw new CallError("invalidArgument", "there is no WebSocket here; node needs version 22");
        }
    }

    static #check(url) {
        let parsed;
        try {
            parsed = new URL(url);
        } catch (error) {
            throw new CallError("invalidArgument", "the address is not a URL", { cause: error });
        }
        if (!["ws:", "wss:"].includes(parsed.protocol) || parsed.hash !== "") {
            throw new CallError("invalidArgument", "the address must begin with ws:// or wss://, without a fragment");
        }
    }

    // The connection

    /** The state of the connection. */
    get state() {
        return this.#state;
    }

    /**
     * Calls `handler` with each state from now on.
     * @param {(state: State) => void} handler
     * @returns {() => void} Ends the subscription.
     */
    onState(handler) {
        this.#stateHandlers.add(handler);
        return () => this.#stateHandlers.delete(handler);
    }

    /** Connects, and keeps connected until `close()`. During a wait the next attempt is made immediately. */
    connect() {
        const { name } = this.#state;
        if (name === "connecting" || name === "ready") return;
        if (name !== "waiting") {
            this.#failures = 0;
            this.#environment.window?.addEventListener("online", this.#networkReturned);
            this.#environment.document?.addEventListener("visibilitychange", this.#visibilityChanged);
        }
        this.#attempt();
    }

    /** Closes the connection. Calls that wait or are in flight fail with `cancelled`. */
    close() {
        if (this.#state.name === "idle" || this.#state.name === "closed") return;
        this.#stop(undefined, new CallError("cancelled", "the client was closed"));
    }

    async #attempt() {
        this.#clock.clearTimeout(this.#retryTimer);
        this.#isSentAway = false;
        this.#attempts += 1;
        const attempt = this.#attempts;
        this.#change({ name: "connecting" });
        // The application may have closed the client in its handler.
        if (attempt !== this.#attempts) return;
        try {
            let url = this.#url;
            if (typeof url === "function") {
                url = await url();
                if (attempt !== this.#attempts) return;
                Client.#check(url);
            }
            const socket = new this.#environment.WebSocket(url, [SUBPROTOCOL]);
            this.#link = new Link(socket, this.#settings, this.#owner);
        } catch (error) {
            if (attempt !== this.#attempts) return;
            // A token may be available later; a WebSocket that the browser forbids stays forbidden.
            if (error?.name === "SecurityError" || error?.code === "invalidArgument") {
                this.#stop(new CallError("invalidArgument", `${error.message}`, { cause: error }));
            } else {
                const message = `${error?.message ?? error}`;
                this.#waitFor(this.#backoff(), new CallError("connectFailed", message, { cause: error }));
            }
        }
    }

    get #clock() {
        return this.#environment.clock;
    }

    /** The client as its links see it. */
    #owner = {
        opened: (link) => {
            if (link !== this.#link) return;
            this.#readySince = this.#clock.now();
            this.#change({ name: "ready" });
            this.#endLeaving();
            this.#flush();
        },
        hasRoom: (link) => {
            if (link === this.#link) this.#flush();
            else this.#endLeaving();
        },
        push: (link, type, payload) => {
            // While two servers are connected, both may send the push.
            if (link !== this.#link && this.#state.name === "ready") return;
            for (const handler of [...(this.#pushHandlers.get(type) ?? [])]) Client.#run(handler, payload);
        },
        goAway: (link, { reason, retryAfter }) => {
            if (link !== this.#link) return;
            this.#link = undefined;
            if (this.#leaving.size === MAXIMUM_LEAVING) {
                const [oldest] = this.#leaving;
                oldest.end(new CallError("connectionLost", "too many servers are shutting down"));
            }
            this.#leaving.add(link);
            const error = new CallError("connectionLost", `the server shuts down: ${reason}`);
            const delay = this.#backoff();
            this.#isSentAway = retryAfter > 0;
            this.#waitFor(this.#isSentAway ? Math.min(retryAfter, LONGEST_RETREAT) : delay, error);
        },
        refused: (call) => {
            // Before the calls that were never sent.
            this.#waiting = new Set([call, ...this.#waiting]);
            this.#waitingBytes += call.frame.length;
            this.#flush();
        },
        ended: (link, error, closeCode) => {
            this.#leaving.delete(link);
            if (link !== this.#link) return;
            this.#link = undefined;
            if (isFinal(closeCode)) this.#stop(error);
            else this.#waitFor(this.#backoff(), error);
        },
    };

    /** Draws the back-off before the next attempt, with full jitter even before the first. */
    #backoff() {
        const { backoffBase, backoffCap, backoffMinimum, backoffReset } = this.#settings;
        const since = this.#readySince;
        this.#readySince = undefined;
        if (since !== undefined && this.#clock.now() - since >= backoffReset) this.#failures = 0;
        const bound = Math.min(backoffCap, backoffBase * 2 ** this.#failures);
        const minimum = this.#failures === 0 ? 0 : backoffMinimum;
        this.#failures += 1;
        return Math.max(minimum, this.#environment.random() * bound);
    }

    #waitFor(delay, error) {
        this.#retryTimer = this.#clock.setTimeout(() => this.#attempt(), delay);
        this.#change({ name: "waiting", until: this.#clock.now() + delay, error });
    }

    /** Ends everything, because of `error` unless the application has requested it. */
    #stop(error, callError = error) {
        this.#attempts += 1;
        this.#clock.clearTimeout(this.#retryTimer);
        this.#clock.clearTimeout(this.#flushTimer);
        this.#flushTimer = undefined;
        this.#environment.window?.removeEventListener("online", this.#networkReturned);
        this.#environment.document?.removeEventListener("visibilitychange", this.#visibilityChanged);
        const links = [...this.#leaving];
        if (this.#link !== undefined) links.push(this.#link);
        this.#link = undefined;
        this.#leaving.clear();
        this.#readySince = undefined;
        const waiting = [...this.#waiting];
        this.#waiting.clear();
        this.#waitingBytes = 0;
        for (const link of links) link.end(callError);
        for (const call of waiting) call.fail(new CallError(callError.code, callError.message, { cause: callError }));
        this.#change({ name: "closed", error });
    }

    /** Handles the return of the network or of the page: timers may have been suspended, and links may be dead. */
    #wake() {
        if (this.#state.name === "waiting" && !this.#isSentAway) this.#attempt();
        else if (this.#state.name === "ready") this.#link?.probe();
    }

    #endLeaving() {
        if (this.#state.name !== "ready") return;
        for (const link of [...this.#leaving]) {
            if (!link.isBusy) link.end(new CallError("connectionLost", "the server shuts down"));
        }
    }

    #change(state) {
        this.#state = Object.freeze(state);
        for (const handler of [...this.#stateHandlers]) {
            // A handler may have changed the state, which has notified the others already.
            if (this.#state !== state) return;
            Client.#run(handler, state);
        }
    }

    static #run(handler, value) {
        try {
            handler(value);
        } catch (error) {
            report(error);
        }
    }

    // Calls and pushes

    /**
     * Calls the server. While there is no connection the call waits, within its timeout and the limits.
     * @param {number} type - 16 to 0x1FFFFFFF: the name of the call.
     * @param {Uint8Array} [payload]
     * @param {object} [options]
     * @param {number} [options.timeout] - In milliseconds, over all; 8 s by default.
     * @param {AbortSignal} [options.signal] - Cancels the call, and notifies the server.
     * @returns {Promise<Uint8Array>} The answer's payload.
     * @throws {CallError}
     */
    call(type, payload = new Uint8Array(0), { timeout = this.#settings.timeout, signal } = {}) {
        return new Promise((resolve, reject) => {
            this.#admit(type, payload, timeout, signal);
            let timer;
            const settle = (finish, value) => {
                this.#clock.clearTimeout(timer);
                signal?.removeEventListener("abort", abort);
                finish(value);
            };
            // The code that removes the call from the waiting calls, or from those in flight, settles it.
            const call = {
                frame: encodeRequest(type, 0, payload),
                link: undefined,
                serial: undefined,
                succeed: (answer) => settle(resolve, answer),
                fail: (error) => settle(reject, error),
            };
            const giveUp = (code, message, cause) => {
                const delivery = call.link === undefined ? "notSent" : "sentUnknown";
                if (call.link === undefined) this.#dequeue(call);
                else call.link.abandon(call);
                call.fail(new CallError(code, message, { delivery, cause }));
            };
            const abort = () => giveUp("cancelled", "the call was cancelled", signal.reason);
            signal?.addEventListener("abort", abort);
            timer = this.#clock.setTimeout(
                () => giveUp("timeout", `no answer within ${timeout / 1_000} s`, this.#state.error),
                timeout,
            );
            this.#waiting.add(call);
            this.#waitingBytes += call.frame.length;
            this.#flush();
        });
    }

    /** Throws the reason why a call cannot be made, if there is one. */
    #admit(type, payload, timeout, signal) {
        if (!Number.isInteger(type) || type < FIRST_APPLICATION_TYPE || type > LARGEST_TYPE) {
            throw new CallError("invalidArgument", `${type} is not a type of the application: 16 to 0x1FFFFFFF`);
        }
        if (!(payload instanceof Uint8Array)) throw new CallError("invalidArgument", "a payload must be a Uint8Array");
        if (!isTime(timeout)) throw new CallError("invalidArgument", `${timeout} is not a timeout in milliseconds`);
        if (payload.length > this.#settings.maximumPayload) {
            const limit = this.#settings.maximumPayload;
            throw new CallError("frameTooLarge", `a payload of ${payload.length} bytes, over the limit of ${limit}`);
        }
        if (signal?.aborted) throw new CallError("cancelled", "the call was cancelled", { cause: signal.reason });
        if (this.#state.name === "idle" || this.#state.name === "closed") {
            throw new CallError("notConnected", "the client is not connected", { cause: this.#state.error });
        }
        const isFull = this.#waiting.size >= this.#settings.maximumWaiting
            || this.#waitingBytes + payload.length > this.#settings.maximumWaitingBytes;
        if (isFull && !(this.#waiting.size === 0 && this.#link?.hasRoom)) {
            throw new CallError("queueFull", `${this.#waiting.size} calls wait already`, { cause: this.#state.error });
        }
    }

    #dequeue(call) {
        if (this.#waiting.delete(call)) this.#waitingBytes -= call.frame.length;
    }

    /** Sends waiting calls while there is room. */
    #flush() {
        for (const call of this.#waiting) {
            if (!this.#link?.hasRoom) break;
            this.#dequeue(call);
            this.#link.send(call);
        }
        if (this.#waiting.size > 0 && this.#link?.isCongested && this.#flushTimer === undefined) {
            this.#flushTimer = this.#clock.setTimeout(() => {
                this.#flushTimer = undefined;
                this.#flush();
            }, CONGESTION_POLL);
        }
    }

    /**
     * Calls `handler` with the payload of each push of a type, from now on.
     * @param {number} type
     * @param {(payload: Uint8Array) => void} handler
     * @returns {() => void} Ends the subscription.
     */
    onPush(type, handler) {
        const handlers = this.#pushHandlers.get(type) ?? new Set();
        this.#pushHandlers.set(type, handlers.add(handler));
        return () => {
            handlers.delete(handler);
            if (handlers.size === 0 && this.#pushHandlers.get(type) === handlers) this.#pushHandlers.delete(type);
        };
    }
}
