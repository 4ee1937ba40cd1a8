// SPDX-License-Identifier: Apache-2.0
// The other side of Conformance/WebSocket/interop, by Debian's node-ws. Protocol and arguments are described there.
"use strict";

const fs = require("fs");
const http = require("http");
const https = require("https");
const readline = require("readline");
const WebSocket = require("ws");

const say = (record) => console.log(JSON.stringify(record));

// Sends each message and compares the answer, type and content; then closes with the code. Without a code it echoes until the
// other side closes.
function run(socket, code, messages) {
  const problems = [];
  let index = 0;
  const next = () => {
    if (index === messages.length) return socket.close(code, "bye");
    socket.send(messages[index], { binary: typeof messages[index] !== "string" });
  };
  socket.on("message", (data, binary) => {
    if (code === null) return socket.send(data, { binary });
    const sent = messages[index];
    if (sent === undefined || binary !== (typeof sent !== "string") || !Buffer.from(sent).equals(data))
      problems.push(`message ${index} came back as ${binary ? "binary" : "text"} ${data.toString("latin1").slice(0, 40)}`);
    index += 1;
    next();
  });
  let deflate = false;
  socket.on("error", (error) => problems.push(String(error)));
  socket.on("close", (received) => {
    if (code !== null && index !== messages.length) problems.push(`closed after ${index} messages`);
    say({ protocol: socket.protocol || null, deflate, problems, close: received === 1006 ? null : received });
  });
  const start = () => {
    deflate = socket.extensions.includes("permessage-deflate");
    if (code !== null) next();
  };
  if (socket.readyState === WebSocket.OPEN) start();
  else socket.on("open", start);
}

function server(messages, cert, key) {
  const listener = cert
    ? https.createServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) })
    : http.createServer();
  const sockets = new WebSocket.Server({
    server: listener,
    perMessageDeflate: { threshold: 0 },
    handleProtocols: (offered) => (offered.has("chat") ? "chat" : false),
  });
  sockets.on("connection", (socket, request) => {
    const code = request.url.split("/").pop();
    run(socket, code === "echo" ? null : Number(code), messages);
  });
  listener.listen(0, "127.0.0.1", () => say({ port: listener.address().port }));
}

function client(messages, url, code, authority) {
  const options = { perMessageDeflate: { threshold: 0 }, ca: authority && fs.readFileSync(authority) };
  run(new WebSocket(url, ["other", "chat"], options), Number(code), messages);
}

readline.createInterface({ input: process.stdin }).once("line", (line) => {
  const messages = JSON.parse(line).map((item) => ("text" in item ? item.text : Buffer.from(item.base64, "base64")));
  const [command, ...rest] = process.argv.slice(2);
  (command === "server" ? server : client)(messages, ...rest);
  process.stdin.destroy();
});
