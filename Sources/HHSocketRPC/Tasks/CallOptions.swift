public import HHSocket
public import NIOCore

/// How a call is made; all is as by default where nothing else is said.
///
/// ```swift
/// try await chat.send(note, options: .init(timeout: .seconds(3)))
/// ```
public struct CallOptions: Sendable, Hashable {
    /// Options that most calls leave as they are, in one reference that those do not have, so that each is cheap to
    /// hand on.
    private final class Rare: Sendable, Hashable {
        struct Values: Sendable, Hashable {
            var header: [String: [UInt8]] = [:]
            var waitsForConnectivity: Bool?
            var firstResponseTimeout: Duration?
            var retryPolicy: RetryPolicy?
            var isIdempotent = false
            var cancellationBody: ByteBuffer?
            var metadata: [String: String] = [:]
            var deadline: NIODeadline?
            var idempotencyKey: String?
            var compresses: Bool?
            var skipsInterceptors = false
        }

        let values: Values

        init(_ values: Values) {
            self.values = values
        }

        static func == (one: Rare, other: Rare) -> Bool { one === other || one.values == other.values }
        func hash(into hasher: inout Hasher) { hasher.combine(self.values) }
    }

    /// The time that the whole call may take, from ``SocketTask/resume()`` on, waiting for a connection included; nil
    /// for the client's ``SocketClient/Configuration/timeout``.
    public var timeout: Duration?
    /// Which of the calls that wait leaves first, for a connection or behind a peer that does not read. Among calls
    /// that can leave at once it has no effect. `.default` by default.
    public var priority = FramePriority.default
    /// Nil where all are as by default.
    private var rare: Rare?

    private mutating func setOption<T>(_ path: WritableKeyPath<Rare.Values, T>, _ value: T) {
        var values = self.rare?.values ?? Rare.Values()
        values[keyPath: path] = value
        self.rare = values == Rare.Values() ? nil : Rare(values)
    }

    /// Whether nothing but timeout and priority is other than by default.
    var isPlain: Bool { self.rare == nil }

    /// The values of the wire format's custom header fields in this request, by name; fields that are not named here
    /// are as in the configuration. A name that the format does not have, or a value of another width, fails with
    /// `invalidArgument`.
    public var header: [String: [UInt8]] {
        get { self.rare?.values.header ?? [:] }
        set { self.setOption(\.header, newValue) }
    }

    /// Whether the call waits, within its timeout, also where no attempt to connect is in progress: before `connect()`,
    /// between attempts, and without a network. It fails when nobody reconnects any more, as after `disconnect()`. Nil,
    /// the default, for the client's ``SocketClient/Configuration/waitsForConnectivity``.
    public var waitsForConnectivity: Bool? {
        get { self.rare?.values.waitsForConnectivity }
        set { self.setOption(\.waitsForConnectivity, newValue) }
    }

    /// The time from when the request was sent until the first byte of its answer arrives; then the attempt fails with
    /// `timeout`, and is repeated if ``retryPolicy`` allows. Nil, the default, for the client's
    /// ``SocketClient/Configuration/firstResponseTimeout``.
    public var firstResponseTimeout: Duration? {
        get { self.rare?.values.firstResponseTimeout }
        set { self.setOption(\.firstResponseTimeout, newValue) }
    }

    /// Whether the call is sent again when it fails; nil, the default, for the client's
    /// ``SocketClient/Configuration/retryPolicy``, which by default is none.
    public var retryPolicy: RetryPolicy? {
        get { self.rare?.values.retryPolicy }
        set { self.setOption(\.retryPolicy, newValue) }
    }

    /// Whether running the request twice does no more than running it once, so that it may be sent again although the
    /// server may have run it. False by default; always true with an ``idempotencyKey``.
    public var isIdempotent: Bool {
        get { self.rare.map { $0.values.isIdempotent || $0.values.idempotencyKey != nil } ?? false }
        set { self.setOption(\.isIdempotent, newValue) }
    }

    /// Values for the server beside the body, by name, such as a tenant or a language; empty by default.
    ///
    /// Names are tokens of lower-case ASCII: letters, digits and any of `!#$%&'*+-.^_|~`, 1 to 128 bytes long. There
    /// may be 64 of them, and 16 KiB in all; else the call fails with `invalidArgument`. Tracing adds what still has
    /// room. It takes a connection that has agreed on ``ProtocolFeature/metadata`` by hello
    /// (``SocketClient/Configuration/hello``); on another the attempt fails with `featureNotAgreed`, not sent.
    public var metadata: [String: String] {
        get { self.rare?.values.metadata ?? [:] }
        set { self.setOption(\.metadata, newValue) }
    }

    /// The moment from which on the answer is of no use; nil, the default, for none.
    ///
    /// The call ends with `timeout` then, or earlier where its ``timeout`` says so. The request carries the number of
    /// milliseconds that are left when it is sent, so that the server need not begin, or continue, work whose result is
    /// not awaited; the time that the request then waits behind a server that does not read is not deducted. A deadline
    /// requires a connection that has agreed on ``ProtocolFeature/metadata``, as ``metadata`` does. A deadline that an
    /// interceptor sets is sent to the server and limits the attempt, but the call ends as the original request says.
    public var deadline: NIODeadline? {
        get { self.rare?.values.deadline }
        set { self.setOption(\.deadline, newValue) }
    }

    /// A name of this request that is unique among all of the application's, 1 to 128 bytes of UTF-8, such as a UUID: a
    /// server that gets it again answers as it did the first time, and runs nothing. So the request is idempotent
    /// (``isIdempotent``), and a retry policy may send it again. Nil, the default, for none.
    ///
    /// Of another length the call fails with `invalidArgument`. It takes a connection that has agreed on
    /// ``ProtocolFeature/idempotency`` by hello; on another the attempt fails with `featureNotAgreed`, not sent.
    public var idempotencyKey: String? {
        get { self.rare?.values.idempotencyKey }
        set { self.setOption(\.idempotencyKey, newValue) }
    }

    /// Whether the body is compressed before it is sent. Nil, the default, for what the client's
    /// ``SocketClient/Configuration/compression`` says.
    ///
    /// True compresses a body of any length that becomes smaller by it, and takes a connection that has agreed on
    /// ``ProtocolFeature/compression`` by hello; on another the attempt fails with `featureNotAgreed`, not sent.
    public var compresses: Bool? {
        get { self.rare?.values.compresses }
        set { self.setOption(\.compresses, newValue) }
    }

    /// Whether the call passes by the client's interceptors, such as one that is made to sign in. False by default.
    public var skipsInterceptors: Bool {
        get { self.rare?.values.skipsInterceptors ?? false }
        set { self.setOption(\.skipsInterceptors, newValue) }
    }

    /// The number of bytes of the names and values of metadata.
    var metadataLength: Int {
        guard let values = self.rare?.values else { return 0 }
        return WireMetadata.length(of: values.metadata)
    }

    /// Whether it says something that is sent as metadata.
    var asksForMetadata: Bool {
        guard let values = self.rare?.values else { return false }
        return !values.metadata.isEmpty || values.deadline != nil || values.idempotencyKey != nil
    }

    /// The body of the cancel frame, which is sent when the call is cancelled or not answered in time, such as the work
    /// to undo; empty by default. Only formats with a cancel frame carry it.
    public var cancellationBody: ByteBuffer? {
        get { self.rare?.values.cancellationBody }
        set { self.setOption(\.cancellationBody, newValue) }
    }

    /// - Parameter timeout: How long the whole call may take; nil, the default, for the client's timeout.
    public init(timeout: Duration? = nil) {
        self.timeout = timeout
    }
}
