// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// Random histories of asking, cancelling, answering, failing, clearing and waiting. Each must keep the promises that
/// ``broken(_:)`` checks at each step.
@Suite(.timeLimit(.minutes(30))) struct CacheModelTests {
    private enum Step: CustomStringConvertible {
        case ask(key: Int, CachePolicy, manager: UInt64, timeout: Int)
        case stepStore
        case answer(Int, revision: Bool)
        case fail(Int, SocketError.Code)
        case cancel(Int)
        case cancelManager(UInt64)
        case pass(Duration)
        case clear(ResponseRemoval)

        var description: String {
            switch self {
            case .ask(let key, let policy, let manager, let timeout):
                "ask(\(key), \(policy), \(manager), \(timeout) s)"
            case .stepStore: "stepStore"
            case .answer(let call, let revision): "answer(\(call), \(revision))"
            case .fail(let call, let code): "fail(\(call), \(code))"
            case .cancel(let caller): "cancel(\(caller))"
            case .cancelManager(let manager): "cancelManager(\(manager))"
            case .pass(let duration): "pass(\(duration))"
            case .clear(let removal): "clear(\(removal))"
            }
        }
    }

    private static let policies: [CachePolicy] = [
        .returningCached, .returningCached, .returningCached, .returningStale(upTo: .seconds(20)), .reloading,
        .ignoringCache,
    ]
    private static let failures: [SocketError.Code] = [
        .timeout, .timeout, .connectionLost, .notModified, .notModified, .notModified, .featureNotAgreed, .cancelled,
        .deadlineExceeded,
    ]

    private static func step(_ generator: inout SeededGenerator) -> Step {
        func number(_ range: Range<Int>) -> Int { Int.random(in: range, using: &generator) }
        switch number(0..<100) {
        case 0..<30:
            return .ask(
                key: number(0..<3),
                Self.policies[number(0..<Self.policies.count)],
                manager: UInt64(number(1..<4)),
                timeout: [2, 8, 8, 8, 30][number(0..<5)]
            )
        case 30..<55: return .stepStore
        case 55..<67: return .answer(number(0..<8), revision: number(0..<2) == 0)
        case 67..<77: return .fail(number(0..<8), Self.failures[number(0..<Self.failures.count)])
        case 77..<85: return .cancel(number(0..<8))
        case 85..<87: return .cancelManager(UInt64(number(1..<4)))
        case 87..<96: return .pass(.milliseconds([1, 500, 2_000, 7_000, 12_000][number(0..<5)]))
        case 96..<98: return .clear(.all)
        case 98: return .clear(.ofType(UInt32(101 + number(0..<3))))
        default: return .clear(.ofOwner("\(number(1..<4))"))
        }
    }

    private struct Asked {
        var key: Int
        var policy: CachePolicy
        var owner: String
        var deadline: NIODeadline
        /// The number of earlier steps.
        var step: Int
    }

    /// The externally visible state of the callers and the calls.
    private struct Model {
        var world = CacheWorld()
        var waiting: [CacheWorld.Caller: Asked] = [:]
        /// The step in which each call began.
        var began: [UInt64: Int] = [:]
        /// The last step in which each key was cleared, by key.
        var cleared: [Int: Int] = [:]
        /// The last step in which something was cleared.
        var parted = 0
        var step = 0
        var seenCompletions = 0

        static func key(_ number: Int) -> SocketRequest { CacheWorld.request("\(number)", type: 101 + UInt32(number)) }

        func running(_ key: Int) -> [UInt64] {
            self.world.calls.filter { $0.value.type == 101 + UInt32(key) }.map(\.key).sorted()
        }
    }

    /// The promise that the history breaks; nil if it keeps all.
    private func broken(_ script: [Step]) -> String? {
        var model = Model()
        for step in script {
            model.step += 1
            self.perform(step, &model)
            if let broken = self.check(&model) { return "step \(model.step), \(step): \(broken)" }
        }
        // In the end all callers have been answered.
        model.step += 1
        while !model.world.operations.isEmpty {
            model.world.stepStore()
            if let broken = self.check(&model) { return "at the end: \(broken)" }
        }
        model.world.pass(.seconds(100))
        if let broken = self.check(&model) { return "after the end: \(broken)" }
        guard model.waiting.isEmpty, model.world.machine.callerCount == 0 else {
            return "\(model.waiting.count) callers were never told"
        }
        guard model.world.calls.isEmpty, model.world.machine.callCount == 0 else { return "calls run for nobody" }
        return nil
    }

    private func perform(_ step: Step, _ model: inout Model) {
        let now = model.world.now
        switch step {
        case .ask(let key, let policy, let manager, let timeout):
            let asking = model.world.asking(
                Model.key(key),
                policy,
                validity: .seconds(10),
                timeout: .seconds(timeout),
                owner: "\(manager)"
            )
            let caller = CacheWorld.Caller(manager: manager, number: model.step)
            let asked = Asked(
                key: key,
                policy: policy,
                owner: "\(manager)",
                deadline: now.time + .seconds(Int64(timeout)),
                step: model.step
            )
            model.waiting[caller] = asked
            _ = model.world.askOnly(model.step, asking, manager: manager)
        case .stepStore:
            model.world.stepStore()
        case .answer(let index, let revision):
            guard let call = self.call(index, model) else { return }
            // The answer's text names its request.
            let response = SocketResponse(
                type: 101,
                body: ByteBuffer(string: "\(call)"),
                metadata: revision ? ["revision": "\(call)"] : [:],
                endpoint: Endpoint(host: "server", port: 1)
            )
            model.world.calls[call] = nil
            model.world.perform { $0.answered(call, with: .success(response), at: now, into: &$1) }
        case .fail(let index, let code):
            guard let call = self.call(index, model) else { return }
            let error = SocketError(code, message: "as the script says")
            model.world.calls[call] = nil
            model.world.perform { $0.answered(call, with: .failure(error), at: now, into: &$1) }
        case .cancel(let index):
            let callers = model.waiting.keys.sorted { ($0.number, $0.manager) < ($1.number, $1.manager) }
            if !callers.isEmpty { model.world.cancel(callers[index % callers.count]) }
        case .cancelManager(let manager):
            model.world.perform { $0.cancelAll(ofManager: manager, at: now, into: &$1) }
        case .pass(let duration):
            model.world.pass(duration)
        case .clear(let removal):
            model.world.remove(removal)
            model.parted = model.step
            for key in 0..<3 {
                if case .ofType(let type) = removal, type != 101 + UInt32(key) { continue }
                if case .ofOwner = removal { continue }
                model.cleared[key] = model.step
            }
        }
    }

    private func call(_ index: Int, _ model: Model) -> UInt64? {
        let calls = model.world.calls.keys.sorted()
        return calls.isEmpty ? nil : calls[index % calls.count]
    }

    private func check(_ model: inout Model) -> String? {
        for call in model.world.begun.dropFirst(model.began.count) { model.began[call] = model.step }
        let completions = model.world.completions.dropFirst(model.seenCompletions)
        model.seenCompletions = model.world.completions.count
        for completion in completions {
            if let broken = self.check(completion, &model) { return broken }
        }
        for (caller, asked) in model.waiting where asked.deadline + .seconds(1) < model.world.now.time {
            return "\(caller) waits beyond its time"
        }
        for key in 0..<3 {
            if let broken = self.check(key: key, model) { return broken }
        }
        return nil
    }

    private func check(_ completion: CacheWorld.Completion, _ model: inout Model) -> String? {
        let caller = completion.caller
        guard let asked = model.waiting.removeValue(forKey: caller) else { return "\(caller) is told twice" }
        guard case .success(let answer) = completion.result else { return nil }
        guard let call = UInt64(answer.response.string), let began = model.began[call] else {
            return "\(caller) gets \(answer.response.string), which nobody answered"
        }
        let cleared = model.cleared[asked.key] ?? 0
        if began < cleared, asked.step > cleared || answer.source != .network {
            return "\(caller) gets an answer from before the cache was cleared"
        }
        switch answer.source {
        case .network, .revalidated:
            if case .network = answer.source, asked.policy == .reloading, began < asked.step {
                return "\(caller) reloads, and gets an answer to a call that began before"
            }
        case .cache(let age):
            guard age < .seconds(10), asked.policy != .ignoringCache, asked.policy != .reloading else {
                return "\(caller) gets an answer of age \(age)"
            }
        case .stale(let age):
            guard age >= .seconds(10), age < .seconds(30), case .returningStale = asked.policy, !caller.isRefresh
            else { return "\(caller) gets a stale answer of age \(age)" }
            // A fresh answer is in transit.
            var refresh = asked
            refresh.deadline = completion.time + .seconds(30)
            model.waiting[caller.refresh] = refresh
        }
        return nil
    }

    private func check(key: Int, _ model: Model) -> String? {
        let waiting = model.waiting.filter { $0.value.key == key }
        let shared = waiting.filter { $0.value.policy != .ignoringCache }
        let single = waiting.count - shared.count
        let running = model.running(key)
        if running.count < single { return "\(single) calls of their own are waited for, and \(running.count) run" }
        // Calls that began before a clearing are separate from those that began after it.
        let isParted =
            running.contains { model.began[$0] ?? 0 <= model.parted }
            || waiting.values.contains { $0.step <= model.parted }
        if running.count - single > 1, !isParted {
            return "\(running.count - single) calls for the same run at a time"
        }
        if shared.isEmpty, running.count > single { return "a call for \(key) runs for nobody" }
        let searches = model.world.operations.contains { operation in
            if case .find(_, let asked) = operation { asked == APIRequest(Model.key(key)).key } else { false }
        }
        if !shared.isEmpty, running.count == single, !searches { return "somebody waits for nothing" }
        // Answers that are or will be kept were requested after the last clearing.
        let cleared = model.cleared[key] ?? 0
        var kept = model.world.kept[APIRequest(Model.key(key)).key]
        for operation in model.world.operations {
            switch operation {
            case .find: continue
            case .store(let stored, let response):
                if stored == APIRequest(Model.key(key)).key { kept = response }
            case .remove(let removal):
                if let response = kept, removal.covers(APIRequest(Model.key(key)).key, response) { kept = nil }
            }
        }
        if let kept, let call = UInt64(kept.response.string), let began = model.began[call], began <= cleared {
            return "the answer to call \(call) is kept, which began before the cache was cleared"
        }
        return nil
    }

    @Test func randomHistoriesKeepEveryPromise() {
        for seed in 0..<UInt64(max(1, historyCount / 5)) {
            var generator = SeededGenerator(seed: seed)
            let script = (0..<60).map { _ in Self.step(&generator) }
            guard let broken = self.broken(script) else { continue }
            let (short, still) = shortened(script, broken) { self.broken($0) }
            Issue.record("seed \(seed): \(still)\n\(short.map { "\($0)" }.joined(separator: "\n"))")
            return
        }
    }
}
