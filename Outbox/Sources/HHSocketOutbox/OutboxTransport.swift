// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import HHSocketRPC

/// A transport for messages. ``Outbox/init(at:client:configuration:)`` makes one of a ``/HHSocketRPC/SocketClient``;
/// others are for tests, or to route topics to different servers.
public protocol OutboxTransport: Sendable {
    /// Sends a request and waits for its answer. Cancelling the Swift task cancels the request.
    ///
    /// - Parameter request: The request, with an idempotency key, without which it must not be sent, and a timeout.
    /// - Throws: `SocketError`, whose `delivery` tells how far the request got.
    func send(_ request: SocketRequest) async throws(SocketError) -> SocketResponse

    /// A new stream of whether messages can be sent: immediately, and each time a connection is ready (true) or lost
    /// (false). True after true is another connection. After its end nothing is sent.
    var connectivity: AsyncStream<Bool> { get }
}

struct ClientTransport: OutboxTransport {
    let client: SocketClient

    func send(_ request: SocketRequest) async throws(SocketError) -> SocketResponse {
        try await self.client.data(for: request)
    }

    var connectivity: AsyncStream<Bool> {
        // Before the state is read, so that no later event is missed.
        let events = self.client.events
        let client = WeakClient(self.client)
        // Only the newest value matters in the end.
        let (stream, continuation) = AsyncStream.makeStream(of: Bool.self, bufferingPolicy: .bufferingNewest(16))
        let task = Task {
            continuation.yield(client.isReady)
            for await event in events {
                switch event {
                case .connected, .switched: continuation.yield(true)
                // The state decides, which has already changed; it may still be ready, such as while a connection
                // drains.
                case .disconnected, .closed, .gaveUp, .waiting: continuation.yield(client.isReady)
                default: break
                }
            }
            continuation.finish()
        }
        continuation.onTermination = { _ in task.cancel() }
        return stream
    }
}

/// A weak reference to the client, so that the stream above does not retain it.
private final class WeakClient: Sendable {
    /// Proof of `nonisolated(unsafe)`: never changed after `init` except by the runtime when the client is released,
    /// which is safe from any thread.
    nonisolated(unsafe) private weak var client: SocketClient?

    init(_ client: SocketClient) {
        self.client = client
    }

    var isReady: Bool {
        if case .ready = self.client?.state { true } else { false }
    }
}
#endif
