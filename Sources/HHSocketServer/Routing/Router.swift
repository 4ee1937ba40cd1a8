// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketMessage
import NIOCore

/// Which code answers which request: a table from frame type to handler.
///
/// ```swift var router = Router() router.handle(101) { request, context in try await store.save(request.body) return
/// ByteBuffer(string: "saved") } router.handleSynchronously(102) { request, _ in request.body } ``` A request whose
/// type is not in the table is answered ``/HHSocket/Status/undefinedType`` (401). A handler that throws a
/// ``StatusError`` chooses the answer's status; any other error is answered ``/HHSocket/Status/unknown`` (404) with an
/// empty body, so that nothing of the inside leaves the server, unless ``mapErrors(_:)`` has another answer to it.
///
/// Routes that have middleware, admissions or limits in common are a ``group(_:limits:_:)``.
///
/// Whoever runs handlers runs them the same way: a request whose deadline has passed is answered
/// ``/HHSocket/Status/deadlineExceeded`` (408) without its handler; one whose deadline passes while its handler runs is
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

    /// A handler with what stands around it and before it.
    struct Route: Sendable {
        enum Handling: Sendable {
            case synchronous(SynchronousHandler)
            case asynchronous(Handler, HandlerExecutor)
            case stream(Handler, HandlerExecutor, StreamKind)
        }

        let handling: Handling
        let rules: RouteRules

        /// The handler, if it is synchronous and nothing but the connection has a say in whether it runs.
        var openHandler: SynchronousHandler? {
            if self.rules.isOpen, case .synchronous(let handler) = self.handling { handler } else { nil }
        }
    }

    enum Registration: Sendable {
        case synchronous(SynchronousHandler)
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
        /// Nil: where the router says.
        var executor: HandlerExecutor?
        var limits: RouteLimits
        /// Those of the groups that it is in, the innermost first.
        var groups: [Scope] = []
    }

    /// The executor of asynchronous handlers whose registration names none, and of those that become asynchronous by
    /// ``use(_:)``; ``HandlerExecutor/global`` by default. Applies also to those that were registered before.
    public var handlerExecutor = HandlerExecutor.global
    /// The bounds of requests' messages, since their bytes may be a stranger's, for methods that are registered from
    /// then on; ``/HHSocketMessage/MessageLimits/standard`` by default. Messages of swift-protobuf have a depth alone.
    public var messageLimits = MessageLimits.standard
    private var entries: [UInt32: Entry] = [:]
    /// The limits of types by ``limit(_:to:)-(UInt32,_)``, whether or not they are registered yet.
    private var limits: [UInt32: RouteLimits] = [:]
    private var scope = Scope()

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
    ///   - limits: The bounds of requests of the type; by default those of the group and of the server.
    ///   - handler: Answers a request.
    public mutating func handle(
        _ type: UInt32,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping Handler
    ) {
        self.register(.asynchronous(handler), on: executor, limits, for: type)
    }

    /// Answers requests of `type` on the event loop, without a task: the fastest way, for work of microseconds.
    ///
    /// Every connection of the same event loop waits while `handler` runs, so it must not block. A request's body may
    /// be a part of the read buffer: a handler that keeps it for long should keep a copy.
    ///
    /// A later registration for the same type replaces the earlier one.
    ///
    /// - Parameters:
    ///   - type: One that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF; with another
    ///     one the server does not start.
    ///   - limits: As with ``handle(_:on:limits:_:)-(UInt32,_,_,_)``. Of these, ``RouteLimits/maximumBodyLength`` alone
    ///     applies to requests that are answered on the event loop.
    ///   - handler: The handler, which returns the body of the answer, or throws.
    public mutating func handleSynchronously(
        _ type: UInt32,
        limits: RouteLimits = RouteLimits(),
        _ handler: @escaping SynchronousHandler
    ) {
        self.register(.synchronous(handler), limits, for: type)
    }

    /// Answers requests of `type` on a thread that may block, such as with a library that waits for a database.
    ///
    /// There are ``SocketServer/Configuration/blockingThreads`` of them; requests beyond wait, and are bounded by
    /// ``ServerLimits/maximumInFlightPerConnection`` and ``ServerLimits/maximumInFlight``. Connections take turns:
    /// requests of one connection run in order, and however many of them wait, one of another connection waits for one
    /// of them at most. What blocks cannot be cancelled: a request that is cancelled while it waits for a thread does
    /// not run, and the answer of one that is cancelled later is dropped.
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

    /// Bounds requests of a type, whether its handler is registered before or after. Bounds that are nil are left to
    /// those of the registration, of the group and of the server. Without effect on types that no handler of this
    /// router or group has.
    ///
    /// Types of a service are registered together; this is how one of them gets bounds of its own.
    public mutating func limit(_ type: UInt32, to limits: RouteLimits) {
        self.limits[type] = limits
    }

    // MARK: Layers

    /// Puts `layer` around or before every handler, also those that are registered later.
    ///
    /// Middleware is around handlers. The first one is the outermost: it sees a request first and its answer last. With
    /// middleware every handler runs in a task, those of ``handleSynchronously(_:limits:_:)-(UInt32,_,_)`` too. It does
    /// not see requests that are refused before a handler begins (``RefusalObserver`` does), nor, unless it asks for
    /// them (``ServerMiddleware/seesUnknownTypes``), those whose type no handler has.
    ///
    /// Admissions are before handlers and all middleware, in the order in which they are added, and cost no task.
    public mutating func use(_ layer: any RouterLayer) {
        if let middleware = layer as? any ServerMiddleware { self.scope.middleware.append(middleware) }
        if let admission = layer as? any ServerAdmission { self.scope.admissions.append(admission) }
        if let observer = layer as? any RefusalObserver { self.scope.observers.append(observer) }
    }

    /// Decides on requests by their headers; the closure is a ``ServerAdmission``.
    public mutating func admit(_ decide: @escaping @Sendable (RequestHeader, ServerSession) -> Admission) {
        self.use(ClosureAdmission(decide: decide))
    }

    /// Chooses the answers to errors that handlers and middleware throw and that are no ``StatusError``, also for
    /// handlers that are registered later.
    ///
    /// An error that has an answer is neither logged nor counted. One that has none is answered as without this:
    /// ``/HHSocket/Status/unknown`` (404), which is transient, and it is in the log. Of several, the one of the
    /// innermost group is asked first, and within a group the first one that was added.
    ///
    /// - Parameter map: Returns the answer to an error; nil: it has none.
    public mutating func mapErrors(_ map: @escaping @Sendable (any Error) -> StatusError?) {
        self.scope.mapping.maps.append(map)
    }

    /// Registers handlers that have layers and limits in common.
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
    /// Layers of a group are within those of this router: its middleware sees a request later, and its admissions are
    /// asked later. The group's ``handlerExecutor`` and ``messageLimits`` are this router's, unless they are changed.
    ///
    /// - Parameters:
    ///   - layers: The group's layers, as by ``use(_:)``.
    ///   - limits: The bounds of each type of the group.
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

    /// Limits of a type that cannot work, and why; nil if there are none.
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

    /// The handlers with what stands around and before them.
    ///
    /// - Parameters:
    ///   - threads: Where those run that block.
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
        case .synchronous(let synchronous):
            guard scopes.contains(where: { !$0.middleware.isEmpty }) else {
                // Not `reduce`: a closure that has been through generic code is called through two others.
                var mapped = synchronous
                for scope in scopes { mapped = scope.mapping.around(mapped) }
                return .synchronous(mapped)
            }
            handler = { try synchronous($0, $1) }
        case .asynchronous(let asynchronous):
            handler = asynchronous
        case .blocking(let blocking):
            handler = { request, context in
                try await threads.run(for: context.connectionID) { try blocking(request, context) }
            }
        case .stream(let stream, let streamKind):
            handler = stream
            kind = streamKind
        }
        for scope in scopes {
            // Within, so that middleware sees the answer; and around, for what middleware throws.
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
            return Route(handling: .synchronous { _, _ in throw StatusError(.undefinedType) }, rules: rules)
        }
        let handler = middleware.chain { _, _ in throw StatusError(.undefinedType) }
        return Route(handling: .asynchronous(self.scope.mapping.around(handler), self.handlerExecutor), rules: rules)
    }

    /// Told of requests that are refused and whose type no handler has, or is not known.
    var observers: [any RefusalObserver] { self.scope.observers }
}
