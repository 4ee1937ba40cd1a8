// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport

@testable import HHSocketTransfers

/// A random put in virtual time: a machine, its connection, and a store with random behaviour.
///
/// The store never loses anything, so content that does not continue at its offset is the client's fault.
struct PutHistory {
    /// A deliberate fault, which must break a promise.
    enum Fault: CaseIterable {
        case skipsAPiece, sendsAPieceTwice, sendsTooMuch, hurries, neverStalls, comesBackWhenSuperseded, endsTwice
        case forgetsTheHash
    }

    private enum Event {
        case read(PutMachine<SeededGenerator>.Piece)
        case room(attempt: Int)
        case opened(attempt: Int)
        case content(attempt: Int, offset: UInt64, length: UInt64)
        case finished(attempt: Int)
        case report(attempt: Int, PutMachine<SeededGenerator>.Report)
        case ended(attempt: Int, SocketError?)
        case found
        case prepared
        case announced(attempt: Int)
        case rehashed
        case cut
        case rival
        case connectionChanged
    }

    /// The store's side.
    private struct Store {
        var whole: TransferFile?
        var unfinished: (file: TransferFile, length: UInt64, writer: Int, isIdentified: Bool)?
        var superseded: Set<Int> = []
        var isDamaged = false
        var wholeFiles: [TransferFile] = []
    }

    private static let writer = 1
    private let fault: Fault?
    private var generator: SeededGenerator
    private var machine: PutMachine<SeededGenerator>
    private let file: TransferFile
    /// The time that hashing takes, if content is sent meanwhile.
    private let hashing: TimeAmount?
    private var isHashed = false
    /// Whether the machine has to wait until the source is hashed, which is no stall.
    private var waitsForHash = false
    /// Whether the beginning of the present attempt has the hash.
    private var beganWithHash = false
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private var now: NIODeadline
    private var events: [(time: NIODeadline, number: Int, event: Event)] = []
    private var eventCount = 0
    private var store = Store()
    private var attempt = 0
    /// The attempt that the store serves; nil for none.
    private var served: Int?
    private var isConnected = true
    /// The time until which nothing passes in either direction.
    private var deadUntil = NIODeadline.uptimeNanoseconds(0)
    private var arrives = NIODeadline.uptimeNanoseconds(0)
    private var returns = NIODeadline.uptimeNanoseconds(0)
    private var reported: UInt64 = 0
    private var sent: UInt64 = 0
    /// The greatest reported offset.
    private var most: UInt64 = 0
    private var opens: [NIODeadline] = []
    private var results: [Result<TransferFile, TransferError>] = []
    private var wasSuperseded = false
    private var lastProgress: NIODeadline
    /// Without bytes that moved after many attempts in vain, which are no progress.
    private var lastCertainProgress: NIODeadline
    private var opensWithoutGain = 0
    private var broken: String?
    /// The frequency of each event in 1,000 steps.
    private let chances: (cut: Int, refusal: Int, lostAnswer: Int, rival: Int, damage: Int, death: Int)

    init(seed: UInt64, fault: Fault? = nil) {
        var generator = SeededGenerator(seed: seed)
        self.fault = fault
        let sizes: [UInt64] = [0, 1, 65_536, 1 << 20, 5 << 20, 9 << 20]
        self.file = .sample(sizes.randomElement(using: &generator) ?? 0)
        func chance(_ values: Int...) -> Int { values.randomElement(using: &generator) ?? 0 }
        self.chances = (
            chance(0, 0, 5, 30), chance(0, 100, 900, 1_000), chance(0, 500), chance(0, 0, 300),
            chance(0, 0, 500, 1_000),
            chance(0, 0, 20)
        )
        var settings = PutMachine<SeededGenerator>.Settings()
        settings.pieceLength = [65_536, 262_144, 1 << 20].randomElement(using: &generator) ?? 65_536
        if fault == .sendsTooMuch { settings.window = 64 << 20 }
        if fault == .hurries { settings.attempts.backoff = .immediate }
        if fault == .neverStalls { settings.attempts.timeout = .seconds(86_400) }
        self.machine = PutMachine("put", settings: settings, generator: SeededGenerator(seed: seed ^ 0xABCD))
        self.generator = generator
        self.now = self.start
        self.lastProgress = self.start
        self.lastCertainProgress = self.start
        if chance(0, 0, 0, 1) == 1 { self.store.whole = .sample(99, 9) }
        if chance(0, 0, 1) == 1 {
            let length = UInt64.random(in: 0...self.file.size, using: &generator)
            self.store.unfinished = (self.file, length, 7, chance(0, 1) == 1)
        }
        self.hashing =
            [nil, .milliseconds(2), .milliseconds(50), .seconds(5)].randomElement(using: &self.generator) ?? nil
        self.store.isDamaged = self.chances.damage > Int.random(in: 0..<1_000, using: &generator)
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
        guard case .failure(let error)? = history.results.first else { return "end" }
        return "\(error.code)"
    }

    private mutating func happens(_ chance: Int) -> Bool { Int.random(in: 0..<1_000, using: &self.generator) < chance }

    private mutating func after(_ time: NIODeadline, _ event: Event) {
        self.eventCount += 1
        self.events.append((time, self.eventCount, event))
    }

    private mutating func soon(_ event: Event) {
        self.after(self.now + .microseconds(Int64.random(in: 1...2_000, using: &self.generator)), event)
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
                self.broken = "it goes on though nothing has moved for more than a minute"
            }
            if !self.results.isEmpty, self.events.isEmpty { break }
        }
        return self.broken ?? self.brokenAtTheEnd
    }

    private var brokenAtTheEnd: String? {
        guard self.results.count == 1, let result = self.results.first else {
            return "it has ended \(self.results.count) times"
        }
        switch result {
        case .success(let file):
            return self.store.wholeFiles.contains(file) || self.store.whole == file ? nil : "the store has no such file"
        case .failure(let error) where error.code == .superseded:
            return self.store.superseded.contains(Self.writer) ? nil : "it says superseded, and was not"
        case .failure(let error) where error.code == .stalled:
            return self.now - self.lastCertainProgress >= .seconds(59) ? nil : "it stalled though something moved"
        case .failure(let error) where error.code == .wrongHash:
            return self.chances.damage > 0 ? nil : "the hash was right"
        case .failure(let error):
            return "it ended with \(error)"
        }
    }

    private mutating func perform(_ actions: [PutMachine<SeededGenerator>.Action]) {
        for action in actions { self.perform(action) }
    }

    private mutating func perform(_ action: PutMachine<SeededGenerator>.Action) {
        switch action {
        case .prepare:
            guard let hashing = self.hashing else { return self.happen(.prepared) }
            self.soon(.found)
            self.after(self.now + hashing, .prepared)
        case .announce(let sha256):
            if sha256 != self.file.sha256 { self.broken = "it announces another hash" }
            if self.fault != .forgetsTheHash { self.toStore(.announced(attempt: self.attempt)) }
        case .rehash: self.soon(.rehashed)
        case .open: self.open()
        case .read(let piece): self.soon(.read(piece))
        case .send(let piece): self.send(piece)
        case .finish: self.toStore(.finished(attempt: self.attempt))
        case .abandon: self.abandon()
        case .replaceConnection:
            self.begin(anew: self.now)
            self.soon(.connectionChanged)
        case .prove, .report: break
        case .end(let result):
            self.results.append(result)
            if self.fault == .endsTwice, self.happens(500) { self.results.append(result) }
        }
    }

    // MARK: The client's side

    private mutating func open() {
        self.attempt += 1
        self.opens.append(self.now)
        self.opensWithoutGain += 1
        if self.opens.count >= 30, self.now - self.opens[self.opens.count - 30] < .seconds(5) {
            self.broken = "it is opened thirty times within five seconds"
        }
        self.beganWithHash = self.isHashed
        if self.wasSuperseded { self.broken = "it comes back though it was superseded" }
        (self.reported, self.sent) = (0, 0)
        let delay = self.isConnected ? TimeAmount.milliseconds(1) : self.reconnect()
        if self.happens(self.chances.refusal) {
            let code: SocketError.Code = self.happens(500) ? .overloaded : .cancelledByServer
            return self.after(self.now + delay, .ended(attempt: self.attempt, SocketError(code, message: "no")))
        }
        self.after(self.now + delay, .opened(attempt: self.attempt))
    }

    /// Resets the delays, since items of an older connection do not delay a new one.
    private mutating func begin(anew now: NIODeadline) {
        (self.deadUntil, self.arrives, self.returns) = (now, now, now)
    }

    /// Returns the connection's own back-off, which starts over.
    private mutating func reconnect() -> TimeAmount {
        self.isConnected = true
        self.begin(anew: self.now)
        return .milliseconds(Int64.random(in: 1...1_000, using: &self.generator))
    }

    private mutating func send(_ piece: PutMachine<SeededGenerator>.Piece) {
        if piece.end - min(piece.end, self.reported) > 4 << 20 { self.broken = "more than 4 MiB are under way" }
        self.sent = piece.end
        let content = Event.content(attempt: self.attempt, offset: piece.offset, length: piece.length)
        if self.fault != .skipsAPiece || !self.happens(100) { self.toStore(content) }
        if self.fault == .sendsAPieceTwice, self.happens(100) { self.toStore(content) }
        self.soon(.room(attempt: self.attempt))
        if self.happens(self.chances.cut) { self.soon(.cut) }
        if self.happens(self.chances.death) {
            let seconds = [2, 15, 30, 200].randomElement(using: &self.generator) ?? 2
            self.deadUntil = self.now + .seconds(Int64(seconds))
        }
        if self.happens(self.chances.rival) { self.soon(.rival) }
    }

    private mutating func abandon() {
        self.attempt += 1
        self.served = nil
    }

    private mutating func toStore(_ event: Event) {
        self.arrives = max(self.arrives, self.now, self.deadUntil) + .microseconds(500)
        self.after(self.arrives, event)
    }

    private mutating func toClient(_ event: Event) {
        self.returns = max(self.returns, self.now, self.deadUntil) + .microseconds(500)
        self.after(self.returns, event)
    }

    private mutating func happen(_ event: Event) {
        switch event {
        case .read(let piece): self.perform(self.machine.wasRead(piece, now: self.now))
        case .room(let attempt): if attempt == self.attempt { self.perform(self.machine.hasRoom(now: self.now)) }
        case .opened(let attempt):
            guard attempt == self.attempt else { return }
            self.machine.opened(now: self.now)
            self.begin()
        case .content(let attempt, let offset, let length):
            if attempt == self.served { self.received(offset, length) }
        case .finished(let attempt): if attempt == self.served { self.finished() }
        case .report(let attempt, let report):
            if attempt == self.attempt { self.deliver(report) }
        case .ended(let attempt, let error):
            if attempt == self.attempt { self.perform(self.machine.streamEnded(error, now: self.now)) }
        case .found: self.perform(self.machine.found(size: self.file.size, now: self.now))
        case .prepared:
            self.isHashed = true
            if self.hashing == nil || self.waitsForHash { self.noteProgress() }
            self.perform(self.machine.prepared(self.file, now: self.now))
        case .announced(let attempt):
            if attempt == self.served { self.store.unfinished?.isIdentified = true }
        case .rehashed:
            self.noteProgress()
            self.perform(self.machine.rehashed(self.file, now: self.now))
        case .cut: self.cut()
        case .rival: self.beginRival()
        case .connectionChanged: self.perform(self.machine.connectionChanged(now: self.now))
        }
    }

    private mutating func noteProgress() {
        (self.lastProgress, self.lastCertainProgress) = (self.now, self.now)
    }

    private mutating func deliver(_ report: PutMachine<SeededGenerator>.Report) {
        if let failure = report.failure, failure.code == .superseded {
            self.wasSuperseded = true
            if self.fault == .comesBackWhenSuperseded {
                let error = SocketError(.cancelledByServer, message: "superseded")
                return self.perform(self.machine.streamEnded(error, now: self.now))
            }
        }
        if report.needsHash { self.waitsForHash = true }
        if report.failure == nil, !report.needsHash {
            self.reported = report.offset
            if report.offset > self.most {
                self.noteProgress()
                self.opensWithoutGain = 0
            }
            self.most = max(self.most, report.offset)
        }
        self.perform(self.machine.receivedReport(report, now: self.now))
    }

    private mutating func cut() {
        guard self.isConnected else { return }
        self.isConnected = false
        self.served = nil
        let lost = SocketError(.connectionLost, message: "cut", delivery: .sentUnknown)
        self.perform(self.machine.streamEnded(lost, now: self.now))
    }

    // MARK: The store's side

    private mutating func report(_ failure: TransferError.Code? = nil, changed: Bool = false, complete: Bool = false) {
        guard let served = self.served else { return }
        let offset = complete ? self.file.size : self.store.unfinished?.length ?? 0
        self.toClient(
            .report(
                attempt: served,
                .init(
                    offset: failure == nil ? offset : 0,
                    changed: changed,
                    complete: complete,
                    failure: failure.map { TransferError($0, "") }
                )
            )
        )
        if failure != nil || complete {
            let error = failure.map { _ in SocketError(.database, message: "failed", delivery: .answered) }
            self.toClient(.ended(attempt: served, error))
        }
    }

    private mutating func begin() {
        self.served = self.attempt
        if self.store.superseded.contains(Self.writer) { return self.report(.superseded) }
        if !self.beganWithHash, self.needsHash {
            self.toClient(.report(attempt: self.attempt, .init(offset: 0, needsHash: true)))
            self.toClient(.ended(attempt: self.attempt, nil))
            self.served = nil
            return
        }
        if self.beganWithHash, self.store.whole == self.file { return self.report(complete: true) }
        var changed = false
        if let unfinished = self.store.unfinished {
            if unfinished.writer != Self.writer { self.store.superseded.insert(unfinished.writer) }
            changed = unfinished.file != self.file
            self.store.unfinished?.writer = Self.writer
        }
        if changed || self.store.unfinished == nil { self.store.unfinished = (self.file, 0, Self.writer, false) }
        if self.beganWithHash {
            self.store.unfinished?.isIdentified = true
        } else if self.isHashed, self.fault != .forgetsTheHash {
            // It lies behind the beginning.
            self.toStore(.announced(attempt: self.attempt))
        }
        self.report(changed: changed)
    }

    private var needsHash: Bool {
        if self.store.whole?.size == self.file.size { return true }
        guard let unfinished = self.store.unfinished else { return false }
        return unfinished.file.size == self.file.size && unfinished.isIdentified
    }

    private mutating func beginRival() {
        if let unfinished = self.store.unfinished { self.store.superseded.insert(unfinished.writer) }
        self.store.unfinished = (.sample(50, 2), 10, 1_000 + self.eventCount, true)
        if self.store.superseded.contains(Self.writer) {
            self.report(.superseded)
            self.served = nil
        }
    }

    private mutating func received(_ offset: UInt64, _ length: UInt64) {
        guard let unfinished = self.store.unfinished, unfinished.writer == Self.writer else { return }
        guard offset == unfinished.length else {
            self.broken = "content at \(offset), where the store stands at \(unfinished.length)"
            return
        }
        self.store.unfinished?.length += length
        self.perform(self.machine.acknowledged(length, now: self.now))
        self.lastProgress = self.now
        if self.opensWithoutGain <= TransferAttempts<SeededGenerator>.maximumVainAttempts {
            self.lastCertainProgress = self.now
        }
        self.report()
    }

    private mutating func finished() {
        guard let unfinished = self.store.unfinished, unfinished.writer == Self.writer else { return }
        guard unfinished.length == unfinished.file.size else {
            self.broken = "it ends its content at \(unfinished.length) of \(unfinished.file.size)"
            return
        }
        guard unfinished.isIdentified else {
            self.broken = "it ends its content without the hash"
            return
        }
        self.store.unfinished = nil
        if self.store.isDamaged {
            self.store.isDamaged = self.chances.damage == 1_000
            return self.report(.wrongHash)
        }
        self.store.whole = unfinished.file
        self.store.wholeFiles.append(unfinished.file)
        if self.happens(self.chances.lostAnswer) { return self.cut() }
        self.report(complete: true)
    }
}
