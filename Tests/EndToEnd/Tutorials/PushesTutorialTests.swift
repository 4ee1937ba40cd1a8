// SPDX-License-Identifier: Apache-2.0
// The package supports older Apple systems than Observation does.
#if os(Linux)
import HHSocketRPC
import HHSocketTesting
import Observation
import TestSupport
import Testing

@MainActor @Observable
final class NewsModel {
    private(set) var headlines: [String] = []
    private(set) var isOnline = false
    private let client: SocketClient

    init(client: SocketClient) {
        self.client = client
    }

    /// Keeps the headlines current, until its task is cancelled.
    func follow() async {
        for await push in self.client.pushes(ofType: 2001) {
            self.headlines.insert(push.string, at: 0)
        }
    }

    /// Keeps `isOnline` current, until its task is cancelled.
    func watchConnection() async {
        for await event in self.client.events {
            switch event {
            case .connected, .switched: self.isOnline = true
            case .disconnected, .gaveUp, .closed: self.isOnline = false
            default: break
            }
        }
    }
}

/// The model of the tutorial `Pushes-in-a-List`, which is the code above, word for word.
@MainActor @Suite(.tags(.io), .timeLimit(.minutes(5))) struct PushesTutorialTests {
    @Test func theStepIsInThisFile() throws {
        #expect(try DocumentationPage(tutorialCode: "Pushes/pushes-model-3.swift").shortcomings() == [])
    }

    @Test func headlinesComeAndTheConnectionIsShown() async throws {
        let server = try await MockServer()
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        let model = NewsModel(client: client)
        let following = Task { await model.follow() }
        let watching = Task { await model.watchConnection() }
        // Both tasks have subscribed once they have reached their first suspension.
        await Task.yield()
        client.connect()
        try await eventually("the model is online") { await model.isOnline }
        // The system accepts a connection before the server does.
        try await server.connection(0)

        await server.perform(.glued(.push(2001, "first"), .push(2001, "second")))
        try await eventually("the headlines are there") { await model.headlines == ["second", "first"] }

        await client.close()
        try await eventually("the model is offline") { await !model.isOnline }
        following.cancel()
        watching.cancel()
        await following.value
        await watching.value
    }
}
#endif
