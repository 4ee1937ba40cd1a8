import Foundation
import TestSupport
import Testing

/// `Examples/Chat`, as two people would use it.
@Suite(.tags(.io)) struct ChatExampleTests {
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

        // Bob comes later, and hears what was said before.
        let bob = try self.start(["127.0.0.1", port, "bob"])
        defer { bob.signal(SIGKILL) }
        try await bob.prints("1 alice: is anybody there?")
        try bob.type("I am")
        try await alice.prints("2 bob: I am")

        // What the server refuses is told, and nothing else is lost.
        try bob.type("")
        try await bob.prints("(not sent: illegalLength")
        try bob.type("really")
        try await alice.prints("3 bob: really")
    }
}
