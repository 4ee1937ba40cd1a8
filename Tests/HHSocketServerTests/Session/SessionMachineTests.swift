// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Testing

@testable import HHSocketServer

/// The outcome of a frame that no limit affects.
private enum Outcome: Equatable {
    case answer(Status)
    case runSynchronously
    case start(SessionMachine<String>.RunID)
    case stop(String?, SessionMachine<String>.RunID)
    case ignore
}

extension SessionMachine<String> {
    fileprivate mutating func received(
        type: UInt32,
        serial: UInt32,
        isCorrupt: Bool = false,
        handling: Handling,
        refusal: Refusal? = nil
    ) -> Outcome {
        switch self.receive(type: type, serial: serial, isCorrupt: isCorrupt, handling: handling) {
        case .answer(let status, _): return .answer(status)
        case .stop(let work, let run): return .stop(work, run)
        case .ignore: return .ignore
        case .admit(let admission):
            switch self.admit(admission, bytes: 0, refusal: refusal) {
            case .answer(let status, _): return .answer(status)
            case .runSynchronously: return .runSynchronously
            case .start(let run): return .start(run)
            }
        }
    }
}

@Suite struct ServerSessionMachineTests {
    typealias Machine = SessionMachine<String>

    var machine = Machine(maximumInFlight: 3)

    /// Starts a handler whose work has the given name.
    mutating func start(_ work: String, serial: UInt32) throws -> Machine.RunID {
        guard case .start(let run) = self.machine.received(type: 100, serial: serial, handling: .asynchronous) else {
            throw Unexpected()
        }
        self.machine.started(work, serial: serial, run: run)
        return run
    }

    struct Unexpected: Error {}

    // MARK: Requests

    @Test mutating func requestsGoToTheirHandler() throws {
        #expect(machine.received(type: 100, serial: 50, handling: .synchronous) == .runSynchronously)
        #expect(machine.inFlight == 0)
        let run = try start("a", serial: 50)
        #expect(machine.inFlight == 1)
        #expect(machine.finished(serial: 50, run: run) == .send)
        #expect(machine.inFlight == 0)
        #expect(machine.statistics[.requests] == 2)
    }

    @Test mutating func requestsAreAnsweredAtOnceWhereNothingSpeaksAgainstIt() throws {
        #expect(machine.serialsOnFastPath?.contains(50) == true)
        #expect(machine.statistics[.requests] == 0, "it may have a wrong checksum")
        machine.receivedOnFastPath()
        #expect(machine.statistics[.requests] == 1)
        #expect(machine.serialsOnFastPath?.contains(49) != true, "a reserved serial")
        let run = try start("a", serial: 50)
        #expect(machine.serialsOnFastPath?.contains(51) != true, "its serial may be in flight")
        #expect(machine.finished(serial: 50, run: run) == .send)
        #expect(machine.serialsOnFastPath?.contains(51) == true)
        machine.receivedOnFastPath()
        machine.drain()
        #expect(machine.serialsOnFastPath?.contains(52) != true, "draining")
        #expect(machine.statistics[.requests] == 3)
        var closed = Machine(maximumInFlight: 3)
        _ = closed.close()
        #expect(closed.serialsOnFastPath == nil)
    }

    @Test(arguments: [
        (Machine.Refusal.inFlight, Status.overloaded), (.bytes, .overloaded), (.rate, .overloaded),
        (.concurrency, .overloaded), (.deadline, .deadlineExceeded), (.noHello, .illegalFormat),
    ])
    mutating func requestThatALimitRefusesIsAnsweredAndTakesNothing(refusal: Machine.Refusal, status: Status) {
        #expect(machine.received(type: 100, serial: 50, handling: .asynchronous, refusal: refusal) == .answer(status))
        #expect(machine.received(type: 100, serial: 50, handling: .synchronous, refusal: refusal) == .answer(status))
        #expect(machine.inFlight == 0 && machine.bodyBytes == 0)
        #expect(machine.statistics[.requests] == 2)
        #expect(machine.statistics[.overloads] == (status == .overloaded ? 2 : 0))
        // The serial is free.
        #expect(machine.received(type: 100, serial: 50, handling: .asynchronous) == .start(1))
    }

    @Test func everyRequestHasTheNextNumberWhereAnswersAreKeptInOrder() {
        var machine = Machine(maximumInFlight: 3, numbersAll: true)
        func isAnswer(_ reception: Machine.Reception, _ expected: Machine.RunID) -> Bool {
            if case .answer(_, expected) = reception { true } else { false }
        }
        #expect(isAnswer(machine.receive(type: 100, serial: 1, handling: .none), 1), "a reserved serial")
        #expect(isAnswer(machine.receive(type: 100, serial: 50, isCorrupt: true, handling: .none), 2))
        #expect(machine.receivedIllegal() == 3)
        guard case .ignore = machine.receive(type: 1, serial: 0, handling: .none) else {
            Issue.record("a control frame has no number")
            return
        }
        let requests: [(handling: Machine.Handling, number: Machine.RunID)] = [(.synchronous, 4), (.asynchronous, 5)]
        for (handling, number) in requests {
            guard case .admit(let admission) = machine.receive(type: 100, serial: 60, handling: handling) else {
                Issue.record("refused")
                return
            }
            #expect(admission.number == number)
            let start = machine.admit(admission, bytes: 0, refusal: number == 5 ? .rate : nil)
            #expect(start == (number == 4 ? .runSynchronously(4) : .answer(.overloaded, 5)))
        }
    }

    @Test(arguments: [16, 0x1FFF_FFFF, 0x2000_0000, 0x8000_0064, .max] as [UInt32])
    mutating func unknownTypeIsAnsweredUndefinedType(type: UInt32) {
        #expect(machine.received(type: type, serial: 50, handling: .none) == .answer(.undefinedType))
        #expect(machine.statistics[.unknownTypes] == 1)
    }

    @Test(arguments: [0, 1, 5, 49] as [UInt32])
    mutating func reservedSerialIsAnsweredIllegalFormat(serial: UInt32) {
        #expect(machine.received(type: 100, serial: serial, handling: .synchronous) == .answer(.illegalFormat))
        #expect(machine.received(type: 100, serial: serial, handling: .asynchronous) == .answer(.illegalFormat))
        #expect(machine.statistics[.illegalRequests] == 2)
        #expect(machine.inFlight == 0)
    }

    @Test mutating func duplicateSerialIsAnsweredIllegalFormatAndTheFirstContinues() throws {
        let run = try start("a", serial: 50)
        #expect(machine.received(type: 100, serial: 50, handling: .asynchronous) == .answer(.illegalFormat))
        #expect(machine.received(type: 101, serial: 50, handling: .synchronous) == .answer(.illegalFormat))
        #expect(machine.finished(serial: 50, run: run) == .send)
        #expect(machine.received(type: 101, serial: 50, handling: .synchronous) == .runSynchronously)
    }

    @Test mutating func overTheLimitIsAnsweredOverloaded() throws {
        let first = try start("a", serial: 50)
        _ = try start("b", serial: 51)
        _ = try start("c", serial: 52)
        #expect(machine.received(type: 100, serial: 53, handling: .asynchronous) == .answer(.overloaded))
        #expect(machine.received(type: 101, serial: 53, handling: .synchronous) == .runSynchronously)
        #expect(machine.finished(serial: 50, run: first) == .send)
        _ = try start("d", serial: 53)
        #expect(machine.statistics[.overloads] == 1)
    }

    // MARK: Checksums

    @Test mutating func wrongChecksumIsAnsweredLostPacketAndTheConnectionStays() {
        let action = machine.received(type: 100, serial: 50, isCorrupt: true, handling: .synchronous)
        #expect(action == .answer(.lostPacket))
        #expect(machine.received(type: 100, serial: 50, handling: .synchronous) == .runSynchronously)
        #expect(machine.statistics[.badChecksums] == 1)
        #expect(machine.statistics[.requests] == 1)
    }

    @Test(arguments: [1, 2, 3, 15] as [UInt32])
    mutating func controlFramesWithAWrongChecksumAreNotAnswered(type: UInt32) throws {
        _ = try start("a", serial: 50)
        #expect(machine.received(type: type, serial: 50, isCorrupt: true, handling: .none) == .ignore)
        #expect(machine.inFlight == 1)
    }

    // MARK: Heartbeats

    @Test(arguments: [0, 5, 49, 50, .max] as [UInt32])
    mutating func heartbeatIsAnswered(serial: UInt32) {
        #expect(machine.received(type: 0, serial: serial, handling: .none) == .answer(.ok))
        #expect(machine.statistics[.heartbeatsAnswered] == 1)
    }

    @Test mutating func answerToOurPingIsNotAnswered() {
        machine.pinged()
        machine.pinged()
        #expect(machine.received(type: 0, serial: 0, handling: .none) == .answer(.ok))
        #expect(machine.received(type: 0, serial: 5, handling: .none) == .ignore)
        #expect(machine.received(type: 0, serial: 5, isCorrupt: true, handling: .none) == .ignore)
        #expect(machine.received(type: 0, serial: 5, handling: .none) == .ignore)
        #expect(machine.received(type: 0, serial: 5, handling: .none) == .answer(.ok))
        #expect(machine.statistics[.pingsSent] == 2)
    }

    @Test(arguments: [1, 3, 4, 5, 6, 7, 8, 15] as [UInt32])
    mutating func otherControlFramesAreIgnored(type: UInt32) {
        #expect(machine.received(type: type, serial: 50, handling: .none) == .ignore)
        #expect(machine.statistics[.ignoredControlFrames] == 1)
        #expect(machine.statistics[.requests] == 0)
    }

    // MARK: Cancel

    @Test mutating func cancelStopsTheHandlerAndItsResultIsDropped() throws {
        let run = try start("a", serial: 50)
        #expect(machine.received(type: 2, serial: 50, handling: .none) == .stop("a", 1))
        #expect(machine.inFlight == 0)
        #expect(machine.finished(serial: 50, run: run) == .drop)
        #expect(machine.statistics[.cancelledRequests] == 1)
    }

    @Test mutating func cancelThatComesTooLateIsIgnored() throws {
        let run = try start("a", serial: 50)
        #expect(machine.finished(serial: 50, run: run) == .send)
        #expect(machine.received(type: 2, serial: 50, handling: .none) == .ignore)
        #expect(machine.received(type: 2, serial: 0, handling: .none) == .ignore)
        #expect(machine.statistics[.ignoredControlFrames] == 2)
    }

    @Test mutating func resultOfAStoppedHandlerDoesNotAnswerItsSuccessorWithTheSameSerial() throws {
        let first = try start("a", serial: 50)
        #expect(machine.received(type: 2, serial: 50, handling: .none) == .stop("a", 1))
        let second = try start("b", serial: 50)
        #expect(machine.finished(serial: 50, run: first) == .drop)
        #expect(machine.inFlight == 1)
        #expect(machine.finished(serial: 50, run: second) == .send)
    }

    @Test mutating func handlersThatIgnoreCancellationCannotPileUp() throws {
        var runs: [Machine.RunID] = []
        for _ in 0..<3 {
            let run = try start("a", serial: 50)
            runs.append(run)
            #expect(machine.received(type: 2, serial: 50, handling: .none) == .stop("a", run))
        }
        #expect(machine.received(type: 100, serial: 50, handling: .asynchronous) == .answer(.overloaded))
        #expect(machine.finished(serial: 50, run: runs[0]) == .drop)
        _ = try start("b", serial: 50)
    }

    // MARK: The end

    @Test mutating func drainingRefusesNewRequestsAndFinishesOldOnes() throws {
        let run = try start("a", serial: 50)
        #expect(!machine.isFinished)
        machine.drain()
        #expect(!machine.isFinished)
        #expect(machine.received(type: 100, serial: 51, handling: .asynchronous) == .answer(.draining))
        #expect(machine.received(type: 100, serial: 51, handling: .synchronous) == .answer(.draining))
        #expect(machine.received(type: 100, serial: 51, handling: .none) == .answer(.draining))
        #expect(machine.received(type: 0, serial: 0, handling: .none) == .answer(.ok))
        #expect(machine.finished(serial: 50, run: run) == .send)
        #expect(machine.isFinished)
        #expect(machine.statistics[.refusedWhileDraining] == 3)
    }

    @Test mutating func closedInputFinishesOnceEverythingIsAnswered() throws {
        let run = try start("a", serial: 50)
        machine.closedInput()
        #expect(!machine.isFinished)
        #expect(machine.finished(serial: 50, run: run) == .send)
        #expect(machine.isFinished)
    }

    @Test mutating func closingStopsWhatIsInFlight() throws {
        let run = try start("a", serial: 50)
        _ = try start("b", serial: 51)
        #expect(machine.close().sorted() == ["a", "b"])
        #expect(machine.close() == [])
        #expect(machine.finished(serial: 50, run: run) == .drop)
        #expect(machine.received(type: 100, serial: 52, handling: .synchronous) == .ignore)
    }

    // MARK: Frames that ask for nothing

    @Test mutating func framesThatAskForNothingAreCounted() throws {
        let frames: [(type: UInt32, serial: UInt32, isCorrupt: Bool, handling: Machine.Handling)] = [
            (0, 0, false, .none), (0, 0, true, .none), (2, 77, false, .none), (7, 0, false, .none),
            (100, 50, true, .synchronous), (100, 49, false, .synchronous), (99, 50, false, .none),
        ]
        for frame in frames {
            _ = machine.received(
                type: frame.type,
                serial: frame.serial,
                isCorrupt: frame.isCorrupt,
                handling: frame.handling
            )
            let count = machine.takeUnproductiveFrames()
            #expect(count == 1, "\(frame)")
        }
        _ = machine.received(type: 100, serial: 50, handling: .synchronous, refusal: .noHello)
        _ = machine.receivedIllegal()
        _ = machine.receivedMalformed(type: nil, serial: nil)
        #expect(machine.unproductiveFrames == 3)
        #expect(machine.takeUnproductiveFrames() == 3)
        #expect(machine.takeUnproductiveFrames() == 0)
    }

    @Test mutating func requestsAndWhatBelongsToThemAreNotAmongThem() throws {
        _ = machine.received(type: 100, serial: 50, handling: .synchronous)
        for refusal in [.inFlight, .bytes, .rate, .concurrency, .deadline] as [Machine.Refusal] {
            _ = machine.received(type: 100, serial: 50, handling: .synchronous, refusal: refusal)
        }
        _ = try start("a", serial: 50)
        #expect(machine.received(type: 2, serial: 50, handling: .none) == .stop("a", 1))
        // The answer to our ping.
        machine.pinged()
        _ = machine.received(type: 0, serial: 5, handling: .none)
        machine.drain()
        _ = machine.received(type: 100, serial: 50, handling: .synchronous)
        #expect(machine.unproductiveFrames == 0)
    }

    @Test mutating func limitMayChange() throws {
        machine.maximumInFlight = 1
        _ = try start("a", serial: 50)
        #expect(machine.received(type: 100, serial: 51, handling: .asynchronous) == .answer(.overloaded))
        machine.maximumInFlight = 2
        _ = try start("b", serial: 51)
        #expect(machine.received(type: 100, serial: 52, handling: .asynchronous) == .answer(.overloaded))
        #expect(
            machine.received(type: 100, serial: 53, handling: .synchronous, refusal: .compression)
                == .answer(.noPermission)
        )
    }
}
