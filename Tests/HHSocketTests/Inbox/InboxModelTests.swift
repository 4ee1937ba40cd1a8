// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// An inbox and a model of it in random histories, with all kinds of bounds, several readers that wait, batches that
/// are given back, ends and cancels.
@Suite(.timeLimit(.minutes(10))) struct InboxModelTests {
    @Test func randomHistoriesAreThoseOfTheModel() async {
        for seed in 0..<UInt64(historyCount) {
            let script = InboxScript(seed: seed)
            guard let broken = await InboxWorld.run(script.steps, script, nil) else { continue }
            Issue.record("seed \(seed), \(script.bounds): \(broken)")
            return
        }
    }

    @Test(arguments: InboxFlaw.allCases)
    func flawsAreFound(_ flaw: InboxFlaw) async {
        for seed in 0..<UInt64(2_000) {
            let script = InboxScript(seed: seed)
            if await InboxWorld.run(script.steps, script, flaw) != nil { return }
        }
        Issue.record("\(flaw) is not found")
    }
}

/// A random history.
private struct InboxScript {
    enum Step {
        case append(Int)
        case take(Int)
        case waitForElement(Int)
        case stopWaiting(Int)
        case release(Int)
        case askForHandled
        case finish
        case discard
        case cancel
    }

    let bounds: InboxBounds
    let readers: Int
    let hasAccount: Bool
    var steps: [Step] = []

    init(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let limits: [InboxBounds.AtLimit] = [.dropOldest, .dropNewest, .hold, .unbounded]
        let atLimit = limits[Int.random(in: 0..<limits.count, using: &random)]
        let batch = [1, 1, 2, 3, Int.max][Int.random(in: 0..<5, using: &random)]
        var bounds = InboxBounds(atLimit, batch: batch, detaching: .waiting)
        self.hasAccount = Int.random(in: 0..<3, using: &random) == 0
        if bounds.atLimit == .unbounded {
            bounds.isForOneReader = Bool.random(using: &random)
            if bounds.isForOneReader { bounds.batch = .max }
        } else {
            bounds.count = Int.random(in: 1...8, using: &random)
            if Int.random(in: 0..<3, using: &random) == 0 { bounds.bytes = Int.random(in: 200...2_000, using: &random) }
        }
        self.bounds = bounds
        self.readers = Int.random(in: 1...3, using: &random)
        for _ in 0..<Int.random(in: 1...60, using: &random) {
            let reader = Int.random(in: 0..<self.readers, using: &random)
            let step: Step =
                switch Int.random(in: 0..<100, using: &random) {
                case 0..<35: .append(Int.random(in: 1...5, using: &random))
                case 35..<65: .take(reader)
                case 65..<78: .waitForElement(reader)
                case 78..<82: .stopWaiting(reader)
                case 82..<89: .release(reader)
                case 89..<96: .askForHandled
                case 96: .finish
                case 97: .discard
                case 98: .cancel
                default: .append(20)
                }
            self.steps.append(step)
        }
    }
}

/// An element whose cost depends on its number.
private struct Number: InboxElement {
    var value: Int

    var memory: Int { InboxModel.memory(of: self.value) }
    mutating func detach(isOneOfMany: Bool) {}
}

/// Runs a history on an inbox and on the model.
private struct InboxWorld {
    private let account: CountingAccount?
    private let inbox: Inbox<Number>
    private let events: NIOLockedValueBox<[String]>
    private var readers: [Inbox<Number>.Reader]
    private var model: InboxModel
    private var last = 0

    private init(_ script: InboxScript, _ flaw: InboxFlaw?) {
        let events = NIOLockedValueBox<[String]>([])
        self.events = events
        self.account = script.hasAccount ? CountingAccount() : nil
        let inbox = Inbox<Number>(script.bounds, account: self.account) { _, change in
            // Appending elements together returns it, too.
            if change != .holds { events.withLockedValue { $0.append("\(change)") } }
        }
        self.inbox = inbox
        self.readers = (0..<script.readers).map { _ in inbox.makeReader() }
        self.model = InboxModel(script.bounds, readers: script.readers, flaw)
    }

    /// - Returns: The first difference.
    static func run(_ steps: [InboxScript.Step], _ script: InboxScript, _ flaw: InboxFlaw?) async -> String? {
        var world = InboxWorld(script, flaw)
        var broken: String?
        for (number, step) in steps.enumerated() where broken == nil {
            broken = await world.take(step).map { "step \(number), \(step): \($0)" }
        }
        // No task may stay suspended.
        world.inbox.finish()
        return broken
    }

    private mutating func take(_ step: InboxScript.Step) async -> String? {
        switch step {
        case .append(let count):
            let numbers = (self.last + 1...self.last + count).map { $0 }
            self.last += count
            self.append(numbers)
            self.model.append(numbers)
        case .take(let reader):
            guard !self.model.line.contains(reader) else { return nil }
            let (real, model) = (self.readers[reader].take()?.value, self.model.take(reader))
            guard real == model else { return "reader \(reader) gets \(real ?? 0), and should get \(model ?? 0)" }
        case .waitForElement(let reader):
            guard !self.model.line.contains(reader) else { return nil }
            let (real, model) = (self.readers[reader].take()?.value, self.model.take(reader))
            guard real == model else { return "reader \(reader) gets \(real ?? 0), and should get \(model ?? 0)" }
            if real == nil, let difference = await self.wait(reader) { return difference }
        case .stopWaiting(let reader):
            guard self.model.line.contains(reader) else { return nil }
            self.inbox.stopWaiting(self.readers[reader])
            self.model.stopWaiting(reader)
        case .release(let reader):
            guard !self.model.line.contains(reader) else { return nil }
            self.noteServed { $0.readers[reader] = $0.inbox.makeReader() }
            self.model.release(reader)
        case .askForHandled:
            self.inbox.whenHandled { [events] in events.withLockedValue { $0.append("handled") } }
            self.model.askForHandled()
        case .finish:
            self.noteServed { $0.inbox.finish() }
            self.model.finish()
        case .discard:
            self.inbox.discard()
            self.model.discard()
        case .cancel:
            self.noteServed { $0.inbox.cancel() }
            self.model.cancel()
        }
        return self.difference
    }

    private mutating func append(_ numbers: [Int]) {
        self.noteServed { world in
            var elements = Deque(numbers.map { Number(value: $0) })
            let appended = world.inbox.append(contentsOf: &elements)
            world.events.withLockedValue { events in
                if appended.dropped > 0 { events.append("\(appended.dropped) dropped") }
                if appended.holds { events.append("holds") }
            }
        }
    }

    /// Notes the readers that `body` serves, or ends, before its other events.
    private mutating func noteServed(_ body: (inout InboxWorld) -> Void) {
        func line(_ inbox: Inbox<Number>) -> [ObjectIdentifier] {
            inbox.state.withLockedValue { $0.waiting.map { ObjectIdentifier($0.reader) } }
        }
        let (before, count) = (line(self.inbox), self.events.withLockedValue { $0.count })
        let readers = self.readers.map { ObjectIdentifier($0) }
        body(&self)
        let after = Set(line(self.inbox))
        let served = before.filter { !after.contains($0) }.compactMap { served in
            readers.firstIndex(of: served)
        }
        self.events.withLockedValue { $0.insert(contentsOf: served.map { "reader \($0) is served" }, at: count) }
    }

    private mutating func wait(_ number: Int) async -> String? {
        // A task that stays suspended until the reader is served. It does not retain the reader.
        typealias Continuation = UnsafeContinuation<Void, Never>
        let continuation = await withUnsafeContinuation { (outer: UnsafeContinuation<Continuation, Never>) in
            Task { await withUnsafeContinuation { (inner: Continuation) in outer.resume(returning: inner) } }
        }
        let reader = self.readers[number]
        let waits = self.inbox.fill(reader, for: TurnWaiter(continuation, isHere: false))
        if !waits { continuation.resume() }
        let refusal = self.model.wait(number)
        guard waits == (refusal == nil) else {
            return "reader \(number) waits: \(waits), refusal: \(refusal ?? "none")"
        }
        guard let refusal, "\(reader.absence)" != refusal else { return nil }
        return "reader \(number): \(reader.absence), and should be \(refusal)"
    }

    private var difference: String? {
        let events = self.events.withLockedValue { $0 }
        func differs<T: Equatable>(_ name: String, _ real: T, _ model: T) -> String? {
            real == model ? nil : "\(name): \(real), and should be \(model)"
        }
        return differs("events", events, self.model.events)
            ?? differs("isFull", self.inbox.isFull, self.model.isFull)
            ?? differs("isOver", self.inbox.isOver, self.model.isOver)
            ?? differs("isEmpty", self.inbox.isEmpty, self.model.waiting.isEmpty)
            ?? differs("hasWaitingReader", self.inbox.hasWaitingReader, !self.model.line.isEmpty)
            ?? self.account.flatMap { differs("charge", $0.bytes, self.model.charge) }
    }
}
