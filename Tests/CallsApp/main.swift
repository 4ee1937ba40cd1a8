// SPDX-License-Identifier: Apache-2.0
// An app that makes a call of type 101 to 127.0.0.1, at the port of its argument, and prints the answer. It has the one
// import that calls require, and CallsAppTests shows what that links.
import HHSocketRPC

let port = CommandLine.arguments.last.flatMap { Int($0) } ?? 7000
let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: port)]))
client.connect()
print(try await client.data(for: SocketRequest(type: 101, body: "Ann")).string)
