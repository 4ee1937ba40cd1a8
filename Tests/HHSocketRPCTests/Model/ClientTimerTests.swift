import HHSocket
import NIOCore
import Testing

@testable import HHSocketRPC

/// The client's one timer, in virtual time.
@Suite struct ClientTimerTests {
    /// While the first of them was seen to, a timer was set for the second, which had been seen to when it fired.
    @Test func alarmsOfOneMomentAreSeenToByOneTimer() {
        let connection = SimulatedConnection(format: .standard)
        let client = ClientCore(configuration: SocketClient.Configuration(servers: []), socket: connection)
        connection.consumer = client
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
            SocketTask(identifier: identifier, request: request, client: client, completion: .nobody).resume()
        }
        connection.runSubmissions()
        #expect(connection.take().wire.filter { $0.hasPrefix("request") }.count == 3)
        let start = connection.now
        connection.advance(to: start + .seconds(1))
        #expect(connection.broken == nil)
        #expect(connection.timer == start + .seconds(2))
        connection.advance(to: start + .seconds(2))
        #expect(connection.broken == nil)
        #expect(connection.take().wire.filter { $0.hasPrefix("request") }.count == 3)
        connection.invalidate()
    }
}
