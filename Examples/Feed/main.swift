// SPDX-License-Identifier: Apache-2.0
#if Outbox
// A feed in the terminal, on everything that HHSocket has for apps: a manager of calls, a cache, pages, and an outbox.
//
//     swift run --traits Outbox feed-example
//
// Its server runs in the same process. Likes that were made offline are sent once the app is online again, even in the
// next run: they are in the file given as argument, or in a new one.
import Foundation
import HHSocketOutbox
import HHSocketApp
import HHSocketRPC
import HHSocketServer

/// Prints a line and flushes the output.
func tell(_ line: String) {
    FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}

/// The source of a page.
func text(_ source: ResponseSource) -> String {
    switch source {
    case .network: "from the server"
    case .cache, .stale: "from the cache"
    case .revalidated: "from the cache, and still right, says the server"
    }
}

let help = "list, more, refresh, like NUMBER, offline, online, pending, sent (waits until nothing is pending), quit"
let file =
    CommandLine.arguments.dropFirst().first
    ?? FileManager.default.temporaryDirectory.appendingPathComponent("feed-\(UUID().uuidString).sqlite").path

let server = try await FeedServer().open(port: 0)
var configuration = SocketClient.Configuration(servers: server.addresses)
// For revisions and idempotency keys.
configuration.hello = HelloPolicy()
let client = SocketClient(configuration: configuration)
client.connect()
let outbox = try await Outbox(at: file, client: client)
let screen = FeedScreen(client: client, cache: ResponseCache(), outbox: outbox)

@MainActor func show() async {
    for post in await screen.posts { tell("\(post.number). \(post.author): \(post.text) \(post.likes) like it") }
    tell("-- \(text(await screen.source)); \(await screen.hasMore ? "there is more" : "that is all")")
}

@MainActor func perform(_ command: [Substring]) async throws {
    switch command.first {
    case "list":
        try await screen.open()
        let profile = await screen.profile
        tell("\(profile.name): \(profile.likes) likes")
        await show()
    case "more":
        try await screen.loadMore()
        await show()
    case "refresh":
        try await screen.refresh()
        await show()
    case "like":
        guard command.count == 2, let number = UInt64(command[1]) else { return tell(help) }
        try await screen.like(number)
        tell("you like post \(number)")
    case "offline":
        client.disconnect()
    case "online":
        client.connect()
    case "pending":
        tell("\(outbox.snapshot.count) pending")
    case "sent":
        for await snapshot in outbox.snapshots where snapshot.count == 0 { break }
        tell("all is sent")
    default:
        tell(help)
    }
}

tell(help)
let fetched = try await screen.warmUp()
tell("fetched \(fetched.memberCount - fetched.failures.count) of \(fetched.memberCount) ahead")
while let line = readLine(), line != "quit" {
    do {
        try await perform(line.split(separator: " "))
    } catch {
        tell("(\((error as? SocketError).map { "\($0.code)" } ?? "\(error)"))")
    }
}
await outbox.close()
await client.close()
await server.shutdown(gracePeriod: .zero)
#endif
