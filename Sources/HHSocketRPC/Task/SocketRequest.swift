import HHSocket
import NIOCore

/// What to ask a server.
public struct SocketRequest: Sendable, Hashable {
    /// The RPC's name: 16 to 0x1FFFFFFF in the standard format, in others what their layout leaves to applications.
    public var type: UInt32
    /// The payload.
    public var body: ByteBuffer
    /// How long the whole call may take, from ``SocketTask/resume()`` on, waiting for a connection included; nil for the
    /// client's ``SocketClient/Configuration/timeout``.
    public var timeout: Duration?
    /// What the wire format's custom header fields hold in this request, by name; fields that are not named here are as in
    /// the configuration. A name that the format does not have, or a value of another width, fails with `invalidArgument`.
    public var header: [String: [UInt8]]
    /// Which of the calls that wait leaves first, for a connection or behind a peer that does not read. Among calls that can
    /// leave at once it has no effect. `.default` by default.
    public var priority = FramePriority.default
    /// Whether the call waits, within its timeout, also where no attempt to connect is in progress: before `connect()`,
    /// between attempts, and without a network. It fails when nobody reconnects any more, as after `disconnect()`. Nil, the
    /// default, for the client's ``SocketClient/Configuration/waitsForConnectivity``.
    public var waitsForConnectivity: Bool?
    /// How long after the request has left the first byte of its answer may take to come; then the attempt fails with
    /// `timeout`, and is repeated if ``retryPolicy`` allows. Nil, the default, for the client's
    /// ``SocketClient/Configuration/firstResponseTimeout``.
    public var firstResponseTimeout: Duration?
    /// Whether the call is sent again when it fails; nil, the default, for the client's
    /// ``SocketClient/Configuration/retryPolicy``, which by default is none.
    public var retryPolicy: RetryPolicy?
    /// Whether running the request twice does no more than running it once, so that it may be sent again although the server
    /// may have run it. False by default.
    public var isIdempotent = false
    /// What the server is told along with a cancel, or when the call is not answered in time, such as what is to be undone;
    /// nothing by default. Only formats with a cancel frame carry it.
    public var cancellationBody: ByteBuffer?

    /// - Parameters:
    ///   - type: The RPC's name: 16 to 0x1FFFFFFF in the standard format. Others fail with `invalidArgument`.
    ///   - body: The payload; empty by default.
    ///   - timeout: How long the whole call may take; nil, the default, for the client's timeout.
    ///   - header: The custom header fields of other wire formats, by name; by default as in the configuration.
    public init(
        type: UInt32,
        body: ByteBuffer = ByteBuffer(),
        timeout: Duration? = nil,
        header: [String: [UInt8]] = [:]
    ) {
        self.type = type
        self.body = body
        self.timeout = timeout
        self.header = header
    }

    /// The same with a payload of bytes, such as `Data` or `[UInt8]`.
    public init(
        type: UInt32,
        body: some Collection<UInt8>,
        timeout: Duration? = nil,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(type: type, body: ByteBuffer(bytes: body), timeout: timeout, header: header)
    }

    /// The same with a text's UTF-8 as payload.
    public init(
        type: UInt32,
        body: String,
        timeout: Duration? = nil,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(type: type, body: ByteBuffer(string: body), timeout: timeout, header: header)
    }
}
