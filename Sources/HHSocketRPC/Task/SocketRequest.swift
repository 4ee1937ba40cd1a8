import HHSocket
import NIOCore

/// What to ask a server.
public struct SocketRequest: Sendable, Hashable {
    /// The RPC's name: 16 to 0x1FFFFFFF.
    public var type: UInt32
    /// The payload.
    public var body: ByteBuffer
    /// How long the whole call may take, from ``SocketTask/resume()`` on, waiting for a connection included; nil for the
    /// client's ``SocketClient/Configuration/timeout``.
    public var timeout: Duration?

    /// - Parameters:
    ///   - type: The RPC's name: 16 to 0x1FFFFFFF. Others fail with `invalidArgument`.
    ///   - body: The payload; empty by default.
    ///   - timeout: How long the whole call may take; nil, the default, for the client's timeout.
    public init(type: UInt32, body: ByteBuffer = ByteBuffer(), timeout: Duration? = nil) {
        self.type = type
        self.body = body
        self.timeout = timeout
    }

    /// The same with a payload of bytes, such as `Data` or `[UInt8]`.
    public init(type: UInt32, body: some Collection<UInt8>, timeout: Duration? = nil) {
        self.init(type: type, body: ByteBuffer(bytes: body), timeout: timeout)
    }

    /// The same with a text's UTF-8 as payload.
    public init(type: UInt32, body: String, timeout: Duration? = nil) {
        self.init(type: type, body: ByteBuffer(string: body), timeout: timeout)
    }
}
