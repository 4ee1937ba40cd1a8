// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
public import HHSocketMessage
import NIOCore

/// A table that maps each frame type to the handler of its requests.
///
/// ```swift
/// var router = Router()
/// router.handle(101) { request, context in
///     try await store.save(request.body)
///     return ByteBuffer(string: "saved")
/// }
/// router.handleSynchronously(102) { request, _ in request.body }
/// ```
///
/// A request whose type is not in the table is answered ``/HHSocket/Status/undefinedType`` (401). A handler that throws
/// a ``StatusError`` chooses the answer's status; any other error is answered ``/HHSocket/Status/unknown`` (404) with
/// an empty body, so that no internal detail leaves the server, unless ``mapErrors(_:)`` maps it to another answer.
///
/// Routes that share middleware, admissions or limits form a ``group(_:limits:_:)``.
///
/// Deadlines apply to every kind of handler: a request whose deadline has passed is answered
/// ``/HHSocket/Status/deadlineExceeded`` (408) without running its handler; if the deadline passes while the handler
/// runs, the request is answered 408 and the handler is cancelled.
///
/// A router is a value: the server uses the copy that it was created with.
public struct Router: Sendable {
    /// Answers a request in its own Swift task.
    ///
    /// The task is cancelled when the client cancels the request, when its connection ends, and when a shutdown's grace
    /// period is over. The answer of a cancelled task is dropped.
    public typealias Handler = @Sendable (ServerRequest, ServerContext) async throws -> ByteBuffer
    /// Answers a request at once, on the connection's event loop.
    public typealias SynchronousHandler = @Sendable (ServerRequest, ServerContext) throws -> ByteBuffer

    /// A synchronous handler that need not put a short body into a buffer: it calls the function once with the body's
    /// bytes, which are valid until that returns, after it has handed the context to the application for the last time,
    /// and returns nil; or it returns the body.
    @usableFromInline
    typealias DirectHandler =
        @Sendable (
            ServerRequest, inout ServerContext, _ answer: (UnsafeRawBufferPointer, inout ServerContext) -> Void
        ) throws -> ByteBuffer?

    /// A handler with its middleware, admissions and rules.
    struct Route: Sendable {
        enum Handling: Sendable {
            case synchronous(SynchronousHandler, DirectHandler?)
            case asynchronous(Handler, HandlerExecutor)
            case stream(Handler, HandlerExecutor, StreamKind)
        }

        let handling: Handling
        let rules: RouteRules

        /// The handler and its direct form, if it is synchronous and only the connection decides whether it runs.
        var openHandlers: (handler: SynchronousHandler, direct: DirectHandler?)? {
            if self.rules.isOpen, case .synchronous(let handler, let direct) = self.handling {
                (handler, direct)
            } else {
                nil
            }
        }
    }

    enum Registration: Sendable {
        case synchronous(SynchronousHandler, DirectHandler?)
        case asynchronous(Handler)
        case blocking(SynchronousHandler)
        case stream(Handler, StreamKind)
    }

    /// The layers of a router or of a group.
    private struct Scope: Sendable {
        var middleware: [any ServerMiddleware] = []
        var admissions: [any ServerAdmission] = []
        var observers: [any RefusalObserver] = []
        var mapping = ErrorMapping()
        var limits = RouteLimits()
    }

    private struct Entry: Sendable {
        var registration: Registration
        /// The executor of the handler's task. Nil: the router's.
        var executor: HandlerExecutor?
        var limits: RouteLimits
        /// The groups that contain the route, innermost first.
        var groups: [Scope] = []
    }

    /// The executor of asynchronous handlers whose registration names none, and of those that become asynchronous by
    /// ``use(_:)``; ``HandlerExecutor/global`` by default. Applies also to those that were registered before.
    public var handlerExecutor = HandlerExecutor.global
    /// The limits on decoding requests' messages, whose bytes are untrusted, for methods that are registered
    /// afterwards; ``/HHSocketMessage/MessageLimits/standard`` by default. For messages of swift-protobuf only the
    /// depth applies.
    public var messageLimits = MessageLimits.standard
    private var entries: [UInt32: Entry] = [:]
    /// The limits of types by ``limit(_:to:)``, whether or not they are registered yet.
    private var limits: [UInt32: RouteLimits] = [:]
    private var scope = Scope()

    /// Creates a router without routes.
    public init() {}

    /// Answers each request of `type` in its own task; the body returned is sent with status 200.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameters:
    ///   - type: A type that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with any
    ///     other type the server does not start.
    ///   - executor: Where its tasks run; nil, the default: on ``handlerExecutor``.
    ///   - limits: The limits on requests of the type; by default those of the group and of the server.
    ///   - handler: Answers a request.
    public mutating func handle(
        _ type: UInt32,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping Handler
    ) {
        self.register(.asynchronous(handler), on: executor, limits, for: type)
    }

    /// Answers requests of `type` on the event loop, without a task: the fastest way, for work that takes microseconds.
    ///
    /// Every connection of the same event loop waits while `handler` runs, so it must not block. A request's body may
    /// be a slice of the read buffer: a handler that keeps it for long should keep a copy.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameters:
    ///   - type: A type that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with any
    ///     other type the server does not start.
    ///   - limits: As with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``. Only the longest body applies to requests that
    ///     are answered on the event loop.
    ///   - handler: The handler, which returns the body of the answer, or throws.
    public mutating func handleSynchronously(
        _ type: UInt32,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping SynchronousHandler
    ) {
        self.register(.synchronous(handler, nil), limits, for: type)
    }

    /// Registers a synchronous handler in two forms that do the same.
    @usableFromInline
    mutating func handleSynchronously(
        _ type: UInt32,
        limits: RouteLimits,
        _ handler: @escaping SynchronousHandler,
        direct: @escaping DirectHandler
    ) {
        self.register(.synchronous(handler, direct), limits, for: type)
    }

    /// Answers requests of `type` on a thread that may block, for example in a library that waits for a database.
    ///
    /// There are ``ServerConfiguration/blockingThreads`` such threads. Further requests wait, bounded by
    /// ``ServerLimits/maximumInFlightPerConnection`` and ``ServerLimits/maximumInFlight``. Clients take turns,
    /// by their identity or else their address, and so do the connections of each: requests of one connection run in
    /// order, and however many requests and connections of a client wait, a request of another client waits for at most
    /// one of them. Blocking work cannot be cancelled: a request that is cancelled while it waits for a
    /// thread does not run, and the answer of a request that is cancelled later is dropped.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameters:
    ///   - type: As with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``.
    ///   - limits: As with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``.
    ///   - handler: The handler, which returns the body of the answer, or throws.
    public mutating func handleBlocking(
        _ type: UInt32,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping SynchronousHandler
    ) {
        self.register(.blocking(handler), limits, for: type)
    }

    mutating func register(
        _ registration: Registration,
        on executor: HandlerExecutor? = nil,
        _ limits: RouteLimits,
        for type: UInt32
    ) {
        self.entries[type] = Entry(registration: registration, executor: executor, limits: limits)
    }

    /// Sets limits on the requests of one type, whether its handler is registered before or after. Limits that are nil
    /// are taken from the registration, the group and the server. The call has no effect on types for which neither
    /// this router nor a group has a handler.
    ///
    /// The types of a service are registered together; this function gives one of them its own limits.
    public mutating func limit(_ type: UInt32, to limits: RouteLimits) {
        self.limits[type] = limits
    }

    // MARK: Layers

    /// Adds `layer` to every handler, including those that are registered later.
    ///
    /// Middleware wraps handlers. The first one is the outermost: it sees a request first and its answer last. With
    /// middleware every handler runs in a task, including those of ``handleSynchronously(_:limits:_:)-(UInt32,_,_)``.
    /// Middleware does not see requests that are refused before a handler begins (``RefusalObserver`` does), nor,
    /// unless it asks for them (``ServerMiddleware/seesUnknownTypes``), requests whose type has no handler.
    ///
    /// Admissions run before handlers and all middleware, in the order in which they are added, and need no task.
    public mutating func use(_ layer: any RouterLayer) {
        if let middleware = layer as? any ServerMiddleware { self.scope.middleware.append(middleware) }
        if let admission = layer as? any ServerAdmission { self.scope.admissions.append(admission) }
        if let observer = layer as? any RefusalObserver { self.scope.observers.append(observer) }
    }

    /// Decides on requests by their headers; the closure is a ``ServerAdmission``.
    public mutating func admit(_ decide: @escaping @Sendable (RequestHeader, ServerSession) -> Admission) {
        self.use(ClosureAdmission(decide: decide))
    }

    /// Chooses the answers to errors that handlers and middleware throw and that are not a ``StatusError``, also for
    /// handlers that are registered later.
    ///
    /// An error that `map` answers is neither logged nor counted. An error for which it returns nil is treated as
    /// without a map: it is answered ``/HHSocket/Status/unknown`` (404), which is transient, and logged. Of several
    /// maps, the one of the innermost group is asked first, and within a group the first one that was added.
    ///
    /// - Parameter map: Returns the answer to an error; nil for an error that it does not map.
    public mutating func mapErrors(_ map: @escaping @Sendable (any Error) -> StatusError?) {
        self.scope.mapping.maps.append(map)
    }

    /// Registers handlers that share layers and limits.
    ///
    /// ```swift
    /// router.handle(110, signIn)
    /// router.group(AuthenticationMiddleware(), limits: RouteLimits(maximumBodyLength: 64 << 10)) { group in
    ///     group.handle(111, timeline)
    ///     group.register(Room())
    ///     group.group(limits: RouteLimits(timeout: .seconds(2))) { quick in
    ///         quick.handle(112, search)
    ///     }
    /// }
    /// ```
    ///
    /// The layers of a group are inside those of this router: its middleware sees a request later, and its admissions
    /// are asked later. The group inherits this router's ``handlerExecutor`` and ``messageLimits``, and may change
    /// them.
    ///
    /// - Parameters:
    ///   - layers: The group's layers, as for ``use(_:)``.
    ///   - limits: The limits on each type of the group.
    ///   - register: Registers the handlers with the group, which is a router.
    public mutating func group(
        _ layers: any RouterLayer...,
        limits: RouteLimits = RouteLimits(),
        _ register: (inout Router) throws -> Void
    ) rethrows {
        var group = Router()
        group.handlerExecutor = self.handlerExecutor
        group.messageLimits = self.messageLimits
        group.scope.limits = limits
        for layer in layers { group.use(layer) }
        try register(&group)
        for (type, entry) in group.entries {
            var entry = entry
            entry.groups.append(group.scope)
            if let limits = group.limits[type] { entry.limits = limits.or(entry.limits) }
            if group.handlerExecutor != self.handlerExecutor, entry.executor == nil {
                entry.executor = group.handlerExecutor
            }
            self.entries[type] = entry
        }
    }

    // MARK: For the server

    /// Every type that has a route.
    var types: some Collection<UInt32> { self.entries.keys }

    /// Whether it refuses clients without an identity most requests.
    var requiresIdentity: Bool { self.scope.admissions.contains(where: \.requiresIdentity) }

    /// The first invalid limits of a type, with the reason; nil if all are valid.
    var faultOfLimits: (type: UInt32, fault: String)? {
        for type in self.entries.keys.sorted() {
            guard let entry = self.entries[type], let fault = self.limits(of: type, entry).fault else { continue }
            return (type, fault)
        }
        return nil
    }

    private func limits(of type: UInt32, _ entry: Entry) -> RouteLimits {
        let own = self.limits[type].map { $0.or(entry.limits) } ?? entry.limits
        return entry.groups.reduce(own) { $0.or($1.limits) }.or(self.scope.limits)
    }

    /// The handlers with their middleware and admissions.
    ///
    /// - Parameters:
    ///   - threads: The threads for handlers that block.
    ///   - defaults: The limits of types that have none.
    func routes(blockingOn threads: BlockingThreads, defaults: RouteLimits = RouteLimits()) -> [UInt32: Route] {
        var routes: [UInt32: Route] = [:]
        for (type, entry) in self.entries {
            let scopes = entry.groups + [self.scope]
            let rules = RouteRules(
                admissions: scopes.reversed().flatMap(\.admissions),
                observers: scopes.reversed().flatMap(\.observers),
                limits: self.limits(of: type, entry).or(defaults)
            )
            let handling = self.handling(of: entry, within: scopes, blockingOn: threads)
            routes[type] = Route(handling: handling, rules: rules)
        }
        return routes
    }

    /// - Parameter scopes: The innermost first.
    private func handling(
        of entry: Entry,
        within scopes: [Scope],
        blockingOn threads: BlockingThreads
    ) -> Route.Handling {
        var handler: Handler
        var kind: StreamKind?
        switch entry.registration {
        case .synchronous(let synchronous, let direct):
            guard scopes.contains(where: { !$0.middleware.isEmpty }) else {
                // Not `reduce`: a closure that has passed through generic code is called through two others.
                var mapped = synchronous
                for scope in scopes { mapped = scope.mapping.around(mapped) }
                return .synchronous(mapped, scopes.contains { !$0.mapping.maps.isEmpty } ? nil : direct)
            }
            handler = { try synchronous($0, $1) }
        case .asynchronous(let asynchronous):
            handler = asynchronous
        case .blocking(let blocking):
            handler = { request, context in
                let session = context.session
                return try await threads.run(for: session.principalID, session.id) { try blocking(request, context) }
            }
        case .stream(let stream, let streamKind):
            handler = stream
            kind = streamKind
        }
        for scope in scopes {
            // Applied inside, so that middleware sees the answer, and outside, for errors that middleware throws.
            handler = scope.mapping.around(handler)
            guard !scope.middleware.isEmpty else { continue }
            handler = scope.mapping.around(scope.middleware.chain(to: handler))
        }
        let executor = entry.executor ?? self.handlerExecutor
        return kind.map { .stream(handler, executor, $0) } ?? .asynchronous(handler, executor)
    }

    /// The route of requests whose type has no handler: the middleware that sees them, around a refusal. Nil where they
    /// are refused at once.
    func unknownTypeRoute(defaults: RouteLimits = RouteLimits()) -> Route? {
        let middleware = self.scope.middleware.filter(\.seesUnknownTypes)
        guard !middleware.isEmpty || !self.scope.admissions.isEmpty else { return nil }
        let rules = RouteRules(
            admissions: self.scope.admissions,
            observers: self.scope.observers,
            limits: self.scope.limits.or(defaults)
        )
        guard !middleware.isEmpty else {
            return Route(handling: .synchronous({ _, _ in throw StatusError(.undefinedType) }, nil), rules: rules)
        }
        let handler = middleware.chain { _, _ in throw StatusError(.undefinedType) }
        return Route(handling: .asynchronous(self.scope.mapping.around(handler), self.handlerExecutor), rules: rules)
    }

    /// The observers of requests that are refused before their type is known or whose type has no handler.
    var observers: [any RefusalObserver] { self.scope.observers }
}
