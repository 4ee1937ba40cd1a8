import HHSocket
import NIOCore
import TestSupport

@testable import HHSocketRPC

/// What chance lets happen to a client, and the two worlds it happens in: the client on a simulated connection, and the
/// model.
enum ClientHistory {
    enum Step: Sendable, CustomStringConvertible {
        case call(ModelClient.Plan)
        /// `choice` picks which of the calls there are.
        case resume(choice: Int), cancel(choice: Int), cancelByIdentifier(choice: Int), cancelAll
        case priority(choice: Int, Float)
        case connecting, ready, lost, offline, drainingLost, closed
        case answer(choice: Int, Status, isCorrupt: Bool), strayAnswer(UInt32), answerBegins(choice: Int)
        case stopReading, read
        case time(Int), timer

        var description: String {
            switch self {
            case .call(let plan): "call \(plan)"
            case .resume(let choice): "resume \(choice)"
            case .cancel(let choice): "cancel \(choice)"
            case .cancelByIdentifier(let choice): "cancel by identifier \(choice)"
            case .cancelAll: "cancel all"
            case .priority(let choice, let priority): "priority \(choice) \(priority)"
            case .connecting: "connecting"
            case .ready: "ready"
            case .lost: "lost"
            case .offline: "offline"
            case .drainingLost: "draining lost"
            case .closed: "closed"
            case .answer(let choice, let status, let isCorrupt):
                "answer \(choice) \(status)\(isCorrupt ? " corrupt" : "")"
            case .strayAnswer(let serial): "stray answer \(serial)"
            case .answerBegins(let choice): "answer begins \(choice)"
            case .stopReading: "stop reading"
            case .read: "read"
            case .time(let span): "time \(span) ns"
            case .timer: "timer"
            }
        }
    }

    static func script(seed: UInt64) -> [Step] {
        var generator = SeededGenerator(seed: seed)
        let length = Int.random(in: 10...100, using: &generator)
        return (0..<length).map { _ in self.step(&generator) }
    }

    private static func step(_ generator: inout SeededGenerator) -> Step {
        let choice = Int.random(in: 0..<1_000, using: &generator)
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<16: return .call(self.plan(&generator))
        case 16..<34: return .resume(choice: choice)
        case 34..<38: return .cancel(choice: choice)
        case 38: return .cancelByIdentifier(choice: choice)
        case 39: return .cancelAll
        case 40..<43: return .priority(choice: choice, Float(choice % 5) / 4)
        case 43..<47: return .connecting
        case 47..<54: return .ready
        case 54..<57: return .lost
        case 57..<60: return .offline
        case 60: return .drainingLost
        case 61: return choice < 300 ? .closed : .timer
        case 62..<80:
            let statuses: [Status] = [
                .ok, .ok, .ok, .ok, .unknown, .lostPacket, .overloaded, .draining, .partial, .noPermission,
            ]
            return .answer(choice: choice, statuses[choice % 10], isCorrupt: choice % 11 == 0)
        case 80: return .strayAnswer(UInt32(choice % 70))
        case 81..<83: return .answerBegins(choice: choice)
        case 83..<86: return .stopReading
        case 86..<90: return .read
        case 90..<95: return .time(Int.random(in: 0...2_000_000_000, using: &generator))
        default: return .timer
        }
    }

    private static func plan(_ generator: inout SeededGenerator) -> ModelClient.Plan {
        var plan = ModelClient.Plan(timeout: Int.random(in: 1_000_000...8_000_000_000, using: &generator))
        let length = Int.random(in: 0..<30, using: &generator)
        plan.body = String(repeating: "x", count: length == 29 ? 1_001 : length)
        plan.priority = Float(Int.random(in: 0...4, using: &generator)) / 4
        plan.isPatient = Int.random(in: 0..<4, using: &generator) == 0
        plan.isIdempotent = Bool.random(using: &generator)
        if Int.random(in: 0..<3, using: &generator) == 0 {
            plan.firstResponse = Int.random(in: 1_000_000...2_000_000_000, using: &generator)
        }
        if Bool.random(using: &generator) {
            plan.attempts = Int.random(in: 2...4, using: &generator)
            plan.codes = RetryPolicy.defaultCodes
            if Bool.random(using: &generator) { plan.codes.formUnion([.notConnected, .connectionRefused]) }
        }
        return plan
    }

    /// - Parameter flaw: Changes what the model expects, so that a harness which finds nothing is found out.
    /// - Returns: The promise that was broken, if one was.
    static func run(_ script: [Step], seed: UInt64, flaw: ((inout ModelClient.Limits) -> Void)? = nil) -> String? {
        var limits = ModelClient.Limits()
        // In some histories serials are so few that they wrap and run out.
        if seed % 3 == 0 { limits.serials = 50...57 }
        let world = ClientWorld(limits: limits, flaw: flaw)
        for (number, step) in script.enumerated() {
            if let broken = world.take(step) { return "step \(number), \(step): \(broken)" }
        }
        return world.end()
    }
}

private final class ClientWorld: @unchecked Sendable {
    // Proof of Sendable: a history runs on one thread.
    private let connection: SimulatedConnection
    private let client: ClientCore
    private var model: ModelClient
    private var tasks: [SocketTask] = []
    private var completions: [String] = []
    /// Every serial that ever left.
    private var serials: [UInt32] = []
    private let start: NIODeadline

    init(limits: ModelClient.Limits, flaw: ((inout ModelClient.Limits) -> Void)?) {
        var format = WireFormat.standard
        if limits.serials.count < 100 {
            var layout = format.layout
            layout.requestSerials = limits.serials
            if let narrow = try? WireFormat(layout) { format = narrow }
        }
        self.connection = SimulatedConnection(format: format)
        self.start = self.connection.now
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
        self.client = ClientCore(configuration: configuration, socket: self.connection)
        self.connection.consumer = self.client
        var expected = limits
        flaw?(&expected)
        self.model = ModelClient(limits: expected)
    }

    /// Does it in both worlds, and compares.
    func take(_ step: ClientHistory.Step) -> String? {
        self.perform(step)
        self.connection.runSubmissions()
        return self.compare()
    }

    private func perform(_ step: ClientHistory.Step) {
        switch step {
        case .call(let plan):
            self.make(plan)
        case .resume(let choice):
            guard let index = self.index(choice) else { return }
            self.tasks[index].resume()
            self.model.resume(index)
        case .cancel(let choice):
            guard let index = self.index(choice) else { return }
            self.tasks[index].cancel()
            self.model.cancel(index)
        case .cancelByIdentifier(let choice):
            guard let index = self.index(choice) else { return }
            let isRunning = self.tasks[index].state == .running
            self.client.cancelTask(withIdentifier: index)
            if isRunning { self.model.cancel(index) }
        case .cancelAll:
            let running = self.order.filter { self.tasks[$0].state == .running }
            self.client.cancelAll()
            for index in running { self.model.cancel(index) }
        case .priority(let choice, let priority):
            guard let index = self.index(choice) else { return }
            self.tasks[index].priority = FramePriority(rawValue: priority)
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
        case .closed:
            self.connection.close()
            self.model.close()
        case .answer(let choice, let status, let isCorrupt):
            guard !self.serials.isEmpty else { return }
            // Young ones as a rule: most old ones are answered.
            let back = min(choice % 8, self.serials.count - 1)
            self.answer(self.serials[self.serials.count - 1 - back], status, isCorrupt: isCorrupt)
        case .strayAnswer(let serial):
            guard !self.connection.format.isPush(serial: serial) else { return }
            self.answer(serial, .ok, isCorrupt: false)
        case .answerBegins(let choice):
            guard !self.serials.isEmpty else { return }
            let serial = self.serials[self.serials.count - 1 - min(choice % 8, self.serials.count - 1)]
            self.client.isReceiving(.init(type: 16, serial: serial, receivedBytes: 1, length: 2))
            self.model.answerBegins(serial)
        case .stopReading:
            self.connection.stopReading()
            self.model.stopReading()
        case .read:
            self.connection.read()
            self.model.read()
        case .time(let span):
            self.connection.advance(to: self.connection.now + .nanoseconds(Int64(span)))
            self.model.advance(to: self.model.now + span)
        case .timer:
            guard self.connection.timer < .distantFuture else { return }
            let timer = max(self.connection.timer, self.connection.now)
            self.connection.advance(to: timer)
            self.model.advance(to: Int((timer - self.start).nanoseconds))
        }
    }

    private func index(_ choice: Int) -> Int? { self.tasks.isEmpty ? nil : choice % self.tasks.count }

    /// The calls as the table happens to hold them.
    private var order: [Int] { self.client.table.keys.compactMap { self.client.table.call(for: $0)?.taskIdentifier } }

    private func make(_ plan: ModelClient.Plan) {
        let index = self.tasks.count
        var plan = plan
        // Exact in binary and in nanoseconds, and such that no two calls are due at one moment.
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
        let task = SocketTask(
            identifier: index,
            request: request,
            client: self.client,
            completion: .handler { [weak self] in self?.completed(index, $0) }
        )
        self.tasks.append(task)
        self.model.calls.append(ModelClient.Call(plan: plan, priority: plan.priority))
    }

    private func completed(_ index: Int, _ result: Result<SocketResponse, SocketError>) {
        let attempts = self.tasks[index].metrics?.attempts ?? 0
        switch result {
        case .success: self.completions.append("\(index) ok after \(attempts)")
        case .failure(let error):
            self.completions.append("\(index) \(error.code) \(error.delivery) after \(attempts)")
        }
    }

    private func answer(_ serial: UInt32, _ status: Status, isCorrupt: Bool) {
        // By the connection that the call left by, where there is one.
        let connection =
            self.model.calls.first { $0.serial == serial }?.connection.map { ConnectionID(number: UInt64($0)) }
            ?? ConnectionID(number: 0)
        let frame = Frame(type: 16, serial: serial, status: status)
        if isCorrupt {
            self.client.received(corrupt: frame, .init(received: 1, computed: 2), on: connection)
        } else {
            self.client.received(frame, on: connection)
        }
        self.model.answer(serial, status, isCorrupt: isCorrupt)
    }

    // MARK: Promises

    private func compare() -> String? {
        if let broken = self.connection.broken { return broken }
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
        }
        let table = self.client.table
        return Self.difference(
            "requests",
            real.wire.filter { $0.hasPrefix("r") },
            self.model.wire.filter { $0.hasPrefix("r") }
        )
            ?? Self.difference(
                "cancels",
                real.wire.filter { $0.hasPrefix("c") }.sorted(),
                self.model.wire.filter { $0.hasPrefix("c") }.sorted()
            )
            ?? Self.difference("completions", self.completions.sorted(), self.model.completions.sorted())
            ?? Self.difference("pulls", [real.pulls], [self.model.pulls])
            ?? Self.difference("suspicions", [real.suspicions], [self.model.suspicions])
            ?? Self.difference("failing servers", real.failures, self.model.failures)
            ?? Self.difference("draining", self.connection.draining.map { Int($0.number) }, self.model.draining)
            ?? Self.difference("in flight", [table.inFlightCount], [self.model.inFlight.count])
            ?? Self.difference("waiting", [table.waitingCount], [self.model.waiting.count])
    }

    private static func difference<T: Equatable>(_ what: String, _ real: [T], _ model: [T]) -> String? {
        real == model ? nil : "\(what): \(real), and should be \(model)"
    }

    func end() -> String? {
        self.connection.invalidate()
        self.model.close()
        if let broken = self.compare() { return "at the end: \(broken)" }
        for (index, task) in self.tasks.enumerated() {
            let isOver = task.state == .completed
            if isOver != (self.model.calls[index].phase == .completed) {
                return "call \(index) is \(task.state) at the end"
            }
            if !isOver, task.state != .suspended { return "call \(index) hangs, \(task.state)" }
        }
        var statistics = ClientStatistics()
        statistics.lateResponses = self.model.late
        statistics.duplicateResponses = self.model.duplicates
        statistics.unknownResponses = self.model.unknown
        statistics.checksumFailures = self.model.corrupt
        if self.client.statistics != statistics { return "\(self.client.statistics), and should be \(statistics)" }
        return self.client.table.count == 0 ? nil : "\(self.client.table.count) calls are left in the table"
    }
}
