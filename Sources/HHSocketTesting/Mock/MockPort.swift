// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import NIOSSL

/// The port of a mock server with the connections that it has accepted, for any protocol, and the server's clock and
/// random numbers. Everything happens on one event loop, so that the order of requests determines the outcome.
final class MockPort: Sendable {
    typealias MakeLine = @Sendable (MockPort) -> MockLine?

    /// A reaction that waits for others at a gate.
    struct Held {
        var line: MockLine
        var proceed: () -> Void
    }

    private struct LoopState {
        var makeLine: MakeLine?
        var listener: (any Channel)?
        /// The reservation of the port while the server does not listen but may listen again.
        var reservation: PortReservation?
        var port = 0
        var isOver = false
        var lines: [Int: MockLine] = [:]
        var accepted = 0
        var held: [ObjectIdentifier: [Held]] = [:]
        var tasks: [Int: Task<Void, Never>] = [:]
        var lastTask = 0
        /// The ports of our own connections that show what has been accepted before them.
        var markers: [Int: EventLoopPromise<Void>] = [:]
    }

    let loop: any EventLoop
    /// The numbers of the accepted connections.
    let accepted = EventLog<Int>()
    /// The numbers of those that their clients have ended.
    let ended = EventLog<Int>()
    private let tls: NIOSSLContext?
    private let generator: NIOLockedValueBox<SplitMix>
    private let sleep: @Sendable (Duration) async throws -> Void
    private let state: NIOLoopBoundBox<LoopState>
    private let address = NIOLockedValueBox(Endpoint(host: "127.0.0.1", port: 0))

    /// - Parameter tls: TLS for all connections; nil, the default, for none.
    init(seed: UInt64, tls: NIOSSLContext? = nil, clock: some Clock<Duration>) {
        self.tls = tls
        self.loop = MultiThreadedEventLoopGroup.singleton.next()
        self.generator = NIOLockedValueBox(SplitMix(seed: seed))
        self.sleep = { try await clock.sleep(for: $0) }
        self.state = .makeBoxSendingValue(LoopState(), eventLoop: self.loop)
    }

    var endpoint: Endpoint { self.address.withLockedValue { $0 } }
    var isSecure: Bool { self.tls != nil }

    // MARK: Listening

    /// - Parameter makeLine: Makes the handler of each accepted connection.
    func start(port: Int, _ makeLine: @escaping MakeLine) async throws {
        self.address.withLockedValue { $0.port = port }
        try await self.loop.submit { self.state.value.makeLine = makeLine }.get()
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
                    if let port = channel.remoteAddress?.port, self.state.value.markers[port] != nil {
                        // Later: those that were accepted before become active first.
                        return self.loop.execute {
                            self.loop.execute { self.endMarker(port) }
                            channel.close(promise: nil)
                        }
                    }
                    guard let line = self.state.value.makeLine?(self) else { throw ChannelError.ioOnClosedChannel }
                    if let tls = self.tls {
                        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: tls))
                    }
                    try channel.pipeline.syncOperations.addHandler(line)
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
            for port in self.state.value.markers.keys { self.endMarker(port) }
            return listener.close().hop(to: self.loop).map {
                if !self.state.value.isOver { self.state.value.reservation = PortReservation(port: self.endpoint.port) }
            }
        }
    }

    /// Stops listening for a time, by the server's clock.
    func stopListening(for duration: Duration) async throws {
        try await self.stopListening().get()
        self.after(duration) { [weak self] in _ = self?.listen() }
    }

    func shutdown() -> EventLoopFuture<Void> {
        self.loop.flatSubmit {
            self.state.value.isOver = true
            self.state.value.makeLine = nil
            for task in self.state.value.tasks.values { task.cancel() }
            self.state.value.held = [:]
            self.state.value.reservation = nil
            let closed = self.state.value.lines.values.compactMap { $0.closeNow() }
            return self.stopListening()
                .and(EventLoopFuture.andAllComplete(closed, on: self.loop))
                .map { _ in }
        }
    }

    // MARK: Connections that are established, and not accepted

    /// Returns when every connection that is established now has been accepted. The system establishes connections by
    /// itself, so a client may be notified that it is connected before the server has accepted the connection.
    func acceptEstablished() async {
        // Connections are accepted in the order in which they were established. One of our own is the last of them.
        guard let marker = PortReservation(port: 0) else { return }
        let port = marker.port
        let accepted = self.loop.flatSubmit {
            let promise = self.loop.makePromise(of: Void.self)
            guard self.state.value.listener != nil, marker.connect(to: self.endpoint.port) else {
                promise.succeed()
                return promise.futureResult
            }
            self.state.value.markers[port] = promise
            self.loop.scheduleTask(in: .seconds(10)) { [weak self] in self?.endMarker(port) }
            return promise.futureResult
        }
        try? await accepted.get()
        marker.end()
    }

    private func endMarker(_ port: Int) {
        self.state.value.markers.removeValue(forKey: port)?.succeed()
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

    // MARK: Connections, on the loop

    /// Adds an accepted connection, and returns its number.
    func add(_ line: MockLine) -> Int {
        let number = self.state.value.accepted
        self.state.value.accepted += 1
        self.state.value.lines[number] = line
        self.accepted.append(number)
        return number
    }

    /// Removes a connection that is closed.
    func remove(number: Int) {
        guard self.state.value.lines.removeValue(forKey: number) != nil else { return }
        for gate in self.state.value.held.keys {
            self.state.value.held[gate]?.removeAll { $0.line.number == number }
        }
    }

    func hold(_ held: Held, at gate: MockGate) {
        let key = ObjectIdentifier(gate)
        self.state.value.held[key, default: []].append(held)
        guard var group = self.state.value.held[key], group.count >= gate.count else { return }
        self.state.value.held[key] = nil
        self.generator.withLockedValue { gate.order.arrange(&group, using: &$0) }
        for held in group { held.proceed() }
        for held in group { held.line.flush() }
    }
}
