/// A handler's registration, by ``SocketClient/onPush(ofType:buffering:perform:)``.
///
/// Ends with ``cancel()`` or when the client is released. Letting go of this object changes nothing: the handler stays.
public final class PushSubscription: Sendable {
    private let mailbox: PushMailbox
    private let task: Task<Void, Never>

    /// - Parameter failed: Told of a handler that threw, with the push's type.
    init(
        _ mailbox: PushMailbox,
        perform handler: @escaping @Sendable (SocketPush) async throws -> Void,
        failed: @escaping @Sendable (UInt32, any Error) -> Void
    ) {
        self.mailbox = mailbox
        self.task = Task {
            let reading = PushReading(mailbox)
            while let push = await reading.next(isolation: nil), !Task.isCancelled {
                do {
                    try await handler(push)
                } catch {
                    // One that was cancelled has not failed.
                    if !Task.isCancelled { failed(push.type, error) }
                }
            }
        }
    }

    /// The handler is not called any more; what waits is thrown away. Where it runs at this moment, its Swift task is
    /// cancelled. Any number of times.
    public func cancel() {
        self.mailbox.cancel()
        self.task.cancel()
    }
}
