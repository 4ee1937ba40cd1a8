// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore
import TestSupport

/// A client of each kind over WebSocket that follows the protocol: one makes calls, the other has messages echoed.
final class HonestWebSockets: Sendable {
    private let client: SocketClient
    private let link: WebSocketLink
    private let type: UInt32
    private let lost = NIOLockedValueBox(0)
    private let watching: [Task<Void, Never>]

    /// - Parameter type: A type whose handler echoes its request.
    init(to address: Endpoint, type: UInt32) throws {
        let lost = self.lost
        self.type = type
        self.client = SocketClient.connecting(
            to: try Endpoint(url: "ws://\(address.host):\(address.port)\(ServerUnderAttack.framesPath)")
        )
        self.link = WebSocketLink(
            configuration: try .init(url: "ws://\(address.host):\(address.port)\(ServerUnderAttack.messagesPath)")
        )
        let (calls, messages) = (self.client.events, self.link.events)
        self.watching = [
            Task {
                for await event in calls {
                    if case .disconnected = event { lost.withLockedValue { $0 += 1 } }
                }
            },
            Task {
                for await event in messages {
                    if case .closed = event { lost.withLockedValue { $0 += 1 } }
                }
            },
        ]
        self.link.connect()
    }

    /// The number of their connections.
    let count = 2

    /// The number of connections that they have lost.
    var losses: Int { self.lost.withLockedValue { $0 } }

    /// Has both of them answered `times` times.
    ///
    /// - Returns: The longest time that an answer took.
    /// - Throws: An error if an answer is wrong, or none arrives.
    @discardableResult
    func areAnswered(times: Int) async throws -> Duration {
        var longest = Duration.zero
        for number in 0..<times {
            let text = "honest \(number)"
            let begun = ContinuousClock.now
            let answer = try await self.client.data(for: SocketRequest(type: self.type, body: text))
            let answered = ContinuousClock.now
            try await self.link.send(WebSocketMessage(text))
            let echo = try await first(of: self.link.messages, "the echo of \(text)")
            longest = max(longest, answered - begun, ContinuousClock.now - answered)
            guard answer.string == text, echo.text == text else {
                throw Unexpected(description: "\(answer) and \(echo) for \(text)")
            }
        }
        return longest
    }

    func close() async {
        for task in self.watching { task.cancel() }
        self.link.disconnect()
        await self.client.close()
    }
}
