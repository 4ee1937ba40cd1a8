// SPDX-License-Identifier: Apache-2.0
// The use of the client with a real server, `hhsocket serve`, in node as well as in a browser.

import { Client } from "../client.js";

function check(condition, what) {
    if (!condition) throw new Error(what);
}

/** Waits for a state of the client. */
function state(client, name) {
    return new Promise((resolve) => {
        if (client.state.name === name) resolve();
        const end = client.onState((next) => {
            if (next.name !== name) return;
            end();
            resolve();
        });
    });
}

async function errorOf(promise) {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    throw new Error("the call should have failed");
}

/** Makes calls of all kinds, and returns the number of answered ones. */
export async function exercise(url) {
    const client = new Client(url, { timeout: 30_000 });
    client.connect();
    const bytes = (text) => new TextEncoder().encode(text);
    let answers = 0;

    async function echo(payload) {
        const answer = await client.call(1000, payload);
        check(answer.length === payload.length, `${answer.length} bytes for ${payload.length}`);
        check(answer.every((byte, index) => byte === payload[index]), "another payload");
        answers += 1;
    }

    // More calls than may be in flight, so that some wait, and payloads in several messages.
    await Promise.all(Array.from({ length: 100 }, (_, index) => echo(bytes(`call ${index}`))));
    for (const size of [0, 1, 65_519, 65_520, 1_000_000]) {
        await echo(Uint8Array.from({ length: size }, (_, index) => index * 31));
    }

    const undefinedType = await errorOf(client.call(4_321, bytes("x")));
    check(undefinedType.code === "undefinedType" && undefinedType.isNotExecuted, `${undefinedType}`);

    const timeout = await errorOf(client.call(1001, bytes("60000"), { timeout: 100 }));
    check(timeout.code === "timeout" && timeout.delivery === "sentUnknown", `${timeout}`);

    const controller = new AbortController();
    const cancelled = client.call(1001, bytes("60000"), { signal: controller.signal });
    controller.abort();
    check((await errorOf(cancelled)).code === "cancelled", "not cancelled");

    await echo(bytes("after all that"));
    check(client.state.name === "ready", client.state.name);
    client.close();
    return answers;
}

/**
 * Makes a call that is in flight when the server shuts down. Calls `inFlight` then, and returns the answer and the
 * reason of the wait for another server.
 */
export async function drain(url, inFlight) {
    const client = new Client(url, { timeout: 30_000 });
    client.connect();
    await state(client, "ready");
    const answer = client.call(1001, new TextEncoder().encode("1500"));
    // Once this is answered, the server has read the other call, too. It would refuse one that comes later.
    await client.call(1000);
    const left = state(client, "waiting");
    inFlight();
    await left;
    const reason = client.state.error.message;
    const text = new TextDecoder().decode(await answer);
    client.close();
    return { text, reason };
}
