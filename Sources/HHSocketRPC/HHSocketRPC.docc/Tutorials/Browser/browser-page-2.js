import { Client } from "./client.js";

const client = new Client("ws://127.0.0.1:7000/rpc");
client.onState((state) => { document.getElementById("state").textContent = state.name; });
client.onPush(2001, (payload) => show(new TextDecoder().decode(payload)));
client.connect();

try {
    const answer = await client.call(101, new TextEncoder().encode("Ann"), { timeout: 3_000 });
    show(new TextDecoder().decode(answer));
} catch (error) {
    show(`no answer: ${error.code}`);
}

function show(line) {
    const item = document.createElement("li");
    item.textContent = line;
    document.getElementById("lines").append(item);
}
