// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A handler's registration, by ``SocketClient/onPush(ofType:buffering:perform:)``.
///
/// Ends with ``cancel()`` or when the client is released. Releasing this object has no effect: the handler stays.
public final class PushSubscription: Sendable {
    private let inbox: PushInbox
    private let task: Task<Void, Never>

    /// - Parameter failed: Called with the push's type and the error if the handler throws.
    init(
        _ inbox: PushInbox,
        perform handler: @escaping @Sendable (SocketPush) async throws -> Void,
        failed: @escaping @Sendable (UInt32, any Error) -> Void
    ) {
        self.inbox = inbox
        self.task = Task {
            let reader = inbox.makeReader()
            while let push = await reader.next(isolation: nil), !Task.isCancelled {
                do {
                    try await handler(push)
                } catch {
                    // A cancelled handler has not failed.
                    if !Task.isCancelled { failed(push.type, error) }
                }
            }
        }
    }

    /// Stops calling the handler, and discards the waiting pushes. If the handler is running, its Swift task is
    /// cancelled. May be called any number of times.
    public func cancel() {
        self.inbox.cancel()
        self.task.cancel()
    }
}
