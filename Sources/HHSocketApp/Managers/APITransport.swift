import Dispatch
import HHSocket

/// The maker of the calls of an ``APIManager``: a ``SocketClient``, or a replacement for it in tests of screens without
/// a server, such as a ``MockTransport``.
public protocol APITransport: AnyObject, Sendable {
    /// Makes a call and waits for its answer. It ends soon when the task is cancelled, and, with `timeout`, when
    /// ``SocketRequest/timeout`` is over, which is never nil here.
    func data(for request: SocketRequest) async throws(SocketError) -> SocketResponse

    /// The time that a call may take whose request sets none; 8 s by default.
    var defaultTimeout: Duration { get }

    /// Runs `body` where completion handlers run; on the thread that calls this not before it has returned. By default
    /// that is the main queue on Apple's platforms, and elsewhere a serial queue of all that use the default.
    func performCallback(_ body: @escaping @Sendable () -> Void)
}

private let sharedCallbackQueue = CallbackQueue.default

extension APITransport {
    public var defaultTimeout: Duration { .seconds(8) }

    public func performCallback(_ body: @escaping @Sendable () -> Void) { sharedCallbackQueue.run(body) }
}

extension SocketClient: APITransport {
    /// ``Configuration/timeout``
    public var defaultTimeout: Duration { self.configuredTimeout }

    /// Runs `body` where the configuration has completion handlers run, and not before this has returned.
    public func performCallback(_ body: @escaping @Sendable () -> Void) { self.callBack(body) }
}
