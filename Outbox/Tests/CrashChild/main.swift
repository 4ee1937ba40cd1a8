// SPDX-License-Identifier: Apache-2.0
#if Outbox
// A program that the tests kill. It enqueues numbered messages on several topics as fast as it can, and writes a line
// for each one that the outbox has promised to deliver. Without messages to enqueue it waits until none is left, and
// ends.
//
//     outbox-crash-child FILE PORT FIRST COUNT TOPICS

import Foundation
import HHSocketOutbox
import HHSocketRPC

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Makes one write for each line, so that a killed process leaves only complete lines.
func say(_ line: String) {
    let bytes = Array("\(line)\n".utf8)
    _ = write(STDOUT_FILENO, bytes, bytes.count)
}

let arguments = CommandLine.arguments
guard arguments.count == 6, let port = Int(arguments[2]), let start = Int(arguments[3]), let count = Int(arguments[4]),
    let topics = Int(arguments[5])
else {
    say("usage: outbox-crash-child FILE PORT FIRST COUNT TOPICS")
    exit(2)
}

var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: port)])
configuration.hello = HelloPolicy()
// The only server loses connections on purpose, and must not be banned.
configuration.socket.serverPolicy.failuresBeforeBan = .max
configuration.socket.backoff = Backoff(base: .milliseconds(5), cap: .milliseconds(50))
let client = SocketClient(configuration: configuration)
client.connect()

var limits = OutboxConfiguration()
limits.maximumConcurrency = topics
// The program enqueues faster than the server runs messages, and dies before the server has run many.
limits.maximumCount = 10_000_000
limits.backoff = Backoff(base: .milliseconds(5), cap: .milliseconds(50))

do {
    let outbox = try await Outbox(at: arguments[1], client: client, configuration: limits)
    say("up \(outbox.snapshot.count)")
    try await withThrowingTaskGroup(of: Void.self) { group in
        for topic in 0..<topics {
            group.addTask {
                for number in start..<start + count {
                    let message = OutboxMessage(type: 130, body: "\(topic) \(number)", topic: "topic \(topic)")
                    try await outbox.enqueue(message)
                    say("promised \(topic) \(number) \(message.key)")
                }
            }
        }
        try await group.waitForAll()
    }
    for await snapshot in outbox.snapshots where snapshot.count == 0 { break }
    await outbox.close()
    say("drained")
} catch {
    say("failed \(error)")
    exit(1)
}
#endif
