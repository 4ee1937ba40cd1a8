public import HHSocket
public import NIOCore

/// How one typed call is made; all is as by default where nothing else is said.
///
/// ```swift
/// try await chat.send(note, options: .init(timeout: .seconds(3)))
/// ```
/// Everything in it means what the property of the same name of ``SocketRequest`` does.
public struct CallOptions: Sendable, Hashable {
    /// A request without a type and a body.
    @usableFromInline package var request = SocketRequest(type: 0)

    /// - Parameter timeout: How long the whole call may take; nil, the default, for the client's timeout.
    public init(timeout: Duration? = nil) {
        self.request.timeout = timeout
    }

    /// ``SocketRequest/timeout``
    public var timeout: Duration? {
        get { self.request.timeout }
        set { self.request.timeout = newValue }
    }

    /// ``SocketRequest/priority``
    public var priority: FramePriority {
        get { self.request.priority }
        set { self.request.priority = newValue }
    }

    /// ``SocketRequest/header``
    public var header: [String: [UInt8]] {
        get { self.request.header }
        set { self.request.header = newValue }
    }

    /// ``SocketRequest/waitsForConnectivity``
    public var waitsForConnectivity: Bool? {
        get { self.request.waitsForConnectivity }
        set { self.request.waitsForConnectivity = newValue }
    }

    /// ``SocketRequest/firstResponseTimeout``
    public var firstResponseTimeout: Duration? {
        get { self.request.firstResponseTimeout }
        set { self.request.firstResponseTimeout = newValue }
    }

    /// ``SocketRequest/retryPolicy``
    public var retryPolicy: RetryPolicy? {
        get { self.request.retryPolicy }
        set { self.request.retryPolicy = newValue }
    }

    /// ``SocketRequest/isIdempotent``
    public var isIdempotent: Bool {
        get { self.request.isIdempotent }
        set { self.request.isIdempotent = newValue }
    }

    /// ``SocketRequest/cancellationBody``
    public var cancellationBody: ByteBuffer? {
        get { self.request.cancellationBody }
        set { self.request.cancellationBody = newValue }
    }

    /// ``SocketRequest/metadata``
    public var metadata: [String: String] {
        get { self.request.metadata }
        set { self.request.metadata = newValue }
    }

    /// ``SocketRequest/deadline``
    public var deadline: NIODeadline? {
        get { self.request.deadline }
        set { self.request.deadline = newValue }
    }

    /// ``SocketRequest/idempotencyKey``
    public var idempotencyKey: String? {
        get { self.request.idempotencyKey }
        set { self.request.idempotencyKey = newValue }
    }

    /// ``SocketRequest/compresses``
    public var compresses: Bool? {
        get { self.request.compresses }
        set { self.request.compresses = newValue }
    }

    /// The request for a call of `method`.
    ///
    /// - Throws: ``HHSocket/SocketError`` with the code `invalidArgument`: the message cannot be written.
    @inlinable
    func request<Request, Response>(
        _ method: MethodDescriptor<Request, Response>,
        _ message: Request
    ) throws(SocketError) -> SocketRequest {
        var request = self.request
        request.type = method.type
        do {
            request.body = try ByteBuffer(message: message)
        } catch {
            throw Self.cannotBeWritten(method.name, error)
        }
        return request
    }

    @usableFromInline
    package static func cannotBeWritten(_ method: String, _ error: any Error) -> SocketError {
        SocketError(
            .invalidArgument,
            message: "\(method) was not called, because the request cannot be written: \(error)",
            underlying: error
        )
    }
}
