// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The maker of the calls of an ``APIManager``: a ``/HHSocketRPC/SocketClient``, or a replacement for it in tests of
/// screens without a server, such as a ``MockTransport``.
public protocol APITransport: AnyObject, Sendable {
    /// Makes a call and waits for its answer. The call ends soon after the task is cancelled, and with `timeout` after
    /// ``/HHSocketRPC/CallOptions/timeout``, which is never nil here.
    func data(for request: SocketRequest) async throws(SocketError) -> SocketResponse

    /// The time that a call may take if its request sets none; 8 s by default.
    var defaultTimeout: Duration { get }

    /// Runs `body` on the queue of completion handlers; on the calling thread not before this function has returned. By
    /// default that is the main queue on Apple's platforms, and elsewhere a serial queue shared by all transports with
    /// the default.
    func performCallback(_ body: @escaping @Sendable () -> Void)
}

private let sharedCallbackQueue = CallbackQueue.default

extension APITransport {
    public var defaultTimeout: Duration { .seconds(8) }

    public func performCallback(_ body: @escaping @Sendable () -> Void) { sharedCallbackQueue.run(body) }
}

extension SocketClient: APITransport {
    /// The client's ``/HHSocketRPC/ClientConfiguration/timeout``.
    public var defaultTimeout: Duration { self.configuredTimeout }

    /// Runs `body` on the configuration's callback queue, and not before this function has returned.
    public func performCallback(_ body: @escaping @Sendable () -> Void) { self.callBack(body) }
}
