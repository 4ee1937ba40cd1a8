// SPDX-License-Identifier: Apache-2.0
extension SocketClient {
    /// Subscribes to the pushes of one type, from now on. Each call makes a new subscription, which gets every push.
    ///
    /// Pushes that the server sends because of a call that was made after this returned are never missed. A push that
    /// arrives while this is called may be.
    ///
    /// ```swift
    /// for await push in client.pushes(ofType: 2001) { … }
    /// ```
    ///
    /// - Parameters:
    ///   - type: The push's type.
    ///   - policy: The treatment of waiting pushes; by default the oldest are dropped once 1,024 wait.
    public func pushes(ofType type: UInt32, buffering policy: PushBufferingPolicy = .default) -> SocketPushes {
        SocketPushes(self.host.pushes.subscribe(to: type, policy))
    }

    /// Subscribes to the pushes of every type, from now on, like ``pushes(ofType:buffering:)``.
    public func pushes(buffering policy: PushBufferingPolicy = .default) -> SocketPushes {
        SocketPushes(self.host.pushes.subscribe(to: nil, policy))
    }

    /// Calls `handler` with each push from now on, in a separate Swift task, one at a time and in order.
    ///
    /// An error that it throws is logged by the connection's logger, ``/HHSocket/SocketConfiguration/logger``, as a
    /// warning with the metadata `type` and `error`, and counted in ``ClientStatistics/failedPushHandlers``; the
    /// handler is then called with the next push. A slow handler loses its own pushes, according to `policy`, and does
    /// not affect other subscribers unless the policy is ``PushBufferingPolicy/suspendReading(_:)``. A handler should
    /// wait with `await` and not block its thread.
    ///
    /// The handler is retained until ``PushSubscription/cancel()``, or until the client is released and the pushes that
    /// had arrived by then have been handled. A handler that retains its client prevents its release.
    ///
    /// - Parameters:
    ///   - type: The pushes' type; nil, the default, for all.
    ///   - policy: The treatment of waiting pushes; by default the oldest are dropped once 1,024 wait.
    ///   - handler: Called with each push.
    /// - Returns: The subscription, with which to end it. It need not be kept.
    @discardableResult
    public func onPush(
        ofType type: UInt32? = nil,
        buffering policy: PushBufferingPolicy = .default,
        perform handler: @escaping @Sendable (SocketPush) async throws -> Void
    ) -> PushSubscription {
        PushSubscription(self.host.pushes.subscribe(to: type, policy), perform: handler) {
            [weak pushes = self.host.pushes] type, error in
            pushes?.handlerFailed(type, error)
        }
    }
}
