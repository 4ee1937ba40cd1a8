// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Dispatch
import HHSocket
import TestSupport
import Testing

@testable import HHSocketTesting

/// Reactions for every open connection, where the system has established one that the mock has not accepted yet.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct EstablishedConnectionTests {
    /// Connects a client while the mock's loop stands still, begins `perform`, lets the loop go on, and calls `check`
    /// while the client is still connected.
    ///
    /// - Returns: The first bytes that the client receives.
    private func firstBytes(
        _ count: Int,
        from port: MockPort,
        _ perform: @escaping @Sendable () async -> Void,
        check: () -> Void
    ) async throws -> [UInt8] {
        let standstill = DispatchSemaphore(value: 0)
        port.loop.execute { standstill.wait() }
        let client = try BlockingClient(port: port.endpoint.port)
        let hasBegun = Gate()
        let performing = Task {
            hasBegun.open()
            await perform()
        }
        try await hasBegun.wait()
        for _ in 0..<100 { await Task.yield() }
        standstill.signal()
        await performing.value
        let bytes = try client.receive(count)
        withExtendedLifetime(client) { check() }
        return bytes
    }

    @Test func aMockServerPerformsOnThem() async throws {
        let server = try await MockServer()
        let type = try await self.firstBytes(4, from: server.parts.port) {
            await server.perform(.push(2001, "news"))
        } check: {
            #expect(server.connections.map(\.number) == [0])
        }
        #expect(type == [0, 0, 0x07, 0xD1])
        #expect(server.acceptedCount == 1)
        await server.shutdown()
    }

    @Test func aLineServerPerformsOnThem() async throws {
        let server = try await LineServer()
        let line = try await self.firstBytes(5, from: server.parts.port) {
            await server.perform(.line("news"))
        } check: {
            #expect(server.connections.map(\.number) == [0])
        }
        #expect(line == Array("news\n".utf8))
        await server.shutdown()
    }

    @Test func aBrokerPerformsOnThem() async throws {
        let broker = try await MockBroker()
        let end = try await self.firstBytes(1, from: broker.parts.port) {
            await broker.perform(.endsOfLines())
        } check: {
            #expect(broker.connections.map(\.number) == [0])
        }
        #expect(end == Array("\n".utf8))
        await broker.shutdown()
    }

    /// Nothing is waited for that cannot come, and nothing is counted that is no client.
    @Test func aMockWithoutClientsPerformsAtOnce() async throws {
        let server = try await MockServer()
        for _ in 0..<10 { await server.perform(.push(2001, "news")) }
        #expect(server.acceptedCount == 0)
        try await server.refuseConnections()
        await server.perform(.push(2001, "news"))
        try await server.acceptConnections()
        let client = try BlockingClient(port: server.endpoint.port)
        await server.perform(.push(2001, "news"))
        #expect(try client.receive(4) == [0, 0, 0x07, 0xD1])
        #expect(server.acceptedCount == 1)
        await server.shutdown()
        await server.perform(.push(2001, "news"))
    }
}
#endif
