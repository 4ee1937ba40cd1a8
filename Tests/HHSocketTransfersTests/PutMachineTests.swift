// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTransfers

extension PutMachine.Action {
    /// The action as text.
    var text: String {
        switch self {
        case .prepare: "prepare"
        case .open: "open"
        case .announce: "announce"
        case .read(let piece): "read \(piece.offset)+\(piece.length)"
        case .send(let piece): "send \(piece.offset)+\(piece.length)"
        case .finish: "finish"
        case .abandon: "abandon"
        case .replaceConnection: "replace"
        case .prove: "prove"
        case .rehash: "rehash"
        case .report(let progress): "report \(progress.completed)/\(progress.total)"
        case .end(.success): "end"
        case .end(.failure(let error)): "end \(error.code)"
        }
    }
}

extension TransferFile {
    /// A file of this size, whose hash is that of a number.
    static func sample(_ size: UInt64, _ content: UInt8 = 1) -> TransferFile {
        let digest = TransferDigest(bytes: [UInt8](repeating: content, count: 32))
        return TransferFile(size: size, sha256: digest ?? TransferDigest(SHA256()))
    }
}

@Suite struct PutMachineTests {
    private typealias Machine = PutMachine<SeededGenerator>

    private static let now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private var now: NIODeadline { Self.now }
    private let lost = SocketError(.connectionLost, message: "lost", delivery: .sentUnknown)

    /// A machine whose first stream is open.
    private func machine(_ size: UInt64, piece: UInt64 = 100, window: UInt64 = 1_000) -> Machine {
        var settings = Machine.Settings()
        settings.pieceLength = piece
        settings.window = window
        var machine = Machine("put of f", settings: settings, generator: SeededGenerator(seed: 1))
        #expect(machine.start().map(\.text) == ["prepare"])
        #expect(machine.prepared(.sample(size), now: self.now).map(\.text) == ["report 0/\(size)", "open"])
        machine.opened(now: self.now)
        return machine
    }

    /// Reports an offset.
    private func report(_ machine: inout Machine, _ offset: UInt64, changed: Bool = false, complete: Bool = false)
        -> [String]
    {
        machine.receivedReport(.init(offset: offset, changed: changed, complete: complete), now: self.now).map(\.text)
    }

    private func fail(_ machine: inout Machine, _ code: TransferError.Code) -> [String] {
        machine.receivedReport(.init(offset: 0, failure: TransferError(code, "")), now: self.now).map(\.text)
    }

    /// Reads and sends as long as possible; every piece has room immediately.
    private func run(_ machine: inout Machine, _ actions: [Machine.Action]) -> [String] {
        var texts: [String] = []
        var waiting = actions
        while !waiting.isEmpty {
            let action = waiting.removeFirst()
            texts.append(action.text)
            switch action {
            case .read(let piece): waiting += machine.wasRead(piece, now: self.now)
            case .send: waiting += machine.hasRoom(now: self.now)
            default: break
            }
        }
        return texts
    }

    @Test func onePieceIsReadAheadAndSentWhenThereIsRoom() {
        var machine = self.machine(250)
        let first = machine.receivedReport(.init(offset: 0), now: self.now)
        #expect(first.map(\.text) == ["report 0/250", "read 0+100"])
        let sends = machine.wasRead(.init(number: 1, offset: 0, length: 100), now: self.now)
        #expect(sends.map(\.text) == ["send 0+100", "read 100+100"])
        #expect(machine.wasRead(.init(number: 2, offset: 100, length: 100), now: self.now).isEmpty)
        #expect(machine.hasRoom(now: self.now).map(\.text) == ["send 100+100", "read 200+50"])
        #expect(machine.hasRoom(now: self.now).isEmpty)
        let last = machine.wasRead(.init(number: 3, offset: 200, length: 50), now: self.now)
        #expect(last.map(\.text) == ["send 200+50", "finish"])
        #expect(self.report(&machine, 250, complete: true) == ["report 250/250", "end"])
        #expect(machine.bytesMoved == 250)
        #expect(machine.nextDeadline == nil)
    }

    @Test func aFileThatIsThereAlreadyIsNotSent() {
        var machine = self.machine(250)
        #expect(self.report(&machine, 250, complete: true) == ["report 250/250", "end"])
        #expect(machine.bytesMoved == 0)
    }

    @Test func anEmptyFileHasNoContent() {
        var machine = self.machine(0)
        #expect(self.report(&machine, 0) == ["report 0/0", "finish"])
        #expect(self.report(&machine, 0, complete: true) == ["report 0/0", "end"])
    }

    @Test func contentContinuesWhereTheServerStands() {
        var machine = self.machine(250)
        #expect(self.report(&machine, 130) == ["report 130/250", "read 130+100"])
    }

    @Test func noMoreThanTheWindowIsUnderWay() {
        var machine = self.machine(5_000)
        let texts = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(texts.last == "send 900+100")
        #expect(self.report(&machine, 50).last == "report 50/5000")
        #expect(self.report(&machine, 100).last == "read 1000+100")
    }

    @Test func aReportThatIsNoProgressOfWhatWasSentHasItContinueFromThere() {
        var machine = self.machine(5_000)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        _ = self.report(&machine, 300)
        #expect(self.report(&machine, 200) == ["report 200/5000", "read 200+100"])
        // The eight pieces in transit are answered with this report too.
        for _ in 0..<8 { #expect(self.report(&machine, 200).isEmpty) }
        let ahead = machine.receivedReport(.init(offset: 4_000), now: self.now)
        #expect(ahead.map(\.text) == ["report 4000/5000", "read 4000+100"])
    }

    @Test func aPieceThatWasReadBeforeTheOffsetChangedIsNotSent() {
        var machine = self.machine(5_000)
        _ = machine.receivedReport(.init(offset: 0), now: self.now)
        #expect(self.report(&machine, 40) == ["report 40/5000", "read 40+100"])
        #expect(machine.wasRead(.init(number: 1, offset: 0, length: 100), now: self.now).isEmpty)
        let sends = machine.wasRead(.init(number: 2, offset: 40, length: 100), now: self.now)
        #expect(sends.first?.text == "send 40+100")
    }

    @Test func aServerThatNeverAgreesWithWhatIsSentIsTriedAgainLater() {
        var machine = self.machine(5_000)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        var texts: [String] = []
        for offset in [900, 800, 700, 600] as [UInt64] { texts = self.report(&machine, offset) }
        // Only 900 was progress.
        #expect(texts == ["report 600/5000", "read 600+100"])
        #expect(self.report(&machine, 500) == ["abandon"])
    }

    @Test func anOffsetBeyondTheFileIsAgainstTheRules() {
        var machine = self.machine(250)
        #expect(self.report(&machine, 251) == ["abandon", "end invalidRequest"])
    }

    @Test func aServerThatIsBusyIsWaitedFor() {
        var machine = self.machine(100)
        var now = self.now
        for _ in 0..<100 {
            now = now + .seconds(19)
            #expect(machine.receivedReport(.init(offset: 0, busy: true), now: now).isEmpty)
            #expect(machine.timePassed(now: now).isEmpty)
        }
        // The server reports the offset once it knows it.
        #expect(machine.receivedReport(.init(offset: 50), now: now).map(\.text) == ["report 50/100", "read 50+50"])
        // The client leaves the server once it stops reporting.
        var texts: [String] = []
        for _ in 0..<25 {
            now = now + .seconds(1)
            texts += machine.timePassed(now: now).map(\.text)
        }
        #expect(texts == ["abandon", "replace"])
    }

    @Test func aReportOfAllThatWasSentIsASignOfLife() {
        var machine = self.machine(100)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(self.report(&machine, 100) == ["report 100/100"])
        // The server hashes for an hour, and reports that every ten seconds.
        for second in stride(from: Int64(10), through: 3_600, by: 10) {
            let time = self.now + .seconds(second)
            while let deadline = machine.nextDeadline, deadline <= time {
                #expect(machine.timePassed(now: deadline).isEmpty)
            }
            #expect(machine.receivedReport(.init(offset: 100), now: time).isEmpty)
        }
    }

    @Test(arguments: [
        TransferError.Code.superseded, .invalidID, .denied, .noRoom, .readOnly, .quota, .invalidRequest, .storeFailed,
    ])
    func otherFailuresOfTheStoreAreFinal(_ code: TransferError.Code) {
        var machine = self.machine(250)
        #expect(self.fail(&machine, code) == ["abandon", "end \(code)"])
        #expect(machine.streamEnded(self.lost, now: self.now).isEmpty)
        #expect(machine.timePassed(now: self.now + .hours(1)).isEmpty)
    }

    @Test func aLostConnectionIsFollowedByAnotherAttemptFromWhereTheServerStands() throws {
        var machine = self.machine(250)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(machine.streamEnded(self.lost, now: self.now).map(\.text) == ["abandon"])
        let deadline = try #require(machine.nextDeadline)
        #expect(deadline <= self.now + .seconds(1))
        #expect(machine.timePassed(now: deadline).map(\.text) == ["abandon", "open"])
        #expect(self.report(&machine, 170) == ["report 170/250", "read 170+80"])
    }

    @Test func anEndWithoutTheWordThatTheFileIsWholeIsTriedAgain() {
        var machine = self.machine(100)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(machine.streamEnded(nil, now: self.now).map(\.text) == ["abandon"])
        #expect(!machine.isOver)
    }

    @Test func aWrongHashHasTheSourceCheckedAndTheContentSentOnceMore() {
        var machine = self.machine(100)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(self.fail(&machine, .wrongHash) == ["abandon", "rehash"])
        #expect(machine.streamEnded(self.lost, now: self.now).isEmpty)
        // There is no limit on this time.
        #expect(machine.nextDeadline == nil)
        #expect(machine.rehashed(.sample(100), now: self.now + .hours(1)).map(\.text) == ["report 0/100", "open"])
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(self.fail(&machine, .wrongHash) == ["abandon", "rehash"])
        #expect(machine.rehashed(.sample(100), now: self.now).map(\.text) == ["abandon", "end wrongHash"])
    }

    @Test func aWrongHashOfASourceThatHasChangedIsThat() {
        var machine = self.machine(100)
        _ = self.fail(&machine, .wrongHash)
        #expect(machine.rehashed(.sample(100, 2), now: self.now).map(\.text) == ["abandon", "end sourceChanged"])
    }

    @Test func changedIsCounted() {
        var machine = self.machine(100)
        let actions = machine.receivedReport(.init(offset: 0, changed: true), now: self.now)
        guard case .report(let progress)? = actions.first else {
            Issue.record("\(actions.map(\.text))")
            return
        }
        #expect(progress.changes == 1)
    }

    @Test func sixtyFourKibibytesOfReportsOrAcknowledgementsProveTheConnection() {
        var machine = self.machine(1 << 20, piece: 65_536, window: 1 << 20)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(machine.acknowledged(65_535, now: self.now).isEmpty)
        #expect(machine.acknowledged(1, now: self.now).map(\.text) == ["prove"])
        var other = self.machine(1 << 20, piece: 65_536, window: 1 << 20)
        _ = self.run(&other, other.receivedReport(.init(offset: 0), now: self.now))
        #expect(self.report(&other, 131_072).contains("prove"))
        // Earlier content does not count as progress.
        var third = self.machine(1 << 20, piece: 65_536, window: 1 << 20)
        #expect(!self.report(&third, 131_072).contains("prove"))
    }

    @Test func piecesAreShortUntilTheServerHasGotMore() throws {
        var machine = self.machine(10 << 20, piece: 262_144, window: 4 << 20)
        var lengths: [UInt64] = []
        var offset: UInt64 = 1 << 20
        var actions = machine.receivedReport(.init(offset: offset), now: self.now)
        while lengths.count < 10, !actions.isEmpty {
            switch actions.removeFirst() {
            case .read(let piece):
                lengths.append(piece.length)
                actions += machine.wasRead(piece, now: self.now)
            case .send(let piece):
                offset = piece.end
                actions += machine.receivedReport(.init(offset: offset), now: self.now)
                actions += machine.hasRoom(now: self.now)
            default: break
            }
        }
        #expect(lengths.first == 8_192)
        #expect(lengths == lengths.sorted() && lengths.last == 262_144)
        // Each attempt begins with short pieces.
        _ = machine.streamEnded(self.lost, now: self.now)
        while let deadline = machine.nextDeadline, machine.timePassed(now: deadline).isEmpty {}
        let again = machine.receivedReport(.init(offset: offset), now: self.now)
        #expect(again.last?.text == "read \(offset)+8192")
    }

    @Test func aSlowLinkThatIsCutAgainAndAgainGetsOn() {
        var machine = self.machine(1 << 20, piece: 262_144, window: 4 << 20)
        // At most 30 kB pass before each cut, and incomplete pieces are lost.
        var (offset, attempts, now) = (UInt64(0), 0, self.now)
        while !machine.isOver, attempts < 100 {
            attempts += 1
            var passed: UInt64 = 0
            var actions = machine.receivedReport(.init(offset: offset), now: now)
            while !actions.isEmpty {
                switch actions.removeFirst() {
                case .read(let piece): actions += machine.wasRead(piece, now: now)
                case .send(let piece):
                    passed += piece.length
                    guard passed <= 30_000 else {
                        actions = []
                        continue
                    }
                    offset = piece.end
                    actions += machine.hasRoom(now: now)
                case .finish: actions += machine.receivedReport(.init(offset: offset, complete: true), now: now)
                default: break
                }
            }
            _ = machine.streamEnded(self.lost, now: now)
            while let deadline = machine.nextDeadline {
                now = deadline
                if !machine.timePassed(now: now).isEmpty { break }
            }
        }
        #expect(offset == 1 << 20 && machine.isOver && attempts < 60)
    }

    @Test func cancellingEndsItOnce() {
        var machine = self.machine(100)
        #expect(machine.cancel().map(\.text) == ["abandon", "end cancelled"])
        #expect(machine.cancel().isEmpty)
        #expect(machine.failed(TransferError(.fileFailed, "")).isEmpty)
        #expect(machine.clientGaveUp(self.lost).isEmpty)
        #expect(machine.connectionChanged(now: self.now).isEmpty)
    }

    @Test func aClientThatHasGivenUpEndsIt() {
        var machine = self.machine(100)
        #expect(machine.clientGaveUp(self.lost).map(\.text) == ["abandon", "end connectionFailed"])
    }

    // MARK: Content before the hash

    /// A machine whose first stream is open, and whose source is still being hashed.
    private func earlyMachine(_ size: UInt64) -> Machine {
        var settings = Machine.Settings()
        (settings.pieceLength, settings.window) = (100, 1_000)
        var machine = Machine("put of f", settings: settings, generator: SeededGenerator(seed: 1))
        _ = machine.start()
        #expect(machine.found(size: size, now: self.now).map(\.text) == ["report 0/\(size)", "open"])
        machine.opened(now: self.now)
        return machine
    }

    @Test func contentIsSentWhileTheSourceIsHashed() {
        var machine = self.earlyMachine(200)
        let first = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(first == ["report 0/200", "read 0+100", "send 0+100", "read 100+100", "send 100+100"])
        // Only now are the items over.
        #expect(machine.prepared(.sample(200), now: self.now).map(\.text) == ["announce", "finish"])
        #expect(self.report(&machine, 200, complete: true) == ["report 200/200", "end"])
    }

    @Test func theHashIsSentBeforeTheFirstReport() {
        var machine = self.earlyMachine(100)
        #expect(machine.prepared(.sample(100), now: self.now).map(\.text) == ["announce"])
        let texts = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        #expect(texts == ["report 0/100", "read 0+100", "send 0+100", "finish"])
    }

    @Test func serverThatNeedsTheHashWaitsForIt() {
        var machine = self.earlyMachine(100)
        let needs = Machine.Report(offset: 0, needsHash: true)
        #expect(machine.receivedReport(needs, now: self.now).map(\.text) == ["abandon"])
        // The transfer depends on nothing but the source.
        #expect(machine.nextDeadline == nil)
        #expect(machine.prepared(.sample(100), now: self.now).map(\.text) == ["report 0/100", "open"])
        machine.opened(now: self.now)
        // Another such report breaks the rules.
        #expect(machine.receivedReport(needs, now: self.now).map(\.text) == ["abandon", "end invalidRequest"])
    }

    @Test func hashThatBecomesKnownMeanwhileIsSentAtOnce() {
        var machine = self.earlyMachine(100)
        #expect(machine.prepared(.sample(100), now: self.now).map(\.text) == ["announce"])
        let needs = Machine.Report(offset: 0, needsHash: true)
        #expect(machine.receivedReport(needs, now: self.now).map(\.text) == ["abandon", "open"])
    }

    @Test func laterAttemptsBeginWithTheHash() {
        var machine = self.earlyMachine(100)
        #expect(machine.streamEnded(self.lost, now: self.now).map(\.text) == ["abandon"])
        #expect(machine.prepared(.sample(100), now: self.now).isEmpty)
        let later = machine.nextDeadline ?? self.now
        #expect(machine.timePassed(now: later).map(\.text) == ["abandon", "open"])
        let texts = self.run(&machine, machine.receivedReport(.init(offset: 0), now: later))
        #expect(texts == ["report 0/100", "read 0+100", "send 0+100", "finish"])
    }

    @Test(arguments: [
        PutMachine<SeededGenerator>.Report(offset: 100, complete: true),
        .init(offset: 0, failure: TransferError(.wrongHash, "")), .init(offset: 101),
    ])
    func serverThatCannotKnowTheHashIsNotBelieved(_ report: PutMachine<SeededGenerator>.Report) {
        var machine = self.earlyMachine(100)
        let end = report.failure == nil ? "end invalidRequest" : "end wrongHash"
        #expect(machine.receivedReport(report, now: self.now).map(\.text) == ["abandon", end])
        #expect(machine.prepared(.sample(100), now: self.now).isEmpty)
    }

    @Test func sourceThatCannotBeHashedEndsThePut() {
        var machine = self.earlyMachine(100)
        #expect(machine.failed(TransferError(.sourceChanged, "")).map(\.text) == ["abandon", "end sourceChanged"])
    }

    /// As where a relay stops passing bytes on, and its system still takes in some.
    @Test func openingsThatAreAcknowledgedAndNotAnsweredAreNoProgress() throws {
        var settings = Machine.Settings()
        settings.attempts.timeout = .seconds(4)
        settings.pieceLength = 100
        var machine = Machine("put of f", settings: settings, generator: SeededGenerator(seed: 1))
        _ = machine.start()
        _ = machine.prepared(.sample(1_000), now: self.now)
        machine.opened(now: self.now)
        _ = self.run(&machine, machine.receivedReport(.init(offset: 0), now: self.now))
        // The last bytes of content.
        var now = self.now + .seconds(1)
        #expect(machine.acknowledged(100, now: now).isEmpty)
        let last = now
        var openings = 0
        while let deadline = machine.nextDeadline {
            now = max(now, deadline)
            var actions = machine.timePassed(now: now)
            if actions.contains(where: { $0.text == "replace" }) { actions += machine.connectionChanged(now: now) }
            guard actions.contains(where: { $0.text == "open" }) else { continue }
            openings += 1
            machine.opened(now: now)
            #expect(machine.acknowledged(150, now: now).isEmpty)
        }
        #expect(machine.isOver && openings >= 2)
        #expect(now == last + .seconds(4))
    }
}
