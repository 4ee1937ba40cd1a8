// SPDX-License-Identifier: Apache-2.0
// Drives a Chromium without a window through its debugging protocol, over two pipes. Each message is JSON that ends
// with a NUL.

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The timeout in milliseconds of each step, long enough for a busy machine. */
export const PATIENCE = 60_000;

/** Waits for `promise`, and fails after `PATIENCE` with the name of what it waited for. */
export async function withDeadline(promise, what) {
    let timer;
    const expiry = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`waited ${PATIENCE / 1_000} s for ${what}`)), PATIENCE);
    });
    try {
        return await Promise.race([promise, expiry]);
    } finally {
        clearTimeout(timer);
    }
}

export class Chromium {
    #process;
    #profile;
    #rest = "";
    #count = 0;
    /** The commands without an answer, by number. */
    #commands = new Map();
    /** The pages, by session. */
    #pages = new Map();

    /** Starts `program` with a profile of its own. */
    static async start(program) {
        const browser = new Chromium();
        browser.#profile = await mkdtemp(join(tmpdir(), "hhsocket-chromium-"));
        const options = [
            "--headless=new", "--remote-debugging-pipe", `--user-data-dir=${browser.#profile}`, "--no-first-run",
            "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars",
        ];
        // Chromium's sandbox does not work for root.
        if (process.getuid?.() === 0) options.push("--no-sandbox");
        browser.#process = spawn(program, [...options, "about:blank"], {
            stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
        });
        browser.#process.on("exit", () => browser.#fail(new Error("Chromium has ended")));
        browser.#process.on("error", (error) => browser.#fail(error));
        browser.#process.stdio[3].on("error", (error) => browser.#fail(error));
        browser.#process.stdio[4].setEncoding("utf8").on("data", (text) => browser.#received(text));
        await browser.send("Browser.getVersion");
        return browser;
    }

    #fail(error) {
        for (const { reject } of this.#commands.values()) reject(error);
        this.#commands.clear();
    }

    #received(text) {
        const messages = (this.#rest + text).split("\0");
        this.#rest = messages.pop();
        for (const message of messages.map((json) => JSON.parse(json))) {
            const command = this.#commands.get(message.id);
            this.#commands.delete(message.id);
            if (command === undefined) this.#pages.get(message.sessionId)?.received(message);
            else if (message.error === undefined) command.resolve(message.result);
            else command.reject(new Error(`${command.method}: ${message.error.message}`));
        }
    }

    /** Sends a command and returns its result. */
    send(method, params = {}, sessionId = undefined) {
        this.#count += 1;
        const id = this.#count;
        const answer = new Promise((resolve, reject) => this.#commands.set(id, { method, resolve, reject }));
        this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
        return withDeadline(answer, method);
    }

    /** Opens a page of its own, and waits until it is loaded. */
    async open(url) {
        const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
        const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
        const page = new Page((method, params) => this.send(method, params, sessionId));
        this.#pages.set(sessionId, page);
        await page.load(url);
        return page;
    }

    async end() {
        const process = this.#process;
        if (process.exitCode === null && process.signalCode === null) {
            const ended = new Promise((resolve) => process.once("exit", resolve));
            // Closed by this command, Chromium also ends its other processes. It may end before it answers.
            const closed = Promise.all([ended, this.send("Browser.close").catch(() => {})]);
            await withDeadline(closed, "the end of Chromium").catch(() => process.kill("SIGKILL"));
            await ended;
        }
        await rm(this.#profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    }
}

class Page {
    #send;
    #loaded;
    /** The exceptions in the page, and the errors on its console. */
    problems = [];

    constructor(send) {
        this.#send = send;
    }

    received({ method, params }) {
        if (method === "Page.loadEventFired") this.#loaded?.();
        if (method === "Runtime.exceptionThrown") {
            const { text, exception } = params.exceptionDetails;
            this.problems.push(`${text} ${exception?.description ?? ""}`);
        }
        if (method === "Log.entryAdded" && params.entry.level === "error") this.problems.push(params.entry.text);
    }

    async load(url) {
        for (const domain of ["Page", "Runtime", "Log"]) await this.#send(`${domain}.enable`);
        const loaded = new Promise((resolve) => {
            this.#loaded = resolve;
        });
        const { errorText } = await this.#send("Page.navigate", { url });
        if (errorText !== undefined) throw new Error(`${url}: ${errorText}`);
        await withDeadline(loaded, url);
    }

    /** The value of an expression in the page, or of the promise that it returns. */
    async evaluate(expression) {
        const { result, exceptionDetails } = await this.#send("Runtime.evaluate", {
            expression, awaitPromise: true, returnByValue: true,
        });
        if (exceptionDetails !== undefined) {
            throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
        }
        return result.value;
    }

    /** Waits until an expression is true; it is evaluated after each change of the document. */
    async until(expression) {
        const wait = this.evaluate(`new Promise((resolve) => {
            const look = () => {
                if (!(${expression})) return;
                observer.disconnect();
                resolve();
            };
            const observer = new MutationObserver(look);
            const everything = { subtree: true, childList: true, attributes: true, characterData: true };
            observer.observe(document, everything);
            look();
        })`);
        try {
            await wait;
        } catch (error) {
            const text = await this.evaluate("document.body.innerText");
            throw new Error(`waited for ${expression}; the page says:\n${text}`, { cause: error });
        }
    }

    /** Types into the field that a selector names, like a user, and replaces its text. */
    async type(selector, text) {
        await this.evaluate(`{
            const field = document.querySelector(${JSON.stringify(selector)});
            field.focus();
            field.select();
        }`);
        await this.#send("Input.insertText", { text });
    }

    async pressEnter() {
        const key = { key: "Enter", code: "Enter", windowsVirtualKeyCode: 13 };
        await this.#send("Input.dispatchKeyEvent", { type: "keyDown", text: "\r", ...key });
        await this.#send("Input.dispatchKeyEvent", { type: "keyUp", ...key });
    }

    async click(selector) {
        await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).click()`);
    }

    /** A picture of the page, as PNG. */
    async picture(width = 800, height = 600, isDark = false) {
        await this.#send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
        await this.#send("Emulation.setEmulatedMedia", {
            features: [{ name: "prefers-color-scheme", value: isDark ? "dark" : "light" }],
        });
        const { data } = await this.#send("Page.captureScreenshot", { format: "png" });
        return Buffer.from(data, "base64");
    }
}
