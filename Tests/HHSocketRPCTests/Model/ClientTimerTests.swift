// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketRPC

/// The client's one timer, in virtual time.
@Suite struct ClientTimerTests {
    /// While the first alarm was handled, a timer was set for the second, which had already been handled when it fired.
    @Test func alarmsOfOneMomentAreSeenToByOneTimer() {
        let (connection, client) = SimulatedConnection.make(SocketClient.Configuration(servers: []))
        connection.beginConnecting()
        connection.becomeReady()
        var request = SocketRequest(type: 101, body: "x")
        request.firstResponseTimeout = .seconds(1)
        request.isIdempotent = true
        request.retryPolicy = RetryPolicy(
            maximumAttempts: 2,
            backoff: Backoff(base: .seconds(1), cap: .seconds(1), jitter: 0)
        )
        for identifier in 0..<3 {
            SocketTask(identifier: identifier, request: request, engine: client.engine, completion: .nobody).resume()
        }
        connection.runSubmissions()
        #expect(connection.take().wire.filter { $0.hasPrefix("request") }.count == 3)
        let start = connection.time
        connection.advance(to: start + .seconds(1))
        #expect(connection.broken == nil)
        #expect(connection.timer == start + .seconds(2))
        connection.advance(to: start + .seconds(2))
        #expect(connection.broken == nil)
        #expect(connection.take().wire.filter { $0.hasPrefix("request") }.count == 3)
        connection.invalidate()
    }

    /// A server may begin its answer before it has received the whole request.
    @Test func anAnswerThatHasBegunIsNotWaitedFor() throws {
        let (connection, client) = SimulatedConnection.make(SocketClient.Configuration(servers: []))
        connection.beginConnecting()
        connection.becomeReady()
        var request = SocketRequest(type: 101, body: "a body that leaves in parts", timeout: .seconds(60))
        request.firstResponseTimeout = .seconds(1)
        let task = SocketTask(identifier: 0, request: request, engine: client.engine, completion: .nobody)
        connection.stopReading()
        task.resume()
        connection.runSubmissions()
        let key = try #require(client.engine.hot.table.keys.first)
        #expect(client.engine.hot.table.phase(of: key) == .queued)
        let serial = FrameSerial.firstRequest
        connection.turn {
            _ = client.engine.willSend(type: 101, serial: serial, on: ConnectionID(number: 1), in: &$0)
        }
        connection.turn {
            client.engine.isReceiving(serial, 1, of: 2, on: ConnectionID(number: 1), in: &$0)
        }
        connection.turn {
            client.engine.sent(
                type: 101,
                serial: serial,
                payloadBytes: request.body.readableBytes,
                on: ConnectionID(number: 1),
                in: &$0
            )
        }
        connection.advance(to: connection.time + .seconds(10))
        #expect(connection.broken == nil)
        #expect(task.state == .running)
        connection.invalidate()
    }
}
