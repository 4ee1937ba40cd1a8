// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

/// The options of a call; those that are not set have their defaults.
///
/// ```swift
/// try await chat.send(note, options: .init(timeout: .seconds(3)))
/// ```
public struct CallOptions: Sendable, Hashable {
    /// Options that few calls set, behind one reference that is nil for the others, so that copying is cheap.
    @usableFromInline
    final class Rare: Sendable, Hashable {
        struct Values: Sendable, Hashable {
            var header: [String: [UInt8]] = [:]
            var waitsForConnectivity: Bool?
            var firstResponseTimeout: Duration?
            var retryPolicy: RetryPolicy?
            var isIdempotent: Bool?
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

        @usableFromInline
        static func == (one: Rare, other: Rare) -> Bool { one === other || one.values == other.values }
        @usableFromInline
        func hash(into hasher: inout Hasher) { hasher.combine(self.values) }
    }

    /// The time that the whole call may take, from ``SocketTask/resume()`` on, including the wait for a connection; nil
    /// for the client's ``ClientConfiguration/timeout``.
    public var timeout: Duration?
    /// The priority among calls that wait for a connection or behind a peer that does not read. It has no effect among
    /// calls that can be sent at once. `.default` by default.
    public var priority: FramePriority
    /// Whether the called method is idempotent according to its `.proto`. No effect if ``isIdempotent`` is set.
    @usableFromInline var isIdempotentMethod: Bool
    /// Nil if all of these options have their defaults.
    @usableFromInline var rare: Rare?

    private mutating func setOption<T>(_ path: WritableKeyPath<Rare.Values, T>, _ value: T) {
        var values = self.rare?.values ?? Rare.Values()
        values[keyPath: path] = value
        self.rare = values == Rare.Values() ? nil : Rare(values)
    }

    /// Whether only timeout and priority may differ from their defaults.
    var isPlain: Bool { self.rare == nil }

    /// The values of the wire format's custom header fields in this request, by name; fields that are not named here
    /// are as in the configuration. A name that the format does not have, or a value of another width, fails with
    /// `invalidArgument`.
    public var header: [String: [UInt8]] {
        get { self.rare?.values.header ?? [:] }
        set { self.setOption(\.header, newValue) }
    }

    /// Whether the call waits, within its timeout, even if no attempt to connect is in progress: before `connect()`,
    /// between attempts, and without a network. It fails once no reconnect follows, as after `disconnect()`. Nil, the
    /// default, for the client's ``ClientConfiguration/waitsForConnectivity``.
    public var waitsForConnectivity: Bool? {
        get { self.rare?.values.waitsForConnectivity }
        set { self.setOption(\.waitsForConnectivity, newValue) }
    }

    /// The time within which the first byte of the answer must arrive after the request was sent; otherwise the attempt
    /// fails with `timeout`, and is repeated if ``retryPolicy`` allows. Nil, the default, for the client's
    /// ``ClientConfiguration/firstResponseTimeout``.
    public var firstResponseTimeout: Duration? {
        get { self.rare?.values.firstResponseTimeout }
        set { self.setOption(\.firstResponseTimeout, newValue) }
    }

    /// The policy for sending the call again when it fails; nil, the default, for the client's
    /// ``ClientConfiguration/retryPolicy``, which by default is none.
    public var retryPolicy: RetryPolicy? {
        get { self.rare?.values.retryPolicy }
        set { self.setOption(\.retryPolicy, newValue) }
    }

    /// Whether running the request twice has the same effect as running it once, so that it may be sent again even if
    /// the server may have run it. By default true if the `.proto` says so by the method's `idempotency_level`; always
    /// true with an ``idempotencyKey``.
    public var isIdempotent: Bool {
        get {
            guard let values = self.rare?.values else { return self.isIdempotentMethod }
            return values.isIdempotent ?? self.isIdempotentMethod || values.idempotencyKey != nil
        }
        set { self.setOption(\.isIdempotent, newValue) }
    }

    /// Values for the server in addition to the body, by name, such as a tenant or a language; empty by default.
    ///
    /// Names are tokens of lower-case ASCII: letters, digits and any of `!#$%&'*+-.^_|~`, 1 to 128 bytes long. There
    /// may be 64 of them, and 16 KiB in total; otherwise the call fails with `invalidArgument`. Tracing adds its own if
    /// there is room. Metadata requires a connection that has agreed on ``/HHSocket/ProtocolFeature/metadata`` by hello
    /// (``ClientConfiguration/hello``); on another the attempt fails with `featureNotAgreed`, not sent.
    public var metadata: [String: String] {
        get { self.rare?.values.metadata ?? [:] }
        set { self.setOption(\.metadata, newValue) }
    }

    /// The time after which the answer is of no use; nil, the default, for none.
    ///
    /// The call then ends with `timeout`, or earlier if its ``timeout`` passes first. The request carries the number of
    /// milliseconds that remain when it is sent, so that the server need not begin, or continue, work whose result is
    /// not awaited; the time that the request then waits because a server does not read is not deducted. A deadline
    /// requires a connection that has agreed on ``/HHSocket/ProtocolFeature/metadata``, as ``metadata`` does. A
    /// deadline that an interceptor sets is sent to the server and limits the attempt, but the end of the call is
    /// determined by the original request.
    public var deadline: NIODeadline? {
        get { self.rare?.values.deadline }
        set { self.setOption(\.deadline, newValue) }
    }

    /// A name of this request that is unique among all of the application's, 1 to 128 bytes of UTF-8, such as a UUID: a
    /// server that receives it again repeats its first answer, and runs nothing. The request is therefore idempotent
    /// (``isIdempotent``), and a retry policy may send it again. Nil, the default, for none.
    ///
    /// If the key has another length, the call fails with `invalidArgument`. A key requires a connection that has
    /// agreed on ``/HHSocket/ProtocolFeature/idempotency`` by hello; on another the attempt fails with
    /// `featureNotAgreed`, not sent.
    public var idempotencyKey: String? {
        get { self.rare?.values.idempotencyKey }
        set { self.setOption(\.idempotencyKey, newValue) }
    }

    /// Whether the body is compressed before it is sent. Nil, the default, for the client's
    /// ``ClientConfiguration/compression``.
    ///
    /// True compresses a body of any length that becomes smaller by it, and requires a connection that has agreed on
    /// ``/HHSocket/ProtocolFeature/compression`` by hello; on another the attempt fails with `featureNotAgreed`, not
    /// sent.
    public var compresses: Bool? {
        get { self.rare?.values.compresses }
        set { self.setOption(\.compresses, newValue) }
    }

    /// Whether the call skips the client's interceptors, such as one that signs in. False by default.
    public var skipsInterceptors: Bool {
        get { self.rare?.values.skipsInterceptors ?? false }
        set { self.setOption(\.skipsInterceptors, newValue) }
    }

    /// The number of bytes of the names and values of metadata.
    var metadataLength: Int {
        guard let values = self.rare?.values else { return 0 }
        return WireMetadata.length(of: values.metadata)
    }

    /// Whether any option is sent as metadata.
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

    /// - Parameter timeout: The time that the whole call may take; nil, the default, for the client's timeout.
    @inlinable
    public init(timeout: Duration? = nil) {
        self.timeout = timeout
        self.priority = .default
        self.isIdempotentMethod = false
        self.rare = nil
    }
}
