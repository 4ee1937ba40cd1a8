// The client of Benchmarks/Scripts/bench-stomp on npm's @stomp/stompjs and ws. README.md describes its arguments and its output.
// The first two packages are found in NODE_PATH, or at STOMPJS.
'use strict';

const net = require('net');
const { Client } = require(process.env.STOMPJS || '@stomp/stompjs');

const [verb, address, destination, ...numbers] = process.argv.slice(2);
const [count, warmUp, length, outstanding] = numbers.map(Number);
const url = new URL(address);
const body = 'x'.repeat(length);
let started, cpuAtStart;

/** The part of a WebSocket that @stomp/stompjs requires, on TCP. */
class TCPSocket {
  constructor() {
    this.readyState = 0;
    this.socket = net.connect({ host: url.hostname, port: Number(url.port), noDelay: true });
    this.socket.on('connect', () => { this.readyState = 1; this.onopen({}); });
    this.socket.on('data', (data) => this.onmessage({ data }));
    this.socket.on('error', (error) => this.onerror(error));
    this.socket.on('close', () => { this.readyState = 3; this.onclose({ code: 1000 }); });
  }
  send(data) { this.socket.write(data); }
  close() { this.socket.end(); }
}

function webSocket() {
  const { WebSocket } = require('ws');
  return new WebSocket(address, ['v12.stomp'], { perMessageDeflate: false });
}

function fail(text) {
  console.error(text);
  process.exit(1);
}

function start() {
  started = process.hrtime.bigint();
  cpuAtStart = process.cpuUsage();
}

function end() {
  const seconds = Number(process.hrtime.bigint() - started) / 1e9;
  const { user, system } = process.cpuUsage(cpuAtStart);
  console.log(JSON.stringify({ seconds, cpu_s: (user + system) / 1e6 }));
  client.deactivate();
}

/** Sends until `outstanding` receipts are awaited; the measured messages wait for the last receipt of the warm-up. */
let sent = 0;
let confirmed = 0;
function send() {
  while (sent < warmUp + count && sent - confirmed < outstanding) {
    if (sent === warmUp) {
      if (confirmed < warmUp) return;
      start();
    }
    client.publish({ destination, body, headers: { receipt: String(sent) } });
    sent += 1;
  }
}

let seen = 0;
function receive() {
  client.subscribe(destination, (message) => {
    seen += 1;
    if (seen === warmUp) start();
    if (message.body.length !== length) fail(`a body has ${message.body.length} bytes`);
    message.ack(seen === warmUp + count ? { receipt: 'last' } : {});
  }, { ack: 'client-individual', 'prefetch-count': String(outstanding) });
}

const client = new Client({
  webSocketFactory: () => (url.protocol === 'ws:' ? webSocket() : new TCPSocket()),
  connectHeaders: { login: 'guest', passcode: 'guest', host: '/' },
  heartbeatIncoming: 0,
  heartbeatOutgoing: 0,
  reconnectDelay: 0,
  onConnect: () => (verb === 'send' ? send() : receive()),
  onStompError: (frame) => fail(frame.headers.message),
  onWebSocketError: (error) => fail(`the connection failed: ${error.message}`),
  onUnhandledReceipt: (frame) => {
    confirmed += 1;
    if (verb === 'receive' || confirmed === warmUp + count) end();
    else send();
  },
});
client.activate();
