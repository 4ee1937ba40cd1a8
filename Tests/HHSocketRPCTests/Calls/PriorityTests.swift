// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The order in which calls are sent, over real TCP.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PriorityTests {
    private func request(_ type: UInt32, _ priority: FramePriority) -> SocketRequest {
        var request = SocketRequest(type: type)
        request.priority = priority
        return request
    }

    @Test func urgentCallOvertakesThoseThatWaitForASlowServer() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(.stopReading)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.heartbeat = nil }
        try await eventually("ready") { if case .ready = client.state { true } else { false } }
        let body = ByteBuffer(repeating: 7, count: 16 << 20)
        var calls = [client.dataTask(with: SocketRequest(type: 100, body: body))]
        for (type, priority) in [(101, .default), (102, .low), (103, .default), (104, .high)]
            as [(UInt32, FramePriority)]
        {
            calls.append(client.dataTask(with: self.request(type, priority)))
        }
        for call in calls { call.resume() }
        // Submitted last, and rejected immediately: by then all others are in the queue.
        let last = client.dataTask(with: SocketRequest(type: 1))
        last.resume()
        try await eventually("the last") { last.state == .completed }
        try await server.connection(0).perform(.wakeUp)
        try await eventually("all answers") { [calls] in calls.allSatisfy { $0.state == .completed } }
        #expect(server.received.map(\.type) == [100, 104, 101, 103, 102])
        #expect(calls.allSatisfy { $0.response != nil })
    }

    @Test func urgentCallOvertakesThoseThatWaitForAConnection() async throws {
        let server = try await MockServer(.echo)
        let gate = Gate()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.gate = HandshakeGate { _ in try await gate.wait() }
        }
        try await server.connection(0)
        let calls = ([(101, .low), (102, .default), (103, .high)] as [(UInt32, FramePriority)]).map {
            client.dataTask(with: self.request($0, $1))
        }
        for call in calls { call.resume() }
        let last = client.dataTask(with: SocketRequest(type: 1))
        last.resume()
        try await eventually("the last") { last.state == .completed }
        gate.open()
        #expect(try await server.received(3).map(\.type) == [103, 102, 101])
    }
}
