import HHSocket
import NIOCore

/// Which code answers which request: a table from frame type to handler.
///
/// ```swift
/// var router = Router()
/// router.handle(101) { request, context in
///     try await store.save(request.body)
///     return ByteBuffer(string: "saved")
/// }
/// router.handleSynchronously(102) { request, _ in request.body }
/// ```
/// A request whose type is not in the table is answered ``HHSocket/Status/undefinedType`` (401). A handler that throws a
/// ``StatusError`` chooses the answer's status; any other error is answered ``HHSocket/Status/unknown`` (404) with an
/// empty body, so that nothing of the inside leaves the server.
///
/// A router is a value: the server works on the copy it was made with.
public struct Router: Sendable {
    /// Answers a request in a Swift task of its own.
    ///
    /// The task is cancelled when the client cancels the request, when its connection ends, and when a shutdown's grace
    /// is over. The answer of a cancelled task is dropped.
    public typealias Handler = @Sendable (ServerRequest, ServerContext) async throws -> ByteBuffer
    /// Answers a request at once, on the connection's event loop.
    public typealias SynchronousHandler = @Sendable (ServerRequest, ServerContext) throws -> ByteBuffer

    enum Route: Sendable {
        case synchronous(SynchronousHandler)
        case asynchronous(Handler)
    }

    private var routes: [UInt32: Route] = [:]

    /// A router that knows no type.
    public init() {}

    /// Answers requests of `type` in a task each; the body returned is sent with status 200.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameter type: One that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with
    ///   another one the server does not start.
    public mutating func handle(_ type: UInt32, _ handler: @escaping Handler) {
        self.register(.asynchronous(handler), for: type)
    }

    /// Answers requests of `type` on the event loop, without a task: the fastest way, for work of microseconds.
    ///
    /// Every connection of the same event loop waits while `handler` runs, so it must not block. A request's body may be
    /// a part of the read buffer: a handler that keeps it for long should keep a copy.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameter type: One that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with
    ///   another one the server does not start.
    public mutating func handleSynchronously(_ type: UInt32, _ handler: @escaping SynchronousHandler) {
        self.register(.synchronous(handler), for: type)
    }

    private mutating func register(_ route: Route, for type: UInt32) {
        self.routes[type] = route
    }

    /// Every type that has a route.
    var types: some Collection<UInt32> { self.routes.keys }

    func route(for type: UInt32) -> Route? {
        self.routes[type]
    }
}

/// A request as its handler sees it.
public struct ServerRequest: Sendable {
    /// The RPC's name.
    public var type: UInt32
    /// What joins the answer to the request; unique among those in flight on one connection, and only there.
    public var serial: UInt32
    /// The payload; its checksum was right.
    public var body: ByteBuffer
    /// The custom fields of the request's header, by name; empty in formats that have none.
    public var header: [String: [UInt8]] = [:]
}

/// Where a request came from.
public struct ServerContext: Sendable {
    final class Connection: Sendable {
        let id: UInt64
        let remoteAddress: SocketAddress?
        let eventLoop: any EventLoop

        init(id: UInt64, remoteAddress: SocketAddress?, eventLoop: any EventLoop) {
            self.id = id
            self.remoteAddress = remoteAddress
            self.eventLoop = eventLoop
        }
    }

    // One reference, so that making a context for each request allocates nothing.
    let connection: Connection

    /// A number that no other connection of this server has or had.
    public var connectionID: UInt64 { self.connection.id }
    /// The client's address, where the system told it.
    public var remoteAddress: SocketAddress? { self.connection.remoteAddress }
    /// The event loop of the connection. Synchronous handlers run on it; it must never be blocked.
    public var eventLoop: any EventLoop { self.connection.eventLoop }
}

/// Thrown by a handler to answer with another status than 200.
public struct StatusError: Error, Hashable, Sendable {
    /// The answer's status.
    public var status: Status
    /// The answer's payload; the client finds it in its error.
    public var body: ByteBuffer

    /// - Parameters:
    ///   - status: The answer's status, any 32 bits; those that are not listed in ``HHSocket/Status`` reach the client
    ///     as the code `server(status)`.
    ///   - body: The answer's payload; empty by default.
    public init(_ status: Status, body: ByteBuffer = ByteBuffer()) {
        self.status = status
        self.body = body
    }
}
