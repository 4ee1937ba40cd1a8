extension SocketClient {
    /// The pushes of one type, from now on. Each call subscribes anew, and each subscription gets every push.
    ///
    /// Pushes that the server sends because of a call that was made after this returned are never missed. A push that
    /// is on its way while this is called may be.
    ///
    /// ```swift
    /// for await push in client.pushes(ofType: 2001) { … }
    /// ```
    ///
    /// - Parameters:
    ///   - type: The push's type.
    ///   - policy: What becomes of pushes that wait; by default the oldest are lost once 1,024 wait.
    public func pushes(ofType type: UInt32, buffering policy: PushBufferingPolicy = .default) -> SocketPushes {
        SocketPushes(self.core.subscribe(to: type, policy))
    }

    /// The pushes of every type, from now on, as ``pushes(ofType:buffering:)``.
    public func pushes(buffering policy: PushBufferingPolicy = .default) -> SocketPushes {
        SocketPushes(self.core.subscribe(to: nil, policy))
    }

    /// Has `handler` called with each push from now on, in a Swift task of its own, one after the other in order.
    ///
    /// An error that it throws is logged by the connection's logger, ``SocketConfiguration/logger``, as a warning with
    /// the metadata `type` and `error`, and counted in ``ClientStatistics/failedPushHandlers``; the handler goes on
    /// with the next push. A slow one loses pushes of its own, as `policy` says, and affects no other subscriber unless
    /// that is ``PushBufferingPolicy/suspendReading(_:)``. It should wait by `await` and not block its thread.
    ///
    /// The handler is kept until ``PushSubscription/cancel()``, or until the client is released and what had come by
    /// then has been handled. A handler that holds its client strongly keeps it from being released.
    ///
    /// - Parameters:
    ///   - type: The pushes' type; nil, the default, for all.
    ///   - policy: What becomes of pushes that wait; by default the oldest are lost once 1,024 wait.
    ///   - handler: Called with each push.
    /// - Returns: What ends it. Need not be kept.
    @discardableResult
    public func onPush(
        ofType type: UInt32? = nil,
        buffering policy: PushBufferingPolicy = .default,
        perform handler: @escaping @Sendable (SocketPush) async throws -> Void
    ) -> PushSubscription {
        PushSubscription(self.core.subscribe(to: type, policy), perform: handler) { [weak core] type, error in
            core?.pushHandlerFailed(type, error)
        }
    }
}
