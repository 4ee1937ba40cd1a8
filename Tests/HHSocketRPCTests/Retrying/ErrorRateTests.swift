// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Servers whose calls fail, over real TCP.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ErrorRateTests {
    /// Makes calls of which 15 %, three in twenty, are made by `wrong`, which gets the number of its earlier calls.
    private func call(_ client: SocketClient, _ count: Int, wrong: (Int) async throws -> Void) async throws {
        var ordinal = 0
        for number in 0..<count {
            if [3, 10, 17].contains(number % 20) {
                try await wrong(ordinal)
                ordinal += 1
            } else {
                _ = try? await client.data(for: SocketRequest(type: 101, body: "x"))
            }
        }
    }

    private func unknown(_ client: SocketClient) async {
        _ = try? await client.data(for: SocketRequest(type: 102))
    }

    private func server() async throws -> MockServer {
        let server = try await MockServer(.echo)
        server.on(102, .status(.unknown))
        server.on(103, .drop)
        return server
    }

    @Test func serverThatAnswersUnknownTooOftenIsLeftForTheOtherWhichStays() async throws {
        let bad = try await self.server()
        let good = try await MockServer(.echo)
        let (client, events) = SocketClient.connectingWithEvents(to: bad.endpoint, good.endpoint)
        try await self.call(client, 60) { _ in await self.unknown(client) }
        _ = try await first(of: events, "the verdict") {
            if case .serverFails(bad.endpoint, _, _) = $0 { true } else { false }
        }
        try await eventually("the other server") { "\(client.state)" == "ready, \(good.endpoint)" }
        try await self.call(client, 100) { _ in await self.unknown(client) }
        #expect("\(client.state)" == "ready, \(good.endpoint)")
        #expect(bad.acceptedCount == 1)
        #expect(client.history.description.contains(" calls to \(bad.endpoint) failed"))
    }

    @Test func cancelledCallsAreNoFaultOfTheServer() async throws {
        let first = try await self.server()
        let second = try await MockServer(.echo)
        let client = SocketClient.connecting(to: first.endpoint, second.endpoint)
        try await self.call(client, 120) { ordinal in
            let task = client.dataTask(with: SocketRequest(type: 103))
            task.resume()
            try await first.received(ordinal + 1, ofType: 103)
            task.cancel()
            try await eventually("the cancellation") { task.state == .completed }
        }
        #expect("\(client.state)" == "ready, \(first.endpoint)")
        #expect(second.acceptedCount == 0)
    }

    @Test func answersOfBusinessAreNoFaultEither() async throws {
        let first = try await self.server()
        first.on(102, .status(.noPermission))
        let second = try await MockServer(.echo)
        let client = SocketClient.connecting(to: first.endpoint, second.endpoint)
        try await self.call(client, 120) { _ in await self.unknown(client) }
        #expect(second.acceptedCount == 0)
    }

    @Test func singleServerIsOnlyReported() async throws {
        let server = try await self.server()
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        try await self.call(client, 60) { _ in await self.unknown(client) }
        _ = try await first(of: events, "the verdict") { if case .serverFails = $0 { true } else { false } }
        #expect("\(client.state)" == "ready, \(server.endpoint)")
        #expect(server.acceptedCount == 1)
    }

    @Test func disabledPolicyHasNoEffect() async throws {
        let bad = try await self.server()
        let good = try await MockServer(.echo)
        let client = SocketClient.connecting(to: bad.endpoint, good.endpoint) { $0.errorRatePolicy = nil }
        try await self.call(client, 120) { _ in await self.unknown(client) }
        #expect(good.acceptedCount == 0)
    }
}
