// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import TestSupport
import Testing

@testable import HHSocketApp

/// The events of a group, which are tried in every order.
private enum Step: CaseIterable {
    case resume, cancel, add, addEnded, addFailing, endFirst, endLast, release
}

/// The required behaviour, as simple as possible.
private struct GroupModel {
    var hasBegun = false
    var wasCancelled = false
    var isReleased = false
    /// The reported end: whether it was a cancel; nil if none was reported.
    var end: Bool?
    /// The members that have not ended.
    var open: [Int] = []
    var count = 0
    var failed: [Int] = []
    /// The orders to each member.
    var orders: [Int: [String]] = [:]

    private mutating func completeIfDone() {
        guard self.end == nil, self.hasBegun || self.wasCancelled, self.open.isEmpty else { return }
        self.end = self.wasCancelled
    }

    mutating func run(_ step: Step) {
        // The group was released.
        let isGone = self.isReleased
        switch step {
        case .resume where !isGone && !self.hasBegun && !self.wasCancelled:
            self.hasBegun = true
            for member in self.open { self.orders[member, default: []].append("resume") }
            self.completeIfDone()
        case .cancel where !isGone && !self.wasCancelled && self.end == nil:
            self.wasCancelled = true
            for member in self.open { self.orders[member, default: []].append("cancel") }
            self.completeIfDone()
        case .add where !isGone, .addEnded where !isGone, .addFailing where !isGone:
            let member = self.count
            self.count += 1
            guard self.end == nil else {
                self.orders[member] = ["cancel"]
                return
            }
            if step == .add {
                self.open.append(member)
                if self.wasCancelled {
                    self.orders[member] = ["cancel"]
                } else if self.hasBegun {
                    self.orders[member] = ["resume"]
                }
            } else {
                if step == .addFailing { self.failed.append(member) }
                self.completeIfDone()
            }
        case .endFirst where !self.open.isEmpty:
            self.open.removeFirst()
            self.completeIfDone()
        case .endLast where !self.open.isEmpty:
            self.open.removeLast()
            self.completeIfDone()
        case .release:
            // A group that has begun continues, but can no longer be controlled.
            self.isReleased = true
        default: break
        }
    }
}

private struct Broken: Error {}

private final class FakeMember: SocketTaskGroupMember {
    let number: Int
    private let log: NIOLockedValueBox<[Int: [String]]>
    /// The end, retained as tasks retain their handler.
    private let end: @Sendable ((any Error)?) -> Void

    init(
        _ number: Int,
        _ log: NIOLockedValueBox<[Int: [String]]>,
        _ end: @escaping @Sendable ((any Error)?) -> Void
    ) {
        self.number = number
        self.log = log
        self.end = end
    }

    func resume() { self.log.withLockedValue { $0[self.number, default: []].append("resume") } }
    func cancel() { self.log.withLockedValue { $0[self.number, default: []].append("cancel") } }
}

@Suite(.timeLimit(.minutes(30))) struct TaskGroupOrderTests {
    private func forEveryHistory(ofLength length: Int, _ body: ([Step]) throws -> Void) rethrows {
        let steps = Step.allCases
        var indices = [Int](repeating: 0, count: length)
        while true {
            try body(indices.map { steps[$0] })
            var position = 0
            while position < length {
                indices[position] += 1
                if indices[position] < steps.count { break }
                indices[position] = 0
                position += 1
            }
            if position == length { return }
        }
    }

    /// Runs one history, and returns the difference from the required behaviour.
    private func fault(_ history: [Step]) -> String? {
        var model = GroupModel()
        let log = NIOLockedValueBox<[Int: [String]]>([:])
        let outcomes = NIOLockedValueBox<[SocketTaskGroup.Outcome]>([])
        var group: SocketTaskGroup? = SocketTaskGroup(on: .socketThread) { outcome in
            outcomes.withLockedValue { $0.append(outcome) }
        }
        let groupReference = WeakReference<SocketTaskGroup>()
        let runnerReference = WeakReference<TaskGroupRunner>()
        if let group {
            groupReference.set(group)
            runnerReference.set(group.runner)
        }
        var members: [WeakReference<FakeMember>] = []
        var ends: [Int: @Sendable ((any Error)?) -> Void] = [:]
        func add(_ error: (any Error)?, endsAtOnce: Bool) {
            let number = members.count
            let reference = WeakReference<FakeMember>()
            members.append(reference)
            let member = group?.add { end in
                let member = FakeMember(number, log, end)
                if endsAtOnce { end(error) } else { ends[number] = end }
                return member
            }
            if let member { reference.set(member) }
        }
        var released = false
        for (index, step) in history.enumerated() {
            let ending = step == .endFirst ? model.open.first : model.open.last
            model.run(step)
            switch step {
            case .resume: group?.resume()
            case .cancel: group?.cancel()
            case .add where !released: add(nil, endsAtOnce: false)
            case .addEnded where !released: add(nil, endsAtOnce: true)
            case .addFailing where !released: add(Broken(), endsAtOnce: true)
            case .endFirst, .endLast:
                guard let ending, let end = ends.removeValue(forKey: ending) else { break }
                end(nil)
                // The second call has no effect.
                end(Broken())
            case .release:
                group = nil
                released = true
            default: break
            }
            let reported = outcomes.withLockedValue { $0 }
            let expected = model.end.map { [$0] } ?? []
            guard reported.map(\.isCancelled) == expected else {
                return "after \(index + 1) steps told \(reported.map(\.isCancelled)) instead of \(expected)"
            }
            guard log.withLockedValue({ $0 }) == model.orders else {
                return "after \(index + 1) steps members were told \(log.withLockedValue { $0 }), not \(model.orders)"
            }
            if let outcome = reported.first,
                outcome.failures.map(\.index) != model.failed.filter({ $0 < outcome.memberCount })
            {
                return "failures are \(outcome.failures) instead of \(model.failed)"
            }
        }
        // A released member counts as ended, so everything ends, and nothing is retained.
        ends = [:]
        group = nil
        let count = outcomes.withLockedValue { $0.count }
        let hasBegun = model.hasBegun || model.wasCancelled
        // Members that hold their own end retain a running group until they end.
        let mayWait = hasBegun && !model.open.isEmpty
        guard mayWait || count == (hasBegun ? 1 : 0) else { return "told \(count) times at the end" }
        if !mayWait {
            if groupReference.object != nil || runnerReference.object != nil { return "the group is still there" }
            if let index = members.firstIndex(where: { $0.object != nil }) { return "member \(index) is still there" }
        }
        return nil
    }

    @Test func everyOrderOfStepsCompletesOnceAfterTheLastAndKeepsNothing() {
        var count = 0
        for length in 1...5 {
            self.forEveryHistory(ofLength: length) { history in
                count += 1
                if let fault = self.fault(history) { Issue.record("\(history): \(fault)") }
            }
        }
        #expect(count == 8 + 64 + 512 + 4_096 + 32_768)
    }

    /// Random histories that are too long to try all.
    @Test func randomHistories() {
        for seed in 0..<UInt64(historyCount) {
            var generator = SeededGenerator(seed: seed)
            let history = (0..<Int.random(in: 6...40, using: &generator)).map { _ in
                // The release is rare; otherwise few other steps would be tried.
                Int.random(in: 0..<40, using: &generator) == 0
                    ? Step.release : Step.allCases.dropLast().randomElement(using: &generator) ?? .resume
            }
            guard let fault = self.fault(history) else { continue }
            let (script, broken) = shortened(history, fault) { self.fault($0) }
            Issue.record("seed \(seed): \(broken) in \(script)")
            return
        }
    }
}
