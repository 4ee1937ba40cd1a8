// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport

@testable import HHSocketTransfers

/// A random get in virtual time: a machine, its connection, a store whose file may be replaced, and a local file.
struct GetHistory {
    /// A deliberate fault, which must break a promise.
    enum Fault: CaseIterable {
        case losesContent, keepsWhatWasBegun, hurries, neverStalls, endsTwice
    }

    private typealias Machine = GetMachine<SeededGenerator>

    private enum Event {
        case opened(attempt: Int, Machine.Begun?)
        case begin(attempt: Int, TransferFile, offset: UInt64)
        case content(attempt: Int, TransferFile, offset: UInt64, count: Int)
        case ended(attempt: Int, SocketError?)
        case finished(Machine.Finish)
        case cut
        case connectionChanged
    }

    /// The local file.
    private struct Local {
        var file: TransferFile?
        var length: UInt64 = 0
        /// Whether a byte of it differs from the file.
        var isWrong = false
    }

    private let fault: Fault?
    private var generator: SeededGenerator
    private var machine: Machine
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private var now: NIODeadline
    private var events: [(time: NIODeadline, number: Int, event: Event)] = []
    private var eventCount = 0
    private var stored: TransferFile?
    private var versions: UInt8 = 1
    private var local = Local()
    private var arriving: (file: TransferFile, count: UInt64)?
    private var attempt = 0
    private var isConnected = true
    private var deadUntil = NIODeadline.uptimeNanoseconds(0)
    private var returns = NIODeadline.uptimeNanoseconds(0)
    private var opens: [NIODeadline] = []
    private var results: [(Result<TransferFile, TransferError>, keeps: Bool)] = []
    private var lastProgress: NIODeadline
    private var broken: String?
    /// The frequency of each event in 1,000 steps.
    private let chances: (cut: Int, refusal: Int, change: Int, removal: Int, death: Int)

    init(seed: UInt64, fault: Fault? = nil) {
        var generator = SeededGenerator(seed: seed)
        self.fault = fault
        let sizes: [UInt64] = [0, 1, 65_536, 1 << 20, 5 << 20]
        let file = TransferFile.sample(sizes.randomElement(using: &generator) ?? 0)
        self.stored = file
        func chance(_ values: Int...) -> Int { values.randomElement(using: &generator) ?? 0 }
        self.chances = (
            chance(0, 5, 50), chance(0, 100, 900, 1_000), chance(0, 0, 300), chance(0, 0, 100), chance(0, 0, 20)
        )
        if chance(0, 1) == 1 {
            self.local = Local(file: file, length: UInt64.random(in: 0...file.size, using: &generator))
            self.local.isWrong = self.local.length > 0 && chance(0, 0, 1) == 1
        }
        var settings = Machine.Settings()
        if fault == .hurries { settings.attempts.backoff = .immediate }
        if fault == .neverStalls { settings.attempts.timeout = .seconds(86_400) }
        self.machine = Machine("get", settings: settings, generator: SeededGenerator(seed: seed ^ 0xABCD))
        self.generator = generator
        self.now = self.start
        self.lastProgress = self.start
    }

    /// - Returns: The promise that was broken; nil for none.
    static func run(seed: UInt64, fault: Fault? = nil) -> String? {
        var history = Self(seed: seed, fault: fault)
        return history.run()
    }

    /// Returns the end of a history: `end`, or the code of the error.
    static func end(seed: UInt64) -> String {
        var history = Self(seed: seed)
        _ = history.run()
        guard case .failure(let error)? = history.results.first?.0 else { return "end" }
        return "\(error.code)"
    }

    private mutating func happens(_ chance: Int) -> Bool { Int.random(in: 0..<1_000, using: &self.generator) < chance }

    private mutating func after(_ time: NIODeadline, _ event: Event) {
        self.eventCount += 1
        self.events.append((time, self.eventCount, event))
    }

    private mutating func toClient(_ event: Event) {
        self.returns = max(self.returns, self.now, self.deadUntil) + .microseconds(500)
        self.after(self.returns, event)
    }

    // MARK: The run

    private mutating func run() -> String? {
        self.perform(self.machine.start())
        for _ in 0..<60_000 where self.broken == nil {
            let deadline = self.machine.nextDeadline
            let next = self.events.indices.min {
                (self.events[$0].time, self.events[$0].number) < (self.events[$1].time, self.events[$1].number)
            }
            if let next, self.events[next].time <= deadline ?? .distantFuture {
                let (time, _, event) = self.events.remove(at: next)
                self.now = max(self.now, time)
                self.happen(event)
            } else if let deadline {
                self.now = max(self.now, deadline)
                self.perform(self.machine.timePassed(now: self.now))
            } else {
                break
            }
            if self.machine.nextDeadline != nil, self.now - self.lastProgress > .seconds(62) {
                self.broken = "it goes on though nothing has come for more than a minute"
            }
            if !self.results.isEmpty, self.events.isEmpty { break }
        }
        return self.broken ?? self.brokenAtTheEnd
    }

    private var brokenAtTheEnd: String? {
        guard self.results.count == 1, let (result, keeps) = self.results.first else {
            return "it has ended \(self.results.count) times"
        }
        switch result {
        case .success(let file):
            let isWhole = self.local.file == file && self.local.length == file.size && !self.local.isWrong
            return isWhole ? nil : "what is there is not the file"
        case .failure(let error) where error.code == .stalled:
            guard keeps else { return "what was begun is removed" }
            return self.now - self.lastProgress >= .seconds(59) ? nil : "it stalled though something came"
        case .failure(let error) where error.code == .notFound:
            return self.stored == nil && !keeps ? nil : "the file is there"
        case .failure(let error):
            return "it ended with \(error)"
        }
    }

    private mutating func perform(_ actions: [Machine.Action]) {
        for action in actions { self.perform(action) }
    }

    private mutating func perform(_ action: Machine.Action) {
        switch action {
        case .prepare:
            let begun = self.local.file.map { Machine.Begun(file: $0, length: self.local.length) }
            self.perform(self.machine.prepared(begun, now: self.now))
        case .open(let begun): self.open(begun)
        case .create(let file):
            if self.fault != .keepsWhatWasBegun { self.local = Local(file: file) }
        case .write: self.write()
        case .discard: self.local = Local()
        case .finish: self.finish()
        case .abandon: self.attempt += 1
        case .replaceConnection:
            (self.deadUntil, self.returns) = (self.now, self.now)
            self.after(self.now + .milliseconds(1), .connectionChanged)
        case .prove, .report: break
        case .end(let result, let keeps):
            self.results.append((result, keeps))
            if self.fault == .endsTwice, self.happens(500) { self.results.append((result, keeps)) }
        }
    }

    private mutating func write() {
        guard let (file, count) = self.arriving else { return self.broken = "there is nothing to write" }
        if self.fault == .losesContent, self.happens(50) { return }
        if file != self.local.file { self.local.isWrong = true }
        self.local.length += count
        _ = self.machine.wrote(self.local.length)
    }

    private mutating func finish() {
        guard let file = self.local.file else { return self.broken = "there is nothing to finish" }
        if self.local.length != file.size, !self.local.isWrong {
            self.broken = "it is finished with \(self.local.length) of \(file.size) bytes"
        }
        let outcome: Machine.Finish = self.local.isWrong ? .wrongHash : .done
        // Hashing may take a while.
        self.after(self.now + .seconds(Int64.random(in: 0...100, using: &self.generator)), .finished(outcome))
    }

    private mutating func open(_ begun: Machine.Begun?) {
        self.attempt += 1
        self.opens.append(self.now)
        if self.opens.count >= 30, self.now - self.opens[self.opens.count - 30] < .seconds(5) {
            self.broken = "it is opened thirty times within five seconds"
        }
        var delay = TimeAmount.milliseconds(1)
        if !self.isConnected {
            delay = .milliseconds(Int64.random(in: 1...1_000, using: &self.generator))
            (self.deadUntil, self.returns) = (self.now, self.now)
        }
        self.isConnected = true
        if self.happens(self.chances.refusal) {
            let code: SocketError.Code = self.happens(500) ? .overloaded : .draining
            return self.after(self.now + delay, .ended(attempt: self.attempt, SocketError(code, message: "no")))
        }
        self.after(self.now + delay, .opened(attempt: self.attempt, begun))
    }

    private mutating func happen(_ event: Event) {
        switch event {
        case .opened(let attempt, let begun):
            guard attempt == self.attempt else { return }
            self.machine.opened(now: self.now)
            self.serve(begun)
        case .begin(let attempt, let file, let offset):
            guard attempt == self.attempt else { return }
            self.perform(self.machine.receivedFile(file, from: offset, now: self.now))
        case .content(let attempt, let file, let offset, let count):
            guard attempt == self.attempt else { return }
            self.lastProgress = self.now
            self.arriving = (file, UInt64(count))
            self.perform(self.machine.moved(UInt64(count), now: self.now))
            self.perform(self.machine.receivedContent(at: offset, count: count, now: self.now))
        case .ended(let attempt, let error):
            guard attempt == self.attempt else { return }
            if error?.code == .unknown {
                self.perform(self.machine.receivedFailure(TransferError(.notFound, "none")))
            }
            self.perform(self.machine.streamEnded(error, now: self.now))
        case .finished(let outcome):
            self.lastProgress = self.now
            self.perform(self.machine.finished(outcome, now: self.now))
        case .cut:
            guard self.isConnected else { return }
            self.isConnected = false
            let lost = SocketError(.connectionLost, message: "cut", delivery: .sentUnknown)
            self.perform(self.machine.streamEnded(lost, now: self.now))
        case .connectionChanged: self.perform(self.machine.connectionChanged(now: self.now))
        }
    }

    // MARK: The store's side

    private mutating func serve(_ begun: Machine.Begun?) {
        if self.happens(self.chances.change), self.versions < 10 {
            self.versions += 1
            self.stored = .sample(UInt64.random(in: 0...1 << 20, using: &self.generator), self.versions)
        }
        if self.happens(self.chances.removal) { self.stored = nil }
        guard let file = self.stored else {
            return self.toClient(
                .ended(attempt: self.attempt, SocketError(.unknown, message: "none", delivery: .answered))
            )
        }
        var offset = begun?.file == file ? begun?.length ?? 0 : 0
        self.toClient(.begin(attempt: self.attempt, file, offset: offset))
        while offset < file.size {
            let count = min(65_536, file.size - offset)
            self.toClient(.content(attempt: self.attempt, file, offset: offset, count: Int(count)))
            offset += count
            if self.happens(self.chances.cut) {
                self.toClient(.cut)
                return
            }
            if self.happens(self.chances.death) {
                let seconds = [2, 15, 30, 200].randomElement(using: &self.generator) ?? 2
                self.deadUntil = self.returns + .seconds(Int64(seconds))
            }
        }
        self.toClient(.ended(attempt: self.attempt, nil))
    }
}
