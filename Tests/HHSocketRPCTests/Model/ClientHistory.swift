// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport

@testable import HHSocketRPC

/// Random histories of a client.
enum ClientHistory {
    enum Step: Sendable, CustomStringConvertible {
        case call(ModelClient.Plan)
        /// `choice` selects one of the calls.
        case resume(choice: Int), cancel(choice: Int), cancelByIdentifier(choice: Int), cancelAll
        case priority(choice: Int, Float)
        case connecting, ready, lost, offline, drainingLost, closed
        case goAway(isMalformed: Bool), reconnectDeferred
        case answer(choice: Int, Status, isCorrupt: Bool), strayAnswer(UInt32), answerBegins(choice: Int)
        case stopReading, read
        /// Nil subscribes to every type. `endsAtOnce`: before the socket thread was notified.
        case subscribe(UInt32?, PushBufferingPolicy, endsAtOnce: Bool), unsubscribe(choice: Int)
        case push(UInt32, isCorrupt: Bool), takePush(choice: Int)
        /// The interceptors of one call continue, or those of all calls that do not wait.
        case valve(choice: Int), valves
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
            case .goAway(let isMalformed): "go-away\(isMalformed ? ", malformed" : "")"
            case .reconnectDeferred: "put off"
            case .answer(let choice, let status, let isCorrupt):
                "answer \(choice) \(status)\(isCorrupt ? " corrupt" : "")"
            case .strayAnswer(let serial): "stray answer \(serial)"
            case .answerBegins(let choice): "answer begins \(choice)"
            case .stopReading: "stop reading"
            case .read: "read"
            case .subscribe(let type, let policy, let endsAtOnce):
                "subscribe to \(type.map { "\($0)" } ?? "all"), \(policy)\(endsAtOnce ? ", and end that at once" : "")"
            case .unsubscribe(let choice): "unsubscribe \(choice)"
            case .push(let type, let isCorrupt): "push \(type)\(isCorrupt ? " corrupt" : "")"
            case .takePush(let choice): "take push \(choice)"
            case .valve(let choice): "valve \(choice)"
            case .valves: "valves"
            case .time(let span): "time \(span) ns"
            case .timer: "timer"
            }
        }
    }

    static func script(seed: UInt64) -> [Step] {
        var generator = SeededGenerator(seed: seed)
        let length = Int.random(in: 10...100, using: &generator)
        let interceptorCount = self.interceptorCount(seed: seed)
        // In each fourth history there are go-aways, in each fourth servers are restarted one after the other.
        let kinds = seed % 4 == 3 ? 130 : 125
        if seed % 4 == 1 { return self.restarts(length, &generator) }
        guard interceptorCount > 0 else { return (0..<length).map { _ in self.step(kinds, &generator) } }
        // Calls without a connection, or calls that are not resumed, have few effects.
        var script: [Step] = Int.random(in: 0..<4, using: &generator) == 0 ? [] : [.connecting, .ready]
        var callCount = 0
        for _ in 0..<length {
            let step = self.intercepted(self.step(kinds, &generator), interceptorCount, &generator)
            script.append(step)
            if case .call = step {
                callCount += 1
                if Bool.random(using: &generator) { script.append(.resume(choice: callCount - 1)) }
            }
            script += self.valves(&generator)
        }
        return script
    }

    private static func restarts(_ length: Int, _ generator: inout SeededGenerator) -> [Step] {
        var script: [Step] = [.connecting, .ready]
        while script.count < length {
            switch Int.random(in: 0..<20, using: &generator) {
            case 0..<16:
                let step = self.step(130, &generator)
                script.append(step)
                if case .call = step, Bool.random(using: &generator) { script.append(self.resumption(of: script)) }
            case 16..<18:
                // One server after the other is about to end.
                for _ in 0..<Int.random(in: 1...5, using: &generator) {
                    script += [.answer(choice: 0, .draining, isCorrupt: false), .ready]
                }
            default:
                // When the server sends the go-away, one call was sent and one was not.
                var plan = self.plan(&generator)
                plan.firstResponse = nil
                script.append(.call(plan))
                script.append(self.resumption(of: script))
                if Bool.random(using: &generator) { script.append(.goAway(isMalformed: false)) }
                // No two calls are due at the same time.
                plan.timeout += 1
                script.append(.call(plan))
                script.append(self.resumption(of: script))
                script += [.answer(choice: 0, .draining, isCorrupt: false), .ready]
            }
        }
        return script
    }

    /// Resumes the last call.
    private static func resumption(of script: [Step]) -> Step {
        .resume(choice: script.count { if case .call = $0 { true } else { false } } - 1)
    }

    /// In each fifth history one or two interceptors stand around every call.
    private static func interceptorCount(seed: UInt64) -> Int {
        seed % 5 == 4 && seed % 4 != 1 ? 1 + Int(seed / 5 % 2) : 0
    }

    private static func intercepted(_ step: Step, _ count: Int, _ generator: inout SeededGenerator) -> Step {
        guard case .call(var plan) = step else { return step }
        let ends: [ModelClient.Interception.End] = [.passesOn, .passesOn, .passesOn, .passesOn, .answers, .fails]
        plan.interceptions = (0..<count).map { _ in
            let asks = [0, 1, 1, 1, 2, 2, 2, 2]
            return ModelClient.Interception(
                asks: asks[Int.random(in: 0..<8, using: &generator)],
                end: ends[Int.random(in: 0..<6, using: &generator)],
                changesBody: Int.random(in: 0..<4, using: &generator) == 0
            )
        }
        return .call(plan)
    }

    /// Some valves between two steps.
    private static func valves(_ generator: inout SeededGenerator) -> [Step] {
        let choice = Int.random(in: 0..<1_000, using: &generator)
        switch choice % 8 {
        case 0..<3: return [.valve(choice: choice)]
        case 3: return [.valve(choice: choice), .valve(choice: choice / 8)]
        case 4: return [.valves]
        default: return []
        }
    }

    /// - Parameter kinds: The number of kinds of steps that may occur; the last ones are go-aways.
    private static func step(_ kinds: Int, _ generator: inout SeededGenerator) -> Step {
        let choice = Int.random(in: 0..<1_000, using: &generator)
        switch Int.random(in: 0..<kinds, using: &generator) {
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
        case 95..<99: return self.subscription(&generator)
        case 99..<101: return .unsubscribe(choice: choice)
        case 101..<113: return .push(UInt32(2_001 + choice % 3), isCorrupt: choice % 13 == 0)
        case 113..<120: return .takePush(choice: choice)
        case 125..<129: return .goAway(isMalformed: choice % 5 == 0)
        case 129: return .reconnectDeferred
        default: return .timer
        }
    }

    private static func subscription(_ generator: inout SeededGenerator) -> Step {
        // There are no subscriptions only to 2003.
        let types: [UInt32?] = [2_001, 2_002, nil]
        // 0 counts as 1.
        let limit = Int.random(in: 0...4, using: &generator)
        let policies = [PushBufferingPolicy.dropOldest(limit), .dropNewest(limit), .suspendReading(limit)]
        return .subscribe(
            types[Int.random(in: 0..<3, using: &generator)],
            policies[Int.random(in: 0..<3, using: &generator)],
            endsAtOnce: Int.random(in: 0..<10, using: &generator) == 0
        )
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
        plan.isAwaited = Int.random(in: 0..<3, using: &generator) == 0
        return plan
    }

    /// Runs a script. Blocks its thread while interceptors continue on others.
    ///
    /// - Parameters:
    ///   - flaw: A deliberate fault of the model, which shows that the harness detects faults.
    ///   - patience: The time to wait for an interceptor that must continue, in seconds.
    /// - Returns: The promise that was broken, if one was.
    static func run(
        _ script: [Step],
        seed: UInt64,
        patience: Double = 20,
        flaw: ((inout ModelClient.Limits) -> Void)? = nil
    ) -> String? {
        var (broken, remains) = self.play(script, seed: seed, patience, flaw)
        let leak = remains.leak()
        return broken ?? leak
    }

    private static func play(
        _ script: [Step],
        seed: UInt64,
        _ patience: Double,
        _ flaw: ((inout ModelClient.Limits) -> Void)?
    ) -> (broken: String?, ClientWorld.Remains) {
        var limits = ModelClient.Limits()
        // Some histories have so few serials that they wrap and run out.
        if seed % 3 == 0 { limits.serials = 50...57 }
        let steering = InterceptorSteering(patience: patience)
        let world = ClientWorld(limits, self.interceptorCount(seed: seed), steering, flaw)
        for (number, step) in script.enumerated() {
            if let broken = world.take(step) {
                world.giveUp()
                return ("step \(number), \(step): \(broken)", world.remains)
            }
        }
        let broken = world.end()
        if broken != nil { world.giveUp() }
        return (broken, world.remains)
    }
}
