import { Client } from "./client.js";

const client = new Client("ws://127.0.0.1:7000/rpc");
client.onState((state) => { document.getElementById("state").textContent = state.name; });
client.connect();
