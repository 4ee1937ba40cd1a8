// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTransfers

extension GetMachine.Action {
    /// The action as text.
    var text: String {
        switch self {
        case .prepare: "prepare"
        case .open(let begun): begun.map { "open from \($0.length) of \($0.file.size)" } ?? "open"
        case .create(let file): "create \(file.size)"
        case .write: "write"
        case .discard: "discard"
        case .finish: "finish"
        case .abandon: "abandon"
        case .replaceConnection: "replace"
        case .prove: "prove"
        case .report(let progress): "report \(progress.completed)/\(progress.total)"
        case .end(.success, _): "end"
        case .end(.failure(let error), let keeps): "end \(error.code), \(keeps ? "kept" : "removed")"
        }
    }
}

@Suite struct GetMachineTests {
    private typealias Machine = GetMachine<SeededGenerator>

    private static let now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private var now: NIODeadline { Self.now }
    private let lost = SocketError(.connectionLost, message: "lost", delivery: .sentUnknown)

    /// A machine whose first stream is open.
    private func machine(begun: Machine.Begun? = nil, maximumSize: UInt64? = nil) -> Machine {
        var settings = Machine.Settings()
        if let maximumSize { settings.maximumSize = maximumSize }
        var machine = Machine("get of i", settings: settings, generator: SeededGenerator(seed: 1))
        #expect(machine.start().map(\.text) == ["prepare"])
        #expect(machine.prepared(begun, now: self.now).last?.text.hasPrefix("open") == true)
        machine.opened(now: self.now)
        return machine
    }

    private func begin(_ machine: inout Machine, _ file: TransferFile, at offset: UInt64 = 0) -> [String] {
        machine.receivedFile(file, from: offset, now: self.now).map(\.text)
    }

    private func content(_ machine: inout Machine, _ offset: UInt64, _ count: Int) -> [String] {
        machine.receivedContent(at: offset, count: count, now: self.now).map(\.text)
    }

    @Test func contentIsWrittenAsItComesAndCheckedAtTheEnd() {
        var machine = self.machine()
        #expect(self.begin(&machine, .sample(250)) == ["create 250", "report 0/250"])
        #expect(self.content(&machine, 0, 100) == ["write"])
        #expect(machine.wrote(100).map(\.text) == ["report 100/250"])
        #expect(self.content(&machine, 100, 150) == ["write", "abandon", "finish"])
        #expect(machine.nextDeadline == nil)
        #expect(machine.streamEnded(nil, now: self.now).isEmpty)
        #expect(machine.finished(.done, now: self.now).map(\.text) == ["end"])
        #expect(machine.bytesMoved == 250)
    }

    @Test func anEmptyFileIsMadeAtOnce() {
        var machine = self.machine()
        #expect(self.begin(&machine, .sample(0)) == ["create 0", "report 0/0", "abandon", "finish"])
    }

    @Test func unfinishedFileIsContinued() {
        var machine = self.machine(begun: .init(file: .sample(250), length: 70))
        #expect(self.begin(&machine, .sample(250), at: 70).isEmpty)
        #expect(self.content(&machine, 70, 180) == ["write", "abandon", "finish"])
        #expect(machine.bytesMoved == 180)
    }

    @Test func completeFileIsOnlyChecked() {
        var machine = self.machine(begun: .init(file: .sample(250), length: 250))
        #expect(self.begin(&machine, .sample(250), at: 250) == ["abandon", "finish"])
    }

    @Test func anotherFileStartsOver() {
        var machine = self.machine(begun: .init(file: .sample(250), length: 70))
        let actions = machine.receivedFile(.sample(90, 2), from: 0, now: self.now)
        #expect(actions.map(\.text) == ["create 90", "report 0/90"])
        guard case .report(let progress)? = actions.last else { return }
        #expect(progress.changes == 1 && progress.restarts == 1)
    }

    @Test func aStoreWhoseFileChangesForEverIsGivenUp() {
        var machine = self.machine()
        var texts: [String] = []
        var now = self.now
        for number in 1...UInt8(18) where !machine.isOver {
            texts = machine.receivedFile(.sample(90, number), from: 0, now: now).map(\.text)
            _ = machine.receivedContent(at: 0, count: 10, now: now)
            _ = machine.moved(10, now: now)
            _ = machine.streamEnded(self.lost, now: now)
            while let deadline = machine.nextDeadline {
                now = deadline
                if !machine.timePassed(now: now).isEmpty { break }
            }
        }
        #expect(texts == ["abandon", "end invalidRequest, removed"])
    }

    @Test(arguments: [(UInt64(70), 181), (69, 10), (71, 10), (.max, 10), (0, 10)])
    func contentThatIsNotNextIsAgainstTheRules(_ offset: UInt64, _ count: Int) {
        var machine = self.machine(begun: .init(file: .sample(250), length: 70))
        _ = self.begin(&machine, .sample(250), at: 70)
        #expect(self.content(&machine, offset, count) == ["abandon", "end invalidRequest, removed"])
    }

    @Test func anOffsetThatWasNotAskedForIsAgainstTheRules() {
        for (file, offset) in [(TransferFile.sample(250), UInt64(69)), (.sample(90, 2), 70)] {
            var machine = self.machine(begun: .init(file: .sample(250), length: 70))
            #expect(self.begin(&machine, file, at: offset) == ["abandon", "end invalidRequest, removed"])
        }
    }

    @Test func contentBeforeTheDescriptionAndASecondDescriptionAreAgainstTheRules() {
        var machine = self.machine()
        #expect(self.content(&machine, 0, 10) == ["abandon", "end invalidRequest, removed"])
        var other = self.machine()
        _ = self.begin(&other, .sample(250))
        #expect(self.begin(&other, .sample(250)) == ["abandon", "end invalidRequest, removed"])
    }

    @Test func aFileThatIsTooLargeIsNotBegun() {
        var machine = self.machine(maximumSize: 100)
        #expect(self.begin(&machine, .sample(101)) == ["abandon", "end noRoom, removed"])
        var other = self.machine()
        #expect(self.begin(&other, .sample(.max)) == ["abandon", "end noRoom, removed"])
    }

    @Test func aLostConnectionIsFollowedByARequestForTheRest() throws {
        var machine = self.machine()
        _ = self.begin(&machine, .sample(250))
        _ = self.content(&machine, 0, 100)
        #expect(machine.streamEnded(self.lost, now: self.now).map(\.text) == ["abandon"])
        let deadline = try #require(machine.nextDeadline)
        #expect(machine.timePassed(now: deadline).map(\.text) == ["abandon", "open from 100 of 250"])
        // Later results of the disk have no effect.
        #expect(machine.wrote(100).map(\.text) == ["report 100/250"])
    }

    @Test func anEndBeforeAllContentIsTriedAgain() {
        var machine = self.machine()
        _ = self.begin(&machine, .sample(250))
        #expect(machine.streamEnded(nil, now: self.now).map(\.text) == ["abandon"])
        #expect(!machine.isOver)
    }

    @Test func aWrongHashIsTriedAgainOnce() {
        var machine = self.machine(begun: .init(file: .sample(250), length: 70))
        _ = self.begin(&machine, .sample(250), at: 70)
        _ = self.content(&machine, 70, 180)
        #expect(machine.finished(.wrongHash, now: self.now).map(\.text) == ["discard", "report 0/250", "open"])
        #expect(self.begin(&machine, .sample(250)) == ["create 250", "report 0/250"])
        _ = self.content(&machine, 0, 250)
        #expect(machine.finished(.wrongHash, now: self.now).map(\.text) == ["abandon", "end wrongHash, removed"])
    }

    @Test func unfinishedFileIsKeptForTransientErrors() {
        var cancelled = self.machine()
        #expect(cancelled.cancel().map(\.text) == ["abandon", "end cancelled, kept"])
        var discarded = self.machine()
        #expect(discarded.cancel(discards: true).map(\.text) == ["abandon", "end cancelled, removed"])
        var stalled = self.machine()
        var texts: [String] = []
        while let deadline = stalled.nextDeadline { texts = stalled.timePassed(now: deadline).map(\.text) }
        #expect(texts == ["abandon", "end stalled, kept"])
        var failed = self.machine()
        #expect(failed.clientGaveUp(self.lost).map(\.text) == ["abandon", "end connectionFailed, kept"])
    }

    @Test(arguments: [TransferError.Code.notFound, .denied, .noStore, .storeFailed])
    func errorsOfTheStoreAreFinal(_ code: TransferError.Code) {
        var machine = self.machine()
        let actions = machine.receivedFailure(TransferError(code, ""))
        #expect(actions.map(\.text) == ["abandon", "end \(code), removed"])
        #expect(machine.streamEnded(self.lost, now: self.now).isEmpty)
    }

    @Test func aDiskThatIsFullEndsItAndIsMadeRoomOn() {
        var machine = self.machine()
        _ = self.begin(&machine, .sample(250))
        _ = self.content(&machine, 0, 100)
        #expect(machine.failed(TransferError(.noRoom, "")).map(\.text) == ["abandon", "end noRoom, removed"])
        #expect(machine.wrote(100).isEmpty)
    }

    @Test func lockedFileIsNotRemoved() {
        var machine = Machine("get of i", generator: SeededGenerator(seed: 1))
        _ = machine.start()
        #expect(machine.failed(TransferError(.fileFailed, "")).map(\.text) == ["abandon", "end fileFailed, kept"])
    }

    @Test func aLinkOnWhichNothingMovesIsLeft() {
        var machine = self.machine()
        var texts: [String] = []
        while texts.isEmpty, let deadline = machine.nextDeadline {
            texts = machine.timePassed(now: deadline).map(\.text)
        }
        #expect(texts == ["abandon", "replace"])
        #expect(machine.connectionChanged(now: self.now).map(\.text) == ["open"])
    }
}
