// SPDX-License-Identifier: Apache-2.0
// The page in a Chromium without a window, and the client in node, against the real servers. Examples/browser/test runs
// this with CHAT_EXAMPLE, HHSOCKET and CHROMIUM, the programs. With SCREENSHOTS, a folder, pictures are left there.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Chromium, withDeadline } from "./chromium.js";
import { drain, exercise } from "./exercise.js";

const FOLDER = fileURLToPath(new URL("..", import.meta.url));
const { CHAT_EXAMPLE, HHSOCKET, CHROMIUM, SCREENSHOTS } = process.env;
const MEDIA_TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** The programs to end after the tests. */
const running = new Set();

/** A program of the package, with its output line by line. */
class Program {
    #name;
    #process;
    #output = "";
    #looks = new Set();

    constructor(path, ...options) {
        this.#name = [path, ...options].join(" ");
        this.#process = spawn(path, options, { stdio: ["pipe", "pipe", "inherit"] });
        this.#process.stdin.on("error", () => {});
        this.#process.stdout.setEncoding("utf8").on("data", (text) => {
            this.#output += text;
            for (const look of this.#looks) look();
        });
        // Not before its output has been read.
        this.ended = new Promise((resolve) => this.#process.on("close", resolve));
        running.add(this);
    }

    type(line) {
        this.#process.stdin.write(`${line}\n`);
    }

    /** Waits until the output matches the pattern, and returns the match. */
    prints(pattern) {
        const found = new Promise((resolve, reject) => {
            const look = () => {
                const match = this.#output.match(pattern);
                if (match === null) return;
                this.#looks.delete(look);
                resolve(match);
            };
            this.#looks.add(look);
            look();
            this.ended.then(() => reject(new Error(`it has ended without ${pattern}:\n${this.#output}`)));
        });
        return withDeadline(found, `${pattern} in the output of ${this.#name}`);
    }

    signal(name) {
        this.#process.kill(name);
    }

    async kill() {
        this.signal("SIGKILL");
        await withDeadline(this.ended, "the end of a program");
        running.delete(this);
    }
}

/** Serves the folder's files, as any web server does, and returns the origin. */
async function serveFiles() {
    const server = createServer(async ({ url }, answer) => {
        try {
            const path = normalize(new URL(url, "http://127.0.0.1").pathname);
            const file = join(FOLDER, path === "/" ? "index.html" : path);
            answer.setHeader("Content-Type", MEDIA_TYPES[extname(file)] ?? "application/octet-stream");
            answer.end(await readFile(file));
        } catch {
            answer.writeHead(404).end();
        }
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    running.add({ kill: () => server.close() });
    server.unref();
    return `http://127.0.0.1:${server.address().port}`;
}

/** Opens the room for the pages of one origin. */
async function openRoom(origin, port = 0) {
    const server = new Program(CHAT_EXAMPLE, "serve", `tcp+ws://127.0.0.1:${port}/rpc`, origin);
    const [, url, chosen] = await server.prints(/and on (ws:\/\/127\.0\.0\.1:([0-9]+)\/rpc)\n/);
    return { server, url, port: Number(chosen) };
}

/** The list of the page, from first to last. */
const NOTES = "[...document.querySelectorAll('.note')].map((item) => item.innerText.replaceAll('\\n', ': '))";
const isConnected = "document.querySelector('#connection').dataset.state === 'ready'";
const has = (text) => `${NOTES}.includes(${JSON.stringify(text)})`;

async function joinRoom(page, name, url) {
    await page.type("#name", name);
    await page.type("#room", url);
    await page.pressEnter();
}

async function say(page, text) {
    await page.type("#text", text);
    await page.pressEnter();
}

async function keepPicture(page, name, ...size) {
    if (SCREENSHOTS) await writeFile(join(SCREENSHOTS, `${name}.png`), await page.picture(...size));
}

let browser;
let origin;

before(async () => {
    [browser, origin] = await Promise.all([Chromium.start(CHROMIUM), serveFiles()]);
});

after(async () => {
    for (const program of running) await program.kill();
    await browser?.end();
});

test("the page sends a message, and receives those of others", async () => {
    const { server, url, port } = await openRoom(origin);
    const bob = new Program(CHAT_EXAMPLE, "127.0.0.1", `${port}`, "bob");
    bob.type("is anybody there?");
    await bob.prints(/1 bob: is anybody there\?/);

    const page = await browser.open(origin);
    await keepPicture(page, "join");
    await joinRoom(page, "alice", url);
    await page.until(isConnected);
    // The messages sent before the page joined.
    await page.until(has("bob: is anybody there?"));
    await say(page, "I am, over WebSocket: Grüße 🌍");
    await bob.prints(/2 alice: I am, over WebSocket: Grüße 🌍/);
    bob.type("<b>and I over TCP</b>");
    await page.until(has("bob: <b>and I over TCP</b>"));

    // A second page of the same room, over the same port.
    const other = await browser.open(`${origin}/?name=carol&room=${encodeURIComponent(url)}`);
    await other.click("#join button");
    await other.until(has("bob: <b>and I over TCP</b>"));
    await say(other, "hello from another page");
    await page.until(has("carol: hello from another page"));
    await page.until("document.querySelector('.state') === null");
    assert.deepEqual(await page.evaluate(NOTES), [
        "bob: is anybody there?", "alice: I am, over WebSocket: Grüße 🌍", "bob: <b>and I over TCP</b>",
        "carol: hello from another page",
    ]);
    assert.equal(await page.evaluate("document.querySelectorAll('.note.own').length"), 1);
    await keepPicture(page, "chat");
    await keepPicture(page, "chat-dark-narrow", 360, 640, true);

    await page.click("#leave");
    await page.until("!document.querySelector('#join').hidden");
    assert.deepEqual([...page.problems, ...other.problems], []);
    await bob.kill();
    await server.kill();
});

test("the page reconnects to a server that was killed, and messages sent meanwhile arrive once", async () => {
    const first = await openRoom(origin);
    const page = await browser.open(origin);
    await joinRoom(page, "alice", first.url);
    await page.until(isConnected);
    await say(page, "before");
    await page.until("document.querySelector('.state') === null && document.querySelector('[data-number]') !== null");
    await first.server.kill();
    await page.until(`!(${isConnected})`);
    await say(page, "meanwhile");
    await page.until("document.querySelector('.state')?.textContent === 'Sending…'");
    await keepPicture(page, "lost");

    const second = await openRoom(origin, first.port);
    await page.until(isConnected);
    await page.until("document.querySelector('.state') === null");
    const bob = new Program(CHAT_EXAMPLE, "127.0.0.1", `${second.port}`, "bob");
    await bob.prints(/1 alice: meanwhile/);
    bob.type("welcome back");
    await page.until(has("bob: welcome back"));
    // The new room counts from 1 again.
    assert.deepEqual(await page.evaluate(NOTES), ["alice: before", "alice: meanwhile", "bob: welcome back"]);
    await bob.kill();
    await second.server.kill();
});

test("a message that the server rejects is reported", async () => {
    const { server, url } = await openRoom(origin);
    const page = await browser.open(origin);
    await joinRoom(page, "alice", url);
    await page.until(isConnected);
    // The field itself would reject the long text.
    await page.evaluate("document.querySelector('#text').removeAttribute('maxlength')");
    await say(page, "x".repeat(1_001));
    await page.until("document.querySelector('.failed .state')?.textContent.includes('301 (illegalLength)')");
    await keepPicture(page, "refused");
    assert.equal(await page.evaluate("document.querySelector('.failed button')"), null);
    await server.kill();
});

test("a message that could not be sent can be sent again", async () => {
    const first = await openRoom(origin);
    const page = await browser.open(origin);
    await joinRoom(page, "alice", first.url);
    await page.until(isConnected);
    await first.server.kill();
    await page.until(`!(${isConnected})`);
    await say(page, "hello?");
    await page.until("document.querySelector('.failed .state')?.innerText.startsWith('Not sent: no answer')");
    await keepPicture(page, "not-sent");

    const second = await openRoom(origin, first.port);
    await page.click("#retry");
    await page.until(isConnected);
    await page.click(".failed button");
    await page.until("document.querySelector('.state') === null");
    assert.deepEqual(await page.evaluate(NOTES), ["alice: hello?"]);
    const bob = new Program(CHAT_EXAMPLE, "127.0.0.1", `${second.port}`, "bob");
    await bob.prints(/1 alice: hello\?/);
    await bob.kill();
    await second.server.kill();
});

test("a page of another origin is rejected", async () => {
    const { server, url } = await openRoom(origin);
    const page = await browser.open(await serveFiles());
    await joinRoom(page, "mallory", url);
    await page.until("document.querySelector('#connection').title.includes('could not be opened')");
    assert.ok(page.problems.some((problem) => problem.includes("403")), page.problems.join("\n"));
    await server.kill();
});

test("an invalid address is reported in the form", async () => {
    const page = await browser.open(origin);
    await joinRoom(page, "alice", "ws://127.0.0.1:1/#fragment");
    await page.until("document.querySelector('#join-error').textContent.includes('without a fragment')");
    assert.equal(await page.evaluate("document.querySelector('#chat').hidden"), true);
});

/** Starts `hhsocket serve`. */
async function serve() {
    const server = new Program(HHSOCKET, "serve", "--port", "0", "--listen", "ws://127.0.0.1:0/rpc");
    const [, url] = await server.prints(/listening on (ws:\S+)\n/);
    return { server, url };
}

test("calls of all kinds work in Chromium", async () => {
    const { server, url } = await serve();
    const page = await browser.open(origin);
    const source = `import("/tests/exercise.js").then(({ exercise }) => exercise(${JSON.stringify(url)}))`;
    assert.equal(await page.evaluate(source), 106);
    assert.deepEqual(page.problems, []);
    await server.kill();
});

const withoutWebSocket = globalThis.WebSocket === undefined && "this node has no WebSocket";

test("calls of all kinds work in node", { skip: withoutWebSocket }, async () => {
    const { server, url } = await serve();
    assert.equal(await withDeadline(exercise(url), "the calls"), 106);
    await server.kill();
});

test("a server that shuts down completes calls in flight", { skip: withoutWebSocket }, async () => {
    const { server, url } = await serve();
    const { text, reason } = await withDeadline(drain(url, () => server.signal("SIGTERM")), "the answer");
    assert.equal(text, "1500");
    assert.match(reason, /the server shuts down/);
    await withDeadline(server.ended, "the end of the server");
});
