#if Outbox
public import HHSocketRPC

/// How messages leave. A ``HHSocketRPC/SocketClient`` is one by ``Outbox/init(at:client:configuration:)``; another may
/// be made for tests, or to route topics to different servers.
public protocol OutboxTransport: Sendable {
    /// Sends a request and waits for its answer. Cancelling the Swift task gives it up.
    ///
    /// - Parameter request: It has an idempotency key, without which it must not be sent, and a timeout.
    /// - Throws: `SocketError`, whose `delivery` says how far it got.
    func send(_ request: SocketRequest) async throws(SocketError) -> SocketResponse

    /// Whether messages can leave: at once, and each time a connection is ready (true) or lost (false). True after true
    /// is another connection. When it ends nothing is sent any more.
    var connectivity: AsyncStream<Bool> { get }
}

struct ClientTransport: OutboxTransport {
    let client: SocketClient

    func send(_ request: SocketRequest) async throws(SocketError) -> SocketResponse {
        try await self.client.data(for: request)
    }

    var connectivity: AsyncStream<Bool> {
        // Before the state is looked at: what happens later is among them.
        let events = self.client.events
        let client = WeakClient(self.client)
        // The newest alone matters in the end.
        let (stream, continuation) = AsyncStream.makeStream(of: Bool.self, bufferingPolicy: .bufferingNewest(16))
        let task = Task {
            continuation.yield(client.isReady)
            for await event in events {
                switch event {
                case .connected, .switched: continuation.yield(true)
                // Else by the state, which has changed before its event comes; such as while a connection drains.
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

/// The stream above must not keep the client.
private final class WeakClient: Sendable {
    /// Proof of `nonisolated(unsafe)`: never changed after `init`, but by the runtime when the client goes, which is
    /// safe from any thread.
    nonisolated(unsafe) private weak var client: SocketClient?

    init(_ client: SocketClient) {
        self.client = client
    }

    var isReady: Bool {
        if case .ready = self.client?.state { true } else { false }
    }
}
#endif
