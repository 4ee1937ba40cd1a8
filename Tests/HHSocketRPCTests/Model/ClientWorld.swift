// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import NIOPosix

@testable import HHSocketRPC

/// The two worlds of a history: the client on a simulated connection, and the model.
final class ClientWorld: @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread. Interceptors on other threads only access the steering.
    private let connection: SimulatedConnection
    private let client: ClientHost
    private var model: ModelClient
    private var made: [Made] = []
    /// The awaited calls that have completed.
    private var returned: Set<Int> = []
    /// The Swift tasks on the client's executor that wait for the awaited calls that have begun.
    private var waiters: [Int: Task<Void, Never>] = [:]
    private let executor: SocketExecutor
    private var completions: [String] = []
    /// All serials that were sent.
    private var serials: [UInt32] = []
    private let start: NIODeadline
    private var subscribers: [Subscriber] = []
    private var pushCount = 0
    /// The pushes that subscribers took in a step.
    private var taken: [String] = []
    private let delegate = PushDelegate()
    private let steering: InterceptorSteering
    private let isIntercepted: Bool
    /// The reason why interceptors can no longer be steered.
    private var lost: String?

    /// The client's half of a call.
    private enum Made {
        case task(SocketTask)
        case awaited(AwaitedCall)

        /// The task of a call that is not awaited.
        var task: SocketTask? {
            if case .task(let task) = self { task } else { nil }
        }

        /// Whether this is the call in the table.
        func isCall(_ call: borrowing CallEnd) -> Bool {
            switch (self, call.object) {
            case (.task(let task), .task(let other)?): task === other
            case (.task(let task), .flight(let flight)?): task === flight.task
            case (.awaited(let awaited), .awaited(let other)?): awaited === other
            case (.awaited(let awaited), .flight(let flight)?): awaited === flight.awaited
            default: false
            }
        }
    }

    /// A subscriber to pushes, which releases the inbox when the subscription has ended.
    private struct Subscriber {
        var inbox: PushInbox?
        weak var trace: PushInbox?
    }

    /// Records the pushes without a subscriber.
    private final class PushDelegate: SocketClientDelegate {
        let pushes = NIOLockedValueBox<[String]>([])

        func client(_ client: SocketClient, didReceive push: SocketPush) {
            self.pushes.withLockedValue { $0.append("\(push.type) \(push.string)") }
        }
    }

    /// The client passed to the delegate: not the tested one, which has no public type. It never connects.
    private static let face: SocketClient = {
        var configuration = SocketClient.Configuration(servers: [])
        configuration.socket.eventLoopGroup = MultiThreadedEventLoopGroup.singleton
        return SocketClient(configuration: configuration)
    }()

    init(
        _ limits: ModelClient.Limits,
        _ interceptorCount: Int,
        _ steering: InterceptorSteering,
        _ flaw: ((inout ModelClient.Limits) -> Void)?
    ) {
        var format = WireFormat.standard
        if limits.serials.count < 100 {
            var layout = format.layout
            layout.requestSerials = limits.serials
            if let narrow = try? WireFormat(layout) { format = narrow }
        }
        self.steering = steering
        self.isIntercepted = interceptorCount > 0
        if interceptorCount > 0 {
            // The field by which interceptors identify the call.
            var layout = format.layout
            layout.request.insert(.custom("call", bytes: 1), at: 0)
            if let tagged = try? WireFormat(layout) { format = tagged }
        }
        var configuration = SocketClient.Configuration(servers: [])
        configuration.maximumInFlight = limits.inFlight
        configuration.maximumWaiting = limits.waiting
        configuration.maximumWaitingBytes = limits.waitingBytes
        configuration.maximumTombstones = limits.tombstones
        configuration.retryBudget = RetryBudget(capacity: limits.budget, deposit: Double(limits.deposit) / 1_000)
        configuration.errorRatePolicy = ErrorRatePolicy(
            windowLength: 10,
            maximumAge: .seconds(30),
            minimumCalls: 5,
            threshold: 0.5
        )
        configuration.interceptors = steering.makeInterceptors(interceptorCount)
        configuration.socket.wireFormat = format
        let audience = DelegateReference()
        audience.setClient(Self.face)
        audience.delegate = self.delegate
        (self.connection, self.client) = SimulatedConnection.make(configuration, audience: audience) {
            steering.submitted()
        }
        self.executor = SocketExecutor(self.connection.loop)
        self.start = self.connection.time
        var expected = limits
        flaw?(&expected)
        self.model = ModelClient(limits: expected)
    }

    /// Performs a step in both worlds, and compares them.
    func take(_ step: ClientHistory.Step) -> String? {
        self.perform(step)
        self.turn()
        self.model.sendWaiting()
        return self.compare()
    }

    /// Wakes the socket thread, and lets interceptors with an answer reach their valves.
    private func turn() {
        self.connection.runSubmissions()
        guard self.isIntercepted else { return }
        for call in self.steering.begun where self.lost == nil {
            if self.steering.hasAsked(call), self.awaitsAnswer(call) { continue }
            if !self.steering.awaitStanding(call) {
                self.lost = "the interceptors of call \(call) do not come to a valve"
            }
        }
    }

    /// Whether the innermost interceptor of a call waits for an answer.
    private func awaitsAnswer(_ call: Int) -> Bool {
        self.keys.contains { self.index(of: $0) == call && self.client.engine.interception.isWaiting($0) }
    }

    private func perform(_ step: ClientHistory.Step) {
        switch step {
        case .call(let plan):
            self.make(plan)
        case .resume(let choice):
            guard let index = self.index(choice) else { return }
            let interceptions = self.model.calls[index].plan.interceptions
            if !interceptions.isEmpty, self.hasNotBegun(index), self.model.hasRoom {
                self.steering.begin(index, interceptions)
            }
            self.resume(index)
            self.model.resume(index)
        case .cancel(let choice):
            guard let index = self.index(choice) else { return }
            self.cancel(index)
            self.model.cancel(index)
        case .cancelByIdentifier(let choice):
            guard let index = self.index(choice) else { return }
            let isRunning = self.made[index].task?.state == .running
            self.connection.turn { self.client.engine.cancelTask(withIdentifier: index + 1, in: &$0) }
            if isRunning { self.model.cancel(index) }
        case .cancelAll:
            let running = self.order.filter { self.made[$0].task?.state ?? .running == .running }
            self.connection.turn { self.client.engine.cancelAll(in: &$0) }
            for index in running { self.model.cancel(index) }
        case .priority(let choice, let priority):
            guard let index = self.index(choice) else { return }
            guard let task = self.made[index].task else { return }
            task.priority = FramePriority(rawValue: priority)
            self.model.setPriority(priority, index)
        case .connecting:
            self.connection.beginConnecting()
            self.model.beginConnecting()
        case .ready:
            guard self.model.link != .offline else { return }
            self.connection.becomeReady()
            self.model.becomeReady()
        case .lost:
            let order = self.order
            self.connection.lose(SocketError(.connectionLost, message: "lost"))
            self.model.lose(.connectionLost, order)
        case .offline:
            guard self.model.link == .connecting else { return }
            let order = self.order
            self.connection.becomeOffline(SocketError(.connectionRefused, message: "refused"))
            self.model.becomeOffline(.connectionRefused, order)
        case .drainingLost:
            let order = self.order
            self.connection.loseDraining(SocketError(.connectionLost, message: "lost"))
            self.model.loseDraining(.connectionLost, order)
        case .goAway(let isMalformed):
            // A string whose length exceeds the message.
            let malformed = ByteBuffer(bytes: [0x0A, 0xFF])
            self.connection.goAway(isMalformed ? malformed : ByteBuffer())
            self.model.goAway(isMalformed: isMalformed)
        case .reconnectDeferred:
            self.connection.deferReconnect()
            self.model.deferReconnect()
        case .closed:
            self.connection.close()
            self.model.close()
        case .answer(let choice, let status, let isCorrupt):
            guard !self.serials.isEmpty else { return }
            // Usually young serials, since most old ones are answered.
            let back = min(choice % 8, self.serials.count - 1)
            self.answer(self.serials[self.serials.count - 1 - back], status, isCorrupt: isCorrupt)
        case .strayAnswer(let serial):
            guard !self.connection.format.isPush(type: 100, serial: serial) else { return }
            self.answer(serial, .ok, isCorrupt: false)
        case .answerBegins(let choice):
            guard !self.serials.isEmpty else { return }
            let serial = self.serials[self.serials.count - 1 - min(choice % 8, self.serials.count - 1)]
            let connection = self.connection(ofCallWith: serial) ?? ConnectionID(number: 1)
            self.connection.turn {
                self.client.engine.isReceiving(serial, 1, of: 2, on: connection, in: &$0)
            }
            self.model.answerBegins(serial)
        case .stopReading:
            self.connection.stopReading()
            self.model.stopReading()
        case .read:
            self.connection.read()
            self.model.read()
        case .subscribe(let type, let policy, let endsAtOnce):
            self.subscribe(type, policy)
            if endsAtOnce { self.unsubscribe(self.subscribers.count - 1) }
        case .unsubscribe(let choice):
            if !self.subscribers.isEmpty { self.unsubscribe(choice % self.subscribers.count) }
        case .push(let type, let isCorrupt):
            self.push(type, isCorrupt: isCorrupt)
        case .takePush(let choice):
            if !self.subscribers.isEmpty { self.takePush(choice % self.subscribers.count) }
        case .valve(let choice):
            let standing = self.steering.standing
            if !standing.isEmpty { self.openValve(standing[choice % standing.count]) }
        case .valves:
            for call in self.steering.standing { self.openValve(call) }
        case .time(let span):
            self.connection.advance(to: self.connection.time + .nanoseconds(Int64(span)))
            self.model.advance(to: self.model.now + span)
        case .timer:
            guard self.connection.timer < .distantFuture else { return }
            let timer = max(self.connection.timer, self.connection.time)
            self.connection.advance(to: timer)
            self.model.advance(to: Int((timer - self.start).nanoseconds))
        }
    }

    private func index(_ choice: Int) -> Int? { self.made.isEmpty ? nil : choice % self.made.count }

    /// The calls in the table's order.
    private var order: [Int] { self.keys.compactMap { self.index(of: $0) } }

    private var keys: [DispatchKey] { self.client.engine.hot.table.keys }

    private func index(of key: DispatchKey) -> Int? {
        self.client.engine.hot.table.withCall(key) { call, _ in
            for (index, made) in self.made.enumerated() where made.isCall(call) { return index }
            return nil
        } ?? nil
    }

    private func hasNotBegun(_ index: Int) -> Bool {
        self.made[index].task.map { $0.state == .suspended } ?? (self.waiters[index] == nil)
    }

    private func make(_ plan: ModelClient.Plan) {
        let index = self.made.count
        var plan = plan
        if #unavailable(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2) { plan.isAwaited = false }
        // Exact in binary and in nanoseconds, and chosen so that no two calls are due at the same time.
        plan.backoff = 1_953_125 * (64 + index % 64)
        var request = SocketRequest(type: plan.type, body: plan.body, timeout: .nanoseconds(plan.timeout))
        request.priority = FramePriority(rawValue: plan.priority)
        request.waitsForConnectivity = plan.isPatient
        request.isIdempotent = plan.isIdempotent
        request.firstResponseTimeout = plan.firstResponse.map { .nanoseconds($0) }
        if plan.attempts > 1 {
            request.retryPolicy = RetryPolicy(
                maximumAttempts: plan.attempts,
                backoff: Backoff(base: .nanoseconds(plan.backoff), cap: .seconds(100), jitter: 0),
                codes: plan.codes
            )
        }
        // The field by which interceptors identify the call.
        if !plan.interceptions.isEmpty { request.header["call"] = [UInt8(index)] }
        if plan.isAwaited {
            self.made.append(.awaited(AwaitedCall(request, self.client.engine, context: nil)))
        } else {
            let task = SocketTask(
                identifier: index + 1,
                request: request,
                engine: self.client.engine,
                completion: .handler { [weak self] in self?.completed(index, $0) },
                isDispatched: true
            )
            self.made.append(.task(task))
        }
        self.model.calls.append(ModelClient.Call(plan))
    }

    private func resume(_ index: Int) {
        switch self.made[index] {
        case .task(let task): task.resume()
        case .awaited(let call): self.wait(for: call, index)
        }
    }

    private func cancel(_ index: Int) {
        switch self.made[index] {
        case .task(let task):
            task.cancel()
        case .awaited(let call):
            // A call that has not begun begins cancelled.
            self.wait(for: call, index)
            self.waiters[index]?.cancel()
        }
    }

    /// Has a Swift task make the call, and wait for it, on the only thread.
    private func wait(for call: AwaitedCall, _ index: Int) {
        guard self.waiters[index] == nil, #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) else {
            return
        }
        let loop = self.connection.loop
        self.waiters[index] = Task(executorPreference: self.executor) { [weak self] in
            await call.run(on: loop)
            self?.returned.insert(index)
            self?.completed(index, call.takeResult())
        }
    }

    private func completed(_ index: Int, _ result: CallOutcome) {
        let outcome =
            switch result {
            case .success: "ok"
            case .failure(let error): "\(error.code) \(error.delivery)"
            }
        let attempts = self.made[index].task.map { " after \($0.metrics?.attempts ?? 0)" }
        self.completions.append("\(index) \(outcome)\(attempts ?? "")")
    }

    /// The model's completions. An awaited call does not report the number of its attempts.
    private var expectedCompletions: [String] {
        self.model.completions.map { text in
            guard let index = text.split(separator: " ").first.flatMap({ Int($0) }), self.made[index].task == nil,
                let attempts = text.range(of: " after ")
            else { return text }
            return String(text[..<attempts.lowerBound])
        }
    }

    private func connection(ofCallWith serial: UInt32) -> ConnectionID? {
        self.model.calls.first { $0.serial == serial }?.connection.map { ConnectionID(number: UInt64($0)) }
    }

    private func answer(_ serial: UInt32, _ status: Status, isCorrupt: Bool) {
        let connection = self.connection(ofCallWith: serial) ?? self.connection.anyConnection
        // Without a connection no frame arrives.
        guard let connection else { return }
        let frame = Frame(type: 16, serial: serial, status: status)
        self.connection.deliver(frame, isCorrupt: isCorrupt, on: connection)
        self.model.answer(serial, status, isCorrupt: isCorrupt)
    }

    // MARK: Interceptors

    private func openValve(_ call: Int) {
        guard self.lost == nil else { return }
        guard self.steering.open(call) else {
            self.lost = "the interceptors of call \(call) do not go on"
            return
        }
        self.turn()
        self.model.openValve(call)
    }

    /// Releases all interceptors, after a promise was broken.
    func giveUp() {
        self.connection.invalidate()
        self.steering.letGo()
    }

    /// The objects of a world that must be released.
    struct Remains {
        fileprivate weak var client: ClientHost?
        fileprivate let steering: InterceptorSteering
        fileprivate let patience: Double
        /// The event loop, which is released last, on the thread of its history.
        fileprivate var eventLoop: EmbeddedEventLoop

        mutating func leak() -> String? {
            guard self.steering.awaitRelease() else { return "somebody keeps the interceptors" }
            // The last owners of the interceptors may be releasing the client, and with it the loop, at this moment.
            let deadline = Date(timeIntervalSinceNow: self.patience)
            while !isKnownUniquelyReferenced(&self.eventLoop) {
                guard Date() < deadline else {
                    return self.client == nil ? "somebody keeps the loop" : "somebody keeps the client"
                }
                sched_yield()
            }
            return nil
        }
    }

    var remains: Remains {
        Remains(
            client: self.client,
            steering: self.steering,
            patience: self.steering.patience,
            eventLoop: self.connection.eventLoop
        )
    }

    // MARK: Pushes

    private func subscribe(_ type: UInt32?, _ policy: PushBufferingPolicy) {
        let inbox = self.client.pushes.subscribe(to: type, policy)
        self.subscribers.append(Subscriber(inbox: inbox, trace: inbox))
        self.model.pushes.subscribe(type, policy)
    }

    private func unsubscribe(_ number: Int) {
        self.subscribers[number].inbox?.cancel()
        self.subscribers[number].inbox = nil
        self.model.pushes.unsubscribe(number)
    }

    private func push(_ type: UInt32, isCorrupt: Bool) {
        guard let connection = self.connection.anyConnection else { return }
        self.pushCount += 1
        let body = "push \(self.pushCount)"
        let frame = Frame(type: type, serial: FrameSerial.push, status: .ok, payload: ByteBuffer(string: body))
        self.connection.deliver(frame, isCorrupt: isCorrupt, on: connection)
        if isCorrupt {
            self.model.corrupt += 1
        } else {
            self.model.pushes.receive(type, body)
        }
    }

    private func takePush(_ number: Int) {
        self.taken.append("\(number): \(self.subscribers[number].inbox?.take()?.string ?? "nothing")")
        self.model.pushes.take(number)
    }

    /// Pushes that arrived before the end can still be read once.
    private func takeRemainingPushes() -> String? {
        self.model.pushes.isOver = true
        for number in self.subscribers.indices {
            for _ in 0...self.model.pushes.subscribers[number].waiting.count { self.takePush(number) }
            if self.subscribers[number].inbox?.isOver == false {
                return "subscriber \(number) still waits at the end"
            }
        }
        return self.compare().map { "at the end: \($0)" }
    }

    // MARK: Promises

    private func compare() -> String? {
        if let broken = self.connection.broken ?? self.lost { return broken }
        let real = self.connection.take()
        for frame in real.wire {
            if frame.hasPrefix("request "), let serial = UInt32(frame.split(separator: " ")[1]) {
                self.serials.append(serial)
            }
        }
        defer {
            self.completions = []
            self.model.wire = []
            self.model.completions = []
            self.model.pulls = 0
            self.model.suspicions = 0
            self.model.failures = []
            self.model.log = []
            self.taken = []
            self.delegate.pushes.withLockedValue { $0 = [] }
            self.model.pushes.taken = []
            self.model.pushes.unclaimed = []
        }
        return self.compareCalls(real) ?? self.compareInterceptors() ?? self.comparePushes()
    }

    private func compareCalls(_ real: SimulatedConnection.Output) -> String? {
        Self.difference("wire", real.wire, self.model.wire) { wire in
            // Cancels of one moment may be in any order.
            [wire.filter { $0.hasPrefix("r") }, wire.filter { $0.hasPrefix("c") }.sorted()]
        }
            ?? Self.difference("completions", self.completions, self.expectedCompletions) { $0.sorted() }
            ?? Self.difference("pulls", real.pulls, self.model.pulls)
            ?? Self.difference("suspicions", real.suspicions, self.model.suspicions)
            ?? Self.difference("failing servers", real.failures, self.model.failures)
            ?? Self.difference("draining", self.connection.draining.map { Int($0.number) }, self.model.draining)
            ?? Self.difference("in flight", self.client.engine.hot.table.inFlightCount, self.model.inFlightCount)
            ?? Self.difference("waiting", self.client.engine.hot.table.waitingCount, self.model.waiting.count)
            ?? Self.difference("waiting bytes", self.client.engine.hot.table.waitingBytes, self.model.waitingBytes)
    }

    private func compareInterceptors() -> String? {
        guard self.isIntercepted else { return nil }
        return Self.difference("interceptors", self.steering.takeLog(), self.model.log) { $0.sorted() }
            ?? Self.difference("calls at valves", self.steering.standing, self.model.standing)
    }

    private func comparePushes() -> String? {
        let unclaimed = self.delegate.pushes.withLockedValue { $0 }
        let pushes = self.model.pushes
        let left = self.subscribers.map { $0.trace != nil }
        return Self.difference("pushes taken", self.taken, pushes.taken)
            ?? Self.difference("pushes that nobody claims", unclaimed, pushes.unclaimed)
            ?? Self.difference("reading is suspended", self.connection.isReadingSuspended, pushes.suspendsReading)
            ?? Self.difference("subscribers left", left, pushes.subscribers.map { !$0.isGone })
    }

    private static func difference<T: Equatable>(_ what: String, _ real: T, _ model: T) -> String? {
        real == model ? nil : "\(what): \(real), and should be \(model)"
    }

    /// Compares only the results of `essence`.
    private static func difference<T: Equatable, E: Equatable>(
        _ what: String,
        _ real: T,
        _ model: T,
        _ essence: (T) -> E
    ) -> String? {
        real == model ? nil : self.difference(what, essence(real), essence(model))
    }

    func end() -> String? {
        self.connection.invalidate()
        self.turn()
        self.model.release()
        if let broken = self.compare() { return "at the end: \(broken)" }
        // Interceptors whose call has ended continue until they end, regardless of their requests.
        while !self.steering.standing.isEmpty {
            if let broken = self.take(.valves) { return "at the end: \(broken)" }
        }
        if let broken = self.takeRemainingPushes() { return broken }
        for index in self.made.indices {
            let isOver = self.made[index].task.map { $0.state == .completed } ?? self.returned.contains(index)
            if isOver != (self.model.calls[index].phase == .completed) {
                return "call \(index) is \(isOver ? "" : "not ")complete at the end"
            }
            if !isOver, !self.hasNotBegun(index) { return "call \(index) hangs" }
        }
        var statistics = ClientStatistics()
        statistics.lateResponses = self.model.late
        statistics.duplicateResponses = self.model.duplicates
        statistics.unknownResponses = self.model.unknown
        statistics.checksumFailures = self.model.corrupt
        statistics.goAways = self.model.goAways
        statistics.malformedGoAways = self.model.malformedGoAways
        statistics.resentCalls = self.model.resent
        statistics.pushes = self.model.pushes.count
        statistics.droppedPushes = self.model.pushes.dropped
        if self.client.reporter.statistics != statistics {
            return "\(self.client.reporter.statistics), and should be \(statistics)"
        }
        return self.client.engine.hot.table.count == 0
            ? nil : "\(self.client.engine.hot.table.count) calls are left in the table"
    }
}
