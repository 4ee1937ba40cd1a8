// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// A server that sends more than a delegate's queue takes, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct DelegateBacklogTests {
    /// 256 MiB.
    private static let (count, size) = (4_096, 64 << 10)
    /// The backlog's limit, and the rest of the read that reaches it: 1 MiB and a frame that was incomplete before.
    private static let most = (CallbackBacklog.limit + (1 << 20)) / size + 1

    /// Records the numbers of pushes.
    private final class Recorder: SocketClientDelegate, SocketDelegate {
        let numbers = Watched<[Int?]>([])

        func client(_ client: SocketClient, didReceive push: SocketPush) { self.record(push.body) }
        func socket(_ socket: Socket, didReceive frame: Frame) {
            if frame.type == 2_001 { self.record(frame.payload) }
        }

        private func record(_ body: ByteBuffer) { self.numbers.withLockedValue { $0.append(body.floodNumber) } }
    }

    @Test func pushesThatTheDelegateDoesNotTakeAreNotRead() async throws {
        let server = try await FloodServer(pushes: Self.count, of: 2_001, bytes: Self.size)
        let queue = DispatchQueue(label: "main, which is held up")
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.callbackQueue = .queue(queue) }
        let recorder = Recorder()
        client.delegate = recorder
        _ = try await client.data(for: SocketRequest(type: 101))
        queue.suspend()
        _ = try await client.data(for: SocketRequest(type: FloodServer.floodType))
        try await eventually("the limit") { client.statistics.pushes * Self.size >= CallbackBacklog.limit }
        // Nothing is read: a call is not answered.
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101, timeout: .milliseconds(200)))
        }
        #expect(error.code == .timeout)
        #expect(client.statistics.pushes <= Self.most)
        queue.resume()
        try await recorder.numbers.wait("the flood") { $0.count == Self.count }
        #expect(recorder.numbers.current == Array(0..<Self.count))
        _ = try await client.data(for: SocketRequest(type: 101))
        try await server.close()
    }

    @Test func framesThatTheDelegateDoesNotTakeAreNotRead() async throws {
        let server = try await FloodServer(pushes: Self.count, of: 2_001, bytes: Self.size)
        let queue = DispatchQueue(label: "main, which is held up")
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.callbackQueue = .queue(queue)
        configuration.writePolicy.whenNotReady = .wait
        let socket = Socket(configuration: configuration)
        let recorder = Recorder()
        socket.delegate = recorder
        queue.suspend()
        socket.connect()
        try await socket.send(Frame(type: FloodServer.floodType, serial: 77))
        // The kernels of both ends hold some more. The rest is not sent within a time in which all could be.
        try await eventually("the limit") { server.left.withLockedValue { $0 } >= Self.most }
        try await Task.sleep(for: .milliseconds(500))
        let left = server.left.withLockedValue { $0 }
        #expect(left < Self.count / 2, "\(left) of \(Self.count) left")
        queue.resume()
        try await recorder.numbers.wait("the flood") { $0.count == Self.count }
        #expect(recorder.numbers.current == Array(0..<Self.count))
        try await server.close()
    }

    @Test func backlogIsFullBeyondItsLimitUntilHalfIsLeft() {
        let backlog = CallbackBacklog()
        let part = CallbackBacklog.limit / 8
        var changes: [Bool] = []
        for _ in 0..<10 { changes.append(backlog.add(bytes: part)) }
        // With the cost of callbacks, the eighth is over the limit.
        #expect(changes == [false, false, false, false, false, false, false, true, false, false])
        #expect(backlog.isFull)
        changes = []
        for _ in 0..<10 { changes.append(backlog.remove(bytes: part)) }
        #expect(changes == [false, false, false, false, false, false, true, false, false, false])
        #expect(!backlog.isFull)
    }
}
