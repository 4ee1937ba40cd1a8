// SPDX-License-Identifier: Apache-2.0
// The page: a form to join a room, the list of messages, a line to write, and the state of the connection.

import { Chat } from "./chat.js";
import { Client } from "./client.js";

/** The time in milliseconds for which a message waits for a connection, and for its receipt. */
const SENDING_TIMEOUT = 20_000;
/** The number of messages that the page keeps. */
const MAXIMUM_NOTES = 500;

const element = (id) => document.getElementById(id);
const [connection, countdown] = [element("connection"), element("countdown")];
const [retry, leave] = [element("retry"), element("leave")];
const [join, joinError] = [element("join"), element("join-error")];
const [nameField, roomField] = [element("name"), element("room")];
const [room, log, notes] = [element("chat"), element("log"), element("notes")];
const [composer, textField] = [element("composer"), element("text")];

/** The fields of the form from the last visit. A browser may forbid storing them. */
const memory = {
    read(key) {
        try {
            return localStorage.getItem(`hhsocket.chat.${key}`);
        } catch {
            return null;
        }
    },
    write(key, value) {
        try {
            localStorage.setItem(`hhsocket.chat.${key}`, value);
        } catch {
            // The form is empty next time.
        }
    },
};

/** A visit to a room, from joining to leaving. */
class Visit {
    #name;
    #client;
    #chat;
    #timer;
    /** The items of the list, with their messages, by the numbers of their notes. */
    #items = new Map();

    constructor(name, url) {
        this.#name = name;
        this.#client = new Client(url);
        this.#chat = new Chat(this.#client);
        this.#chat.onNote((note) => this.#show(note));
        this.#client.onState((state) => this.#showState(state));
        this.#client.connect();
    }

    retry() {
        this.#client.connect();
    }

    end() {
        this.#client.close();
        clearInterval(this.#timer);
        countdown.textContent = "";
    }

    // Messages

    async say(text) {
        const message = { author: this.#name, text };
        const item = this.#makeItem(message);
        this.#append(item);
        await this.#send(item, message);
    }

    async #send(item, message) {
        const state = item.querySelector(".state") ?? item.appendChild(document.createElement("span"));
        state.className = "state";
        state.textContent = "Sending…";
        item.classList.remove("failed");
        try {
            const { number } = await this.#chat.send(message, { timeout: SENDING_TIMEOUT });
            state.remove();
            // The push, which everyone in the room receives, may have arrived before the receipt.
            if (this.#isShown({ number, message })) item.remove();
            else this.#place(item, { number, message });
        } catch (error) {
            state.textContent = error.delivery === "sentUnknown"
                ? `It may not have been sent: ${error.message}. `
                : `Not sent: ${error.message}. `;
            item.classList.add("failed");
            if (!error.isTransient) return;
            const again = document.createElement("button");
            again.type = "button";
            again.textContent = "Send again";
            again.addEventListener("click", () => this.#send(item, message), { once: true });
            state.append(again);
        }
    }

    /** Shows the messages sent before the page joined, and while it was away. */
    async #recall() {
        try {
            for (const note of await this.#chat.recall()) this.#show(note);
        } catch (error) {
            // The next connection calls this again.
            console.warn("what was said before could not be read:", error.message);
        }
    }

    #show(note) {
        if (this.#isShown(note)) return;
        const item = this.#makeItem(note.message);
        this.#append(item);
        this.#place(item, note);
    }

    /** Whether the list has this note. If it has another one with this number, the room has restarted from 1. */
    #isShown({ number, message }) {
        const shown = this.#items.get(number)?.message;
        if (shown === undefined) return false;
        if (shown.author === message.author && shown.text === message.text) return true;
        for (const { item } of this.#items.values()) delete item.dataset.number;
        this.#items.clear();
        return false;
    }

    #makeItem({ author, text }) {
        const item = document.createElement("li");
        item.className = author === this.#name ? "note own" : "note";
        for (const [className, content] of [["author", author], ["text", text]]) {
            const part = document.createElement("span");
            part.className = className;
            part.textContent = content;
            item.append(part);
        }
        return item;
    }

    /** Gives an item its number, and moves it before those with larger ones. */
    #place(item, { number, message }) {
        item.dataset.number = number;
        this.#items.set(number, { item, message });
        let next = item;
        for (;;) {
            const previous = next.previousElementSibling;
            if (previous?.dataset.number === undefined || BigInt(previous.dataset.number) < number) break;
            next = previous;
        }
        if (next !== item) notes.insertBefore(item, next);
    }

    #append(item) {
        const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        notes.append(item);
        while (notes.children.length > MAXIMUM_NOTES) {
            const { number } = notes.firstElementChild.dataset;
            if (number !== undefined) this.#items.delete(BigInt(number));
            notes.firstElementChild.remove();
        }
        if (isAtEnd || item.classList.contains("own")) log.scrollTop = log.scrollHeight;
    }

    // The connection

    #showState({ name, until, error }) {
        clearInterval(this.#timer);
        countdown.textContent = "";
        connection.dataset.state = name;
        connection.title = error?.message ?? "";
        retry.hidden = name !== "waiting" && name !== "closed";
        switch (name) {
            case "ready":
                connection.textContent = "Connected";
                this.#recall();
                break;
            case "connecting":
                connection.textContent = "Connecting…";
                break;
            case "waiting": {
                connection.textContent = "Not connected";
                // Hidden from screen readers, which would read it every second.
                const count = () => {
                    const seconds = Math.max(0, Math.ceil((until - performance.now()) / 1_000));
                    countdown.textContent = `next attempt in ${seconds} s`;
                };
                count();
                this.#timer = setInterval(count, 1_000);
                break;
            }
            case "closed":
                connection.textContent = error === undefined ? "Not connected" : `Closed: ${error.message}`;
                break;
        }
    }
}

let visit;

join.addEventListener("submit", (event) => {
    event.preventDefault();
    const [name, url] = [nameField.value.trim(), roomField.value.trim()];
    joinError.textContent = "";
    try {
        visit = new Visit(name, url);
    } catch (error) {
        joinError.textContent = `${error.message}.`;
        return;
    }
    memory.write("name", name);
    memory.write("room", url);
    notes.replaceChildren();
    join.hidden = true;
    room.hidden = false;
    leave.hidden = false;
    textField.focus();
});

composer.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = textField.value.trim();
    if (text === "") return;
    textField.value = "";
    visit.say(text);
});

leave.addEventListener("click", () => {
    visit.end();
    room.hidden = true;
    leave.hidden = true;
    retry.hidden = true;
    join.hidden = false;
    nameField.focus();
});

retry.addEventListener("click", () => visit.retry());

const parameters = new URLSearchParams(location.search);
const scheme = location.protocol === "https:" ? "wss" : "ws";
nameField.value = parameters.get("name") ?? memory.read("name") ?? "";
roomField.value = parameters.get("room") ?? memory.read("room") ?? `${scheme}://${location.hostname}:7000/rpc`;
