// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// `Examples/Chat`, used by two people.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ChatExampleTests {
    private func start(_ arguments: [String]) throws -> Command {
        try Command(arguments, of: Command.executable("chat-example"), keepsInputOpen: true)
    }

    @Test func twoPeopleHearEachOther() async throws {
        let server = try self.start(["serve", "0"])
        defer { server.signal(SIGKILL) }
        let line = try #require(try await server.lines().first)
        let port = try #require(line.split(separator: ":").last.map(String.init))

        let alice = try self.start(["127.0.0.1", port, "alice"])
        defer { alice.signal(SIGKILL) }
        try alice.type("is anybody there?")
        try await alice.prints("(sent as 1)")

        // Bob joins later, and receives the earlier messages.
        let bob = try self.start(["127.0.0.1", port, "bob"])
        defer { bob.signal(SIGKILL) }
        try await bob.prints("1 alice: is anybody there?")
        try bob.type("I am")
        try await alice.prints("2 bob: I am")

        // A message that the server rejects is reported, and nothing else is lost.
        try bob.type("")
        try await bob.prints("(not sent: illegalLength")
        try bob.type("really")
        try await alice.prints("3 bob: really")
    }

    @Test func typingIsShown() async throws {
        let server = try self.start(["serve", "0"])
        defer { server.signal(SIGKILL) }
        let line = try #require(try await server.lines().first)
        let port = try #require(line.split(separator: ":").last.map(String.init))

        let alice = try self.start(["127.0.0.1", port, "alice"])
        defer { alice.signal(SIGKILL) }
        try alice.type("hello")
        try await alice.prints("(sent as 1)")
        // Bob has begun a line before he is connected.
        let bob = try Command(
            ["127.0.0.1", port, "bob"],
            of: Command.executable("chat-example"),
            input: Data("hel".utf8),
            keepsInputOpen: true
        )
        defer { bob.signal(SIGKILL) }
        try await alice.prints("(bob is typing)")
        try bob.type("lo alice")
        try await alice.prints("2 bob: hello alice")
        #expect(!bob.output.contains("typing"))
    }

    /// The room of `Examples/browser`.
    @Test func roomTakesWebSocketsOnTheSamePort() async throws {
        let server = try self.start(["serve", "tcp+ws://127.0.0.1:0/rpc", "http://127.0.0.1:8000"])
        defer { server.signal(SIGKILL) }
        let line = try #require(try await server.lines().first)
        let port = try #require(line.split(separator: ":").last.map(String.init))
        let url = "ws://127.0.0.1:\(port)/rpc"
        try await server.prints("and on \(url)")

        let alice = try self.start([url, "alice"])
        defer { alice.signal(SIGKILL) }
        try alice.type("over WebSocket")
        try await alice.prints("(sent as 1)")
        let bob = try self.start(["127.0.0.1", port, "bob"])
        defer { bob.signal(SIGKILL) }
        try await bob.prints("1 alice: over WebSocket")
        try bob.type("over TCP")
        try await alice.prints("2 bob: over TCP")
    }

    @Test func invalidAddressIsAnError() async throws {
        for arguments in [["serve", "wss://127.0.0.1:0/rpc"], ["http://127.0.0.1/rpc", "alice"]] {
            let outcome = try await self.start(arguments).outcome()
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: invalidArgument"), "\(outcome.errors)")
        }
    }
}
