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
/// A request whose type is not in the table is answered ``HHSocket/Status/undefinedType`` (401). A handler that throws
/// a ``StatusError`` chooses the answer's status; any other error is answered ``HHSocket/Status/unknown`` (404) with an
/// empty body, so that nothing of the inside leaves the server.
///
/// Whoever runs handlers runs them the same way: a request whose deadline has passed is answered
/// ``HHSocket/Status/deadlineExceeded`` (408) without its handler; one whose deadline passes while its handler runs is
/// answered so, and the handler is cancelled.
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
        case asynchronous(Handler, HandlerExecutor)
    }

    private enum Registration: Sendable {
        case synchronous(SynchronousHandler)
        /// Nil: where the router says.
        case asynchronous(Handler, HandlerExecutor?)
        case blocking(SynchronousHandler)
    }

    /// The executor of asynchronous handlers whose registration names none, and of those that become asynchronous by
    /// ``use(_:)``; ``HandlerExecutor/global`` by default. Applies also to those that were registered before.
    public var handlerExecutor = HandlerExecutor.global
    private var registrations: [UInt32: Registration] = [:]
    private var middleware: [any ServerMiddleware] = []

    /// A router that knows no type.
    public init() {}

    /// Answers requests of `type` in a task each; the body returned is sent with status 200.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameters:
    ///   - type: One that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with another
    ///     one the server does not start.
    ///   - executor: Where its tasks run; nil, the default: as ``handlerExecutor`` says.
    ///   - handler: Answers a request.
    public mutating func handle(
        _ type: UInt32,
        on executor: HandlerExecutor? = nil,
        _ handler: @escaping Handler
    ) {
        self.register(.asynchronous(handler, executor), for: type)
    }

    /// Answers requests of `type` on the event loop, without a task: the fastest way, for work of microseconds.
    ///
    /// Every connection of the same event loop waits while `handler` runs, so it must not block. A request's body may
    /// be a part of the read buffer: a handler that keeps it for long should keep a copy.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameter type: One that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with
    ///   another one the server does not start.
    public mutating func handleSynchronously(_ type: UInt32, _ handler: @escaping SynchronousHandler) {
        self.register(.synchronous(handler), for: type)
    }

    /// Answers requests of `type` on a thread that may block, such as with a library that waits for a database.
    ///
    /// There are ``SocketServer/Configuration/blockingThreads`` of them; requests beyond wait, and are bounded by
    /// ``ServerLimits/maximumInFlight``. What blocks cannot be cancelled: a request that is cancelled while it waits
    /// for a thread does not run, and the answer of one that is cancelled later is dropped.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameter type: As with ``handle(_:on:_:)-swift.method``.
    public mutating func handleBlocking(_ type: UInt32, _ handler: @escaping SynchronousHandler) {
        self.register(.blocking(handler), for: type)
    }

    /// Puts `middleware` around every handler, also around those that are registered later.
    ///
    /// The first one is the outermost: it sees a request first and its answer last. With middleware every handler runs
    /// in a task, those of ``handleSynchronously(_:_:)-swift.method`` too. It does not see requests that are refused
    /// for a limit, nor, unless it asks for them (``ServerMiddleware/seesUnknownTypes``), those whose type no handler
    /// has.
    public mutating func use(_ middleware: any ServerMiddleware) {
        self.middleware.append(middleware)
    }

    private mutating func register(_ registration: Registration, for type: UInt32) {
        self.registrations[type] = registration
    }

    /// Every type that has a route.
    var types: some Collection<UInt32> { self.registrations.keys }

    /// Whether any handler needs threads that may block.
    var blocks: Bool {
        self.registrations.values.contains { if case .blocking = $0 { true } else { false } }
    }

    /// The handlers with what stands around them.
    ///
    /// - Parameter threads: Where those run that block.
    func routes(blockingOn threads: BlockingThreads) -> [UInt32: Route] {
        self.registrations.mapValues { registration in
            let handler: Handler
            var executor = self.handlerExecutor
            switch registration {
            case .synchronous(let synchronous):
                guard !self.middleware.isEmpty else { return .synchronous(synchronous) }
                handler = { try synchronous($0, $1) }
            case .asynchronous(let asynchronous, let chosen):
                handler = asynchronous
                executor = chosen ?? executor
            case .blocking(let blocking):
                handler = { request, context in try await threads.run { try blocking(request, context) } }
            }
            return .asynchronous(self.middleware.chain(to: handler), executor)
        }
    }

    /// Whether requests are answered only to clients whose identity is known, but for some types.
    var requiresIdentity: Bool { self.middleware.contains { $0 is AuthenticationMiddleware } }

    /// The route of requests whose type has no handler: the middleware that sees them, around a refusal. Nil where
    /// there is none; then they are refused at once.
    var unknownTypeRoute: Route? {
        let middleware = self.middleware.filter(\.seesUnknownTypes)
        guard !middleware.isEmpty else { return nil }
        return .asynchronous(middleware.chain { _, _ in throw StatusError(.undefinedType) }, self.handlerExecutor)
    }
}
