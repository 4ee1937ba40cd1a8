// SPDX-License-Identifier: Apache-2.0
import ChatModel
import Foundation
import HHSocketRPC
import HHSocketTesting
import Testing

/// The error of a test that waited too long.
struct Unfulfilled: Error, CustomStringConvertible {
    var description: String
}

/// Waits until a condition holds, at most for a minute.
@MainActor func eventually(_ what: String, _ condition: @MainActor () -> Bool) async throws {
    let end = ContinuousClock.now + .seconds(60)
    while !condition() {
        guard ContinuousClock.now < end else { throw Unfulfilled(description: "\(what) did not happen") }
        try await Task.sleep(for: .milliseconds(2))
    }
}

/// Fetches tokens `token 1`, `token 2`, and so on, and counts them.
actor TokenSource {
    private(set) var count = 0
    private let lifetime: TimeInterval

    init(lifetime: TimeInterval = 3_600) {
        self.lifetime = lifetime
    }

    func next() -> SessionTokens.Token {
        self.count += 1
        return SessionTokens.Token("token \(self.count)", expires: Date(timeIntervalSinceNow: self.lifetime))
    }
}

/// A session of the app with a server of the test.
@MainActor struct TestedApp {
    let server: MockServer
    let session: ChatSession
    var model: ChatModel { self.session.model }

    /// - Parameter server: The server, with the rules of the test; it accepts hello.
    static func open(
        _ server: MockServer,
        source: TokenSource = TokenSource(),
        file: UnsentFile? = nil
    ) -> TestedApp {
        server.acceptHello()
        let tokens = SessionTokens { await source.next() }
        return self.open(server, tokens: tokens, file: file)
    }

    static func open(_ server: MockServer, tokens: SessionTokens, file: UnsentFile? = nil) -> TestedApp {
        var configuration = SocketClient.Configuration.chat(servers: [server.endpoint], tls: nil, tokens: tokens)
        configuration.socket.backoff = .immediate
        configuration.timeout = .seconds(60)
        let session = ChatSession(author: "ann", configuration: configuration, tokens: tokens, file: file)
        session.start()
        return TestedApp(server: server, session: session)
    }

    func close() async {
        await self.session.close()
        await self.server.shutdown()
    }
}

extension Chat_Note {
    init(_ number: UInt64, _ text: String) {
        self.init()
        self.number = number
        self.message.author = "bob"
        self.message.text = text
    }
}

extension Chat_History {
    init(_ notes: Chat_Note...) {
        self.init()
        self.notes = notes
    }
}

/// The types of frames that the tests look at: those of the service's methods, and that of hello (Docs/Protocol.md).
enum Types {
    static let hello: UInt32 = 3
    static let send = Chat_Chat.Methods.send.type
    static let recall = Chat_Chat.Methods.recall.type
}
