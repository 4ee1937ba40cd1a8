import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// The state that the connections of a ``MockServer`` share. Everything happens on one event loop, so that the order of
/// requests determines the outcome.
final class MockServerCore: Sendable {
    struct Rules {
        var standing: [UInt32: MockServer.Reaction] = [:]
        var once: [UInt32: Deque<MockServer.Reaction>] = [:]
        var other = MockServer.Reaction.status(.undefinedType)
        var connect = MockServer.Reaction.drop
        var connectByNumber: [Int: MockServer.Reaction] = [:]
        /// The features accepted by hello; nil if hello is not answered.
        var features: Set<ProtocolFeature>?
    }

    /// A request whose reaction waits for others at a gate.
    struct Held {
        var session: MockSession
        var request: MockServer.Received?
        var rest: ArraySlice<MockServer.Reaction.Step>
    }

    private struct LoopState {
        var listener: (any Channel)?
        /// The reservation of the port while the server does not listen, but may again.
        var reservation: PortReservation?
        var port = 0
        var isOver = false
        var sessions: [Int: MockSession] = [:]
        var accepted = 0
        var held: [ObjectIdentifier: [Held]] = [:]
        var tasks: [Int: Task<Void, Never>] = [:]
        var lastTask = 0
    }

    let loop: any EventLoop
    let format: WireFormat
    let rules = NIOLockedValueBox(Rules())
    let received = EventLog<MockServer.Received>()
    let accepted = EventLog<MockServer.Connection>()
    let ended = EventLog<Int>()
    private let generator: NIOLockedValueBox<SplitMix>
    private let sleep: @Sendable (Duration) async throws -> Void
    private let state: NIOLoopBoundBox<LoopState>
    private let address = NIOLockedValueBox(Endpoint(host: "127.0.0.1", port: 0))

    init(format: WireFormat, seed: UInt64, sleep: @escaping @Sendable (Duration) async throws -> Void) {
        self.loop = MultiThreadedEventLoopGroup.singleton.next()
        self.format = format
        self.generator = NIOLockedValueBox(SplitMix(seed: seed))
        self.sleep = sleep
        self.state = .makeBoxSendingValue(LoopState(), eventLoop: self.loop)
    }

    var endpoint: Endpoint { self.address.withLockedValue { $0 } }

    var openConnections: [MockServer.Connection] {
        let over = Set(self.ended.events)
        return self.accepted.events.filter { !over.contains($0.number) }
    }

    // MARK: Listening

    func start(port: Int) async throws {
        self.address.withLockedValue { $0.port = port }
        try await self.listen().get()
    }

    func listen() -> EventLoopFuture<Void> {
        self.loop.flatSubmit { self.bind(until: .now() + .seconds(5)) }
    }

    private func bind(until deadline: NIODeadline) -> EventLoopFuture<Void> {
        guard self.state.value.listener == nil, !self.state.value.isOver else {
            return self.loop.makeSucceededVoidFuture()
        }
        let again = self.state.value.port != 0
        self.state.value.reservation = nil
        return ServerBootstrap(group: self.loop)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(MockSession(core: self))
                }
            }
            .bind(host: self.endpoint.host, port: self.endpoint.port)
            .hop(to: self.loop)
            .flatMap { channel in
                guard self.state.value.listener == nil, !self.state.value.isOver else { return channel.close() }
                self.state.value.listener = channel
                let port = channel.localAddress?.port ?? 0
                self.state.value.port = port
                self.address.withLockedValue { $0.port = port }
                return self.loop.makeSucceededVoidFuture()
            }
            .flatMapError { error in
                // An outgoing connection of another process may use the port for a moment.
                guard again, NIODeadline.now() < deadline else { return self.loop.makeFailedFuture(error) }
                return self.loop.flatScheduleTask(in: .milliseconds(10)) { self.bind(until: deadline) }.futureResult
            }
    }

    func stopListening() -> EventLoopFuture<Void> {
        self.loop.flatSubmit {
            guard let listener = self.state.value.listener else { return self.loop.makeSucceededVoidFuture() }
            self.state.value.listener = nil
            return listener.close().hop(to: self.loop).map {
                if !self.state.value.isOver { self.state.value.reservation = PortReservation(port: self.endpoint.port) }
            }
        }
    }

    func shutdown() -> EventLoopFuture<Void> {
        self.loop.flatSubmit {
            self.state.value.isOver = true
            for task in self.state.value.tasks.values { task.cancel() }
            self.state.value.held = [:]
            self.state.value.reservation = nil
            let closed = self.state.value.sessions.values.compactMap { $0.closeNow() }
            return self.stopListening()
                .and(EventLoopFuture.andAllComplete(closed, on: self.loop))
                .map { _ in }
        }
    }

    // MARK: Time and chance

    /// Runs `body` on the loop when the server's clock has advanced by `duration`, unless the server has shut down.
    func after(_ duration: Duration, _ body: @escaping @Sendable () -> Void) {
        self.loop.execute {
            guard !self.state.value.isOver else { return }
            self.state.value.lastTask += 1
            let number = self.state.value.lastTask
            let (loop, sleep) = (self.loop, self.sleep)
            self.state.value.tasks[number] = Task { [weak self] in
                let hasSlept: Void? = try? await sleep(duration)
                loop.execute { [weak self] in
                    self?.state.value.tasks[number] = nil
                    if hasSlept != nil { body() }
                }
            }
        }
    }

    func choose<Element>(from elements: [Element]) -> Element? {
        self.generator.withLockedValue { elements.randomElement(using: &$0) }
    }

    // MARK: Sessions, on the loop

    func add(_ session: MockSession) -> (number: Int, reaction: MockServer.Reaction) {
        let number = self.state.value.accepted
        self.state.value.accepted += 1
        self.state.value.sessions[number] = session
        self.accepted.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.loop)))
        return (number, self.rules.withLockedValue { $0.connectByNumber[number] ?? $0.connect })
    }

    /// Removes a connection that is gone.
    func remove(number: Int) {
        guard self.state.value.sessions.removeValue(forKey: number) != nil else { return }
        for gate in self.state.value.held.keys {
            self.state.value.held[gate]?.removeAll { $0.session.number == number }
        }
    }

    /// Returns the reaction to a request; nil if there is no rule.
    func reaction(to type: UInt32) -> MockServer.Reaction? {
        self.rules.withLockedValue { rules in
            if let next = rules.once[type]?.popFirst() { return next }
            return rules.standing[type] ?? (self.format.isControlType(type) ? nil : rules.other)
        }
    }

    /// Returns the answer to a hello without a rule; nil for none.
    func answer(toHello payload: ByteBuffer) -> HelloAnswer? {
        self.rules.withLockedValue { $0.features }.map { HelloAnswer.answer(to: payload, features: $0) }
    }

    func hold(_ held: Held, at gate: MockServer.Reaction.Gate) {
        let key = ObjectIdentifier(gate)
        self.state.value.held[key, default: []].append(held)
        guard var group = self.state.value.held[key], group.count >= gate.count else { return }
        self.state.value.held[key] = nil
        switch gate.order {
        case .inOrder: break
        case .reversed: group.reverse()
        case .shuffled: self.generator.withLockedValue { group.shuffle(using: &$0) }
        }
        for held in group { held.session.proceed(held.rest, for: held.request) }
        for held in group { held.session.flush() }
    }
}
