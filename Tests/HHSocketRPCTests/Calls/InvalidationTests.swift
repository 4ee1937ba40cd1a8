// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The end of a client that lets its calls complete, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct InvalidationTests {
    @Test func callsOfBeforeCompleteThenTheConnectionIsClosed() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .echo.delayed(by: .milliseconds(500)))
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        let tasks = (0..<10).map { client.dataTask(with: SocketRequest(type: 102, body: "\($0)")) }
        for task in tasks { task.resume() }
        try await server.received(10, ofType: 102)
        client.finishTasksAndInvalidate()
        let refused = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(refused.code == .cancelled)
        #expect(refused.notExecuted)
        #expect(refused.message.contains("finishTasksAndInvalidate"))
        try await eventually("the answers") { tasks.allSatisfy { $0.state == .completed } }
        #expect(tasks.map { $0.response?.string } == (0..<10).map { "\($0)" })
        try await withDeadline("the end of the events") { for await _ in events {} }
        try await server.ended(connection: 0)
        #expect(server.received.filter { $0.type == 101 }.isEmpty)
    }

    @Test func aClientWithoutCallsIsClosedAtOnceAndTakesNoMore() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        client.finishTasksAndInvalidate()
        client.finishTasksAndInvalidate()
        try await server.ended(connection: 0)
        let refused = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(refused.code == .cancelled)
        client.connect()
        #expect(server.acceptedCount == 1)
    }

    @Test func callThatWaitsForAServerEndsByItsTimeout() async throws {
        let client = SocketClient.connecting(to: try await MockServer.closedEndpoint())
        var request = SocketRequest(type: 101, timeout: .milliseconds(200))
        request.waitsForConnectivity = true
        let events = client.events
        let task = client.dataTask(with: request)
        task.resume()
        client.finishTasksAndInvalidate()
        try await eventually("the timeout") { task.state == .completed }
        #expect(task.error?.code == .timeout)
        try await withDeadline("the end of the events") { for await _ in events {} }
    }
}
