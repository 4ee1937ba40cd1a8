// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketOutbox

/// A machine in virtual time, whose actions are described as text.
private struct Rig {
    var machine: OutboxMachine
    var now = OutboxMachine.Moment(
        date: Date(timeIntervalSince1970: 1_000_000),
        uptime: .uptimeNanoseconds(3_600_000_000_000)
    )
    var generator = SeededGenerator(seed: 7)
    /// The numbers of attempts that were written to disk.
    private(set) var counted: [Int64: Int] = [:]
    private var lastID: Int64 = 0

    init(isConnected: Bool = true, _ configure: (inout OutboxConfiguration) -> Void = { _ in }) {
        var configuration = OutboxConfiguration()
        configuration.backoff.jitter = 0
        configure(&configuration)
        self.machine = OutboxMachine(configuration)
        self.machine.connectivityChanged(isConnected)
    }

    mutating func advance(by time: Duration) -> [String] {
        self.now.uptime = self.now.uptime + TimeAmount(time)
        self.now.date += Double(time.components.seconds)
        return self.reported([])
    }

    mutating func add(_ topic: String, bytes: Int = 100, timeToLive: Double? = nil) -> [String] {
        guard self.machine.reserve(bytes: bytes) == nil else { return ["full"] }
        self.lastID += 1
        let entry = OutboxEntry(
            id: .init(rawValue: self.lastID),
            topic: topic,
            key: "\(self.lastID)",
            type: 130,
            byteCount: bytes,
            enqueued: self.now.date,
            expires: timeToLive.map { self.now.date + $0 },
            mayHaveBeenSent: false
        )
        return self.reported(
            self.machine.added(entry).filter { if case .report(.enqueued) = $0 { false } else { true } }
        )
    }

    mutating func connected(_ isConnected: Bool) -> [String] {
        self.machine.connectivityChanged(isConnected)
        return self.reported([])
    }

    mutating func delivered(_ id: Int64) -> [String] {
        let response = SocketResponse(type: 130, body: ByteBuffer(), endpoint: Endpoint(host: "fake", port: 1))
        return self.finished(id, .delivered(response))
    }

    mutating func failed(
        _ id: Int64,
        _ code: SocketError.Code,
        _ delivery: SocketError.Delivery,
        _ verdict: OutboxVerdict? = nil
    ) -> [String] {
        let error = SocketError(code, message: "", delivery: delivery)
        return self.finished(id, .failed(error, verdict ?? .standard(for: error)))
    }

    mutating func finished(_ id: Int64, _ outcome: OutboxMachine.Outcome) -> [String] {
        self.reported(self.machine.finished(.init(rawValue: id), outcome, now: self.now, using: &self.generator))
    }

    mutating func withdraw(_ id: Int64) -> [String]? {
        self.machine.withdraw(.init(rawValue: id)).map { self.reported($0) }
    }

    mutating func resume(_ topic: String) -> [String] {
        self.reported(self.machine.resume(topic: topic))
    }

    /// Reports that an action on the disk has failed.
    mutating func diskFailed(_ action: OutboxMachine.Action) -> [String] {
        self.reported(self.machine.failed(action, OutboxError(.storageFailed, message: ""), now: self.now))
    }

    mutating func reported(_ actions: [OutboxMachine.Action]) -> [String] {
        (actions + self.machine.step(now: self.now)).compactMap { action in
            switch action {
            case .send(let entry):
                return "send \(entry.id)"
            case .remove(_, let event):
                return "remove, \(EventRecord.text(event))"
            case .bury(let letter):
                return "bury, \(EventRecord.text(.deadLettered(letter)))"
            case .count(let id, let attempts):
                self.counted[id.rawValue] = attempts
                return nil
            case .report(.retrying(let entry, _, let delay)):
                return "retry \(entry.id) in \(delay)"
            case .report(let event):
                return EventRecord.text(event)
            }
        }
    }

    var nextStep: Duration? { self.machine.nextStep(now: self.now) }
}

@Suite(.timeLimit(.minutes(30))) struct OutboxMachineTests {
    // MARK: Order

    @Test func withinATopicAMessageIsSentWhenThePreviousOneIsAnswered() {
        var rig = Rig()
        #expect(rig.add("a") == ["send 1"])
        #expect(rig.add("a") == [])
        #expect(rig.add("a") == [])
        #expect(rig.delivered(1) == ["remove, delivered 1", "send 2"])
        // A second answer has no effect.
        #expect(rig.delivered(1) == [])
        #expect(rig.delivered(2) == ["remove, delivered 2", "send 3"])
        #expect(rig.delivered(3) == ["remove, delivered 3"])
        #expect(rig.machine.pending.isEmpty)
        #expect(rig.machine.snapshot.topics.isEmpty)
    }

    @Test func topicsAreSentConcurrentlyUpToALimit() {
        var rig = Rig { $0.maximumConcurrency = 2 }
        #expect(rig.add("a") == ["send 1"])
        #expect(rig.add("b") == ["send 2"])
        #expect(rig.add("c") == [])
        #expect(rig.add("a") == [])
        // The topic that has waited longest is served first.
        #expect(rig.delivered(1) == ["remove, delivered 1", "send 3"])
        #expect(rig.delivered(2) == ["remove, delivered 2", "send 4"])
    }

    @Test func withoutAConnectionNothingIsSentOrDue() {
        var rig = Rig(isConnected: false)
        #expect(rig.add("a") == [])
        #expect(rig.nextStep == nil)
        #expect(rig.advance(by: .seconds(1_000)) == [])
        #expect(rig.connected(true) == ["send 1"])
        #expect(rig.connected(false) == [])
        // The attempt has ended before the request was sent, so the next connection starts another one immediately.
        #expect(rig.failed(1, .notConnected, .notSent) == ["retry 1 in 1.0 seconds"])
        #expect(rig.advance(by: .seconds(5)) == [])
        #expect(rig.connected(true) == ["send 1"])
    }

    @Test func messagesOnDiskAreSentFirstAndInOrder() {
        var rig = Rig(isConnected: false)
        let entries = (1...4).map { number in
            OutboxEntry(
                id: .init(rawValue: Int64(number)),
                topic: number % 2 == 0 ? "even" : "odd",
                key: "\(number)",
                type: 130,
                byteCount: 10,
                enqueued: rig.now.date,
                mayHaveBeenSent: true
            )
        }
        rig.machine.load(entries)
        #expect(rig.machine.pending.map(\.id.rawValue) == [1, 2, 3, 4])
        #expect(rig.connected(true) == ["send 1", "send 2"])
        #expect(rig.delivered(2) == ["remove, delivered 2", "send 4"])
        #expect(rig.delivered(1) == ["remove, delivered 1", "send 3"])
    }

    // MARK: Failures

    @Test func failuresDelayOnlyTheirTopicForGrowingTimes() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.add("b") == ["send 3"])
        #expect(rig.failed(1, .overloaded, .answered) == ["retry 1 in 1.0 seconds"])
        #expect(rig.delivered(3) == ["remove, delivered 3"])
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            #expect(rig.nextStep == .seconds(seconds))
            #expect(rig.advance(by: .seconds(seconds)) == ["send 1"])
            let next = min(60, seconds * 2)
            #expect(rig.failed(1, .connectionLost, .sentUnknown) == ["retry 1 in \(Double(next)) seconds"])
        }
        // A new connection does not end the back-off after a failure that the message may have caused.
        #expect(rig.connected(false) == [])
        #expect(rig.connected(true) == [])
        #expect(rig.advance(by: .seconds(60)) == ["send 1"])
        #expect(rig.delivered(1) == ["remove, delivered 1", "send 2"])
        // The back-off starts over with the next message.
        #expect(rig.failed(2, .timeout, .sentUnknown) == ["retry 2 in 1.0 seconds"])
        #expect(rig.machine.pending.map(\.attempts) == [1])
        #expect(rig.machine.pending.map(\.mayHaveBeenSent) == [true])
    }

    @Test func waitsAreRandom() {
        var shares: Set<Duration> = []
        for seed in 0..<20 as Range<UInt64> {
            var rig = Rig { $0.backoff.jitter = 1 }
            rig.generator = SeededGenerator(seed: seed)
            _ = rig.add("a")
            _ = rig.failed(1, .overloaded, .answered)
            if let next = rig.nextStep {
                #expect(next <= .seconds(1))
                shares.insert(next)
            }
        }
        #expect(shares.count == 20)
    }

    @Test func finalAnswerMakesADeadLetterAndTheTopicContinues() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.failed(1, .illegalFormat, .answered) == ["bury, dead 1 refused", "send 2"])
        #expect(rig.failed(2, .server(Status(rawValue: 777)), .answered) == ["bury, dead 2 refused"])
        #expect(rig.machine.pending.isEmpty)
        let snapshot = rig.machine.snapshot
        #expect((snapshot.count, snapshot.deadLetterCount, snapshot.deadLetterBytes) == (0, 2, 200))
    }

    @Test func messagesAreDeletedOnlyByTheAppsVerdict() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.failed(1, .illegalFormat, .answered, .discard) == ["remove, failed 1 illegalFormat", "send 2"])
        #expect(rig.machine.snapshot.deadLetterCount == 0)
    }

    @Test func attemptsAreLimitedAndThenTheTopicContinues() {
        var rig = Rig { $0.maximumAttempts = 3 }
        _ = rig.add("a")
        _ = rig.add("a")
        let codes: [SocketError.Code] = [.undefinedType, .noPermission]
        for (index, code) in codes.enumerated() {
            #expect(rig.failed(1, code, .answered) == ["retry 1 in \(Double(index + 1)) seconds"])
            #expect(rig.counted == [1: index + 1])
            #expect(rig.advance(by: .seconds(index + 1)) == ["send 1"])
        }
        // For example because of a handler that crashes the server.
        #expect(rig.failed(1, .connectionLost, .sentUnknown) == ["bury, dead 1 exhausted", "send 2"])
        #expect(rig.counted == [1: 3])
        // The next message has all its attempts.
        #expect(rig.failed(2, .connectionLost, .sentUnknown) == ["retry 2 in 1.0 seconds"])
    }

    @Test func attemptsOfEarlierProcessesCount() {
        var rig = Rig { $0.maximumAttempts = 3 }
        let entry = OutboxEntry(
            id: .init(rawValue: 7),
            topic: "a",
            key: "7",
            type: 130,
            byteCount: 10,
            enqueued: rig.now.date,
            attempts: 2,
            mayHaveBeenSent: true
        )
        rig.machine.load([entry])
        #expect(rig.reported([]) == ["send 7"])
        #expect(rig.failed(7, .unknown, .answered) == ["bury, dead 7 exhausted"])
    }

    @Test func attemptsThatWereNotSentDoNotCount() {
        var rig = Rig { $0.maximumAttempts = 2 }
        _ = rig.add("a")
        for code in [.featureNotAgreed, .notConnected, .interceptorFailed, .timeout] as [SocketError.Code] {
            #expect(rig.failed(1, code, .notSent).first?.hasPrefix("retry 1") == true)
            #expect(rig.connected(true) == ["send 1"])
        }
        #expect(rig.counted.isEmpty)
        #expect(rig.machine.pending.map(\.attempts) == [0])
    }

    @Test func exhaustedMessageMaySuspendItsTopicInstead() {
        var rig = Rig {
            $0.maximumAttempts = 2
            $0.whenExhausted = .suspendTopic
        }
        _ = rig.add("a")
        _ = rig.add("a")
        _ = rig.failed(1, .database, .answered)
        #expect(rig.advance(by: .seconds(1)) == ["send 1"])
        #expect(rig.failed(1, .database, .answered) == ["suspended 1 database"])
        #expect(rig.advance(by: .seconds(1_000)) == [])
        // After a resume it has all its attempts again, also in the next process.
        #expect(rig.resume("a") == ["send 1"])
        #expect(rig.counted == [1: 0])
        #expect(rig.failed(1, .database, .answered).first?.hasPrefix("retry 1") == true)
        #expect(rig.counted == [1: 1])
    }

    @Test func withoutAnAgreementOnKeysAMessageStays() {
        var rig = Rig()
        _ = rig.add("a")
        #expect(rig.failed(1, .featureNotAgreed, .notSent) == ["retry 1 in 1.0 seconds"])
        // The next connection may be another server's.
        #expect(rig.connected(true) == ["send 1"])
    }

    @Test func aSuspendedTopicSendsNothingUntilItIsResumed() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.failed(1, .invalidArgument, .notSent) == ["suspended 1 invalidArgument"])
        #expect(rig.machine.snapshot.topics["a"]?.isSuspended == true)
        #expect(rig.connected(true) == [])
        #expect(rig.advance(by: .seconds(1_000)) == [])
        #expect(rig.nextStep == nil)
        #expect(rig.add("b") == ["send 3"])
        #expect(rig.resume("a") == ["send 1"])
        _ = rig.failed(1, .invalidArgument, .notSent)
        // Without the message that suspended it, the topic continues.
        #expect(rig.withdraw(1) == ["remove, withdrawn 1", "send 2"])
    }

    @Test(
        arguments: [
            (.connectionLost, .sentUnknown, .retry), (.timeout, .sentUnknown, .retry), (.timeout, .notSent, .retry),
            (.notConnected, .notSent, .retry), (.queueFull, .notSent, .retry), (.cancelled, .sentUnknown, .retry),
            (.featureNotAgreed, .notSent, .retry), (.checksumMismatch, .sentUnknown, .retry),
            (.interceptorFailed, .notSent, .retry), (.protocolViolation, .answered, .retry),
            (.overloaded, .answered, .retry), (.draining, .answered, .retry), (.lostPacket, .answered, .retry),
            (.serverLostConnection, .answered, .retry), (.deadlineExceeded, .answered, .retry),
            (.cancelledByServer, .answered, .retry), (.frameTooLarge, .answered, .retry),
            (.undefinedType, .answered, .retry), (.noPermission, .answered, .retry),
            (.unknown, .answered, .retry), (.database, .answered, .retry),
            (.server(Status(rawValue: 777)), .answered, .deadLetter), (.illegalFormat, .answered, .deadLetter),
            (.protobufFailed, .answered, .deadLetter), (.notModified, .answered, .deadLetter),
            (.illegalLength, .answered, .deadLetter), (.frameTooLarge, .notSent, .deadLetter),
            (.invalidArgument, .notSent, .suspendTopic),
        ] as [(SocketError.Code, SocketError.Delivery, OutboxVerdict)]
    )
    func verdicts(code: SocketError.Code, delivery: SocketError.Delivery, verdict: OutboxVerdict) {
        #expect(OutboxVerdict.standard(for: SocketError(code, message: "", delivery: delivery)) == verdict)
    }

    /// An answer that the server keeps for a key is never retried, and one that is retried is not kept.
    @Test func verdictsOnAnswersAreThoseOfTheSharedTable() {
        for number in 1...1_000 as ClosedRange<UInt32> where number != Status.ok.rawValue {
            let status = Status(rawValue: number)
            let verdict = OutboxVerdict.standard(for: SocketError(.init(status), message: "", delivery: .answered))
            #expect(verdict == (status.isKept ? .deadLetter : .retry), "\(status)")
            #expect((verdict == .retry) == status.isTransient, "\(status)")
        }
    }

    // MARK: Time to live

    @Test func messagesExpireAtEveryPositionOfTheQueue() {
        var rig = Rig(isConnected: false)
        _ = rig.add("a", timeToLive: 100)
        _ = rig.add("a", timeToLive: 10)
        _ = rig.add("a")
        #expect(rig.nextStep == .seconds(10))
        #expect(rig.advance(by: .seconds(9)) == [])
        #expect(rig.advance(by: .seconds(1)) == ["remove, expired 2"])
        #expect(rig.nextStep == .seconds(90))
        #expect(rig.advance(by: .seconds(90)) == ["remove, expired 1"])
        #expect(rig.nextStep == nil)
        #expect(rig.connected(true) == ["send 3"])
    }

    @Test func aMessageInFlightExpiresWhenItsAttemptHasFailed() {
        var rig = Rig()
        _ = rig.add("a", timeToLive: 10)
        _ = rig.add("a")
        #expect(rig.advance(by: .seconds(20)) == [])
        // No repeated wake-ups are scheduled.
        #expect(rig.nextStep == nil)
        #expect(
            rig.failed(1, .connectionLost, .sentUnknown)
                == ["retry 1 in 1.0 seconds", "remove, expired 1, perhaps sent"]
        )
        #expect(rig.advance(by: .seconds(1)) == ["send 2"])
    }

    @Test func aMessageInFlightThatIsAnsweredAfterItsTimeIsDelivered() {
        var rig = Rig()
        _ = rig.add("a", timeToLive: 10)
        _ = rig.advance(by: .seconds(20))
        #expect(rig.delivered(1) == ["remove, delivered 1"])
        #expect(rig.advance(by: .seconds(20)) == [])
    }

    @Test func messagesDeliveredLongAgoAreForgotten() {
        var rig = Rig()
        for id in 1...10_000 as ClosedRange<Int64> {
            _ = rig.add("a", timeToLive: 600_000)
            _ = rig.delivered(id)
        }
        #expect(rig.machine.expiryCount < 200)
    }

    // MARK: Bounds

    @Test func theNumberOfMessagesIsBounded() {
        var rig = Rig(isConnected: false) { $0.maximumCount = 2 }
        #expect(rig.add("a") == [])
        #expect(rig.add("b") == [])
        #expect(rig.add("c") == ["full"])
        #expect(rig.connected(true) == ["send 1", "send 2"])
        #expect(rig.add("c") == ["full"])
        _ = rig.delivered(1)
        #expect(rig.add("c") == ["send 3"])
    }

    @Test func theBytesOfMessagesAreBounded() {
        var rig = Rig(isConnected: false) { $0.maximumBytes = 1_000 }
        #expect(rig.add("a", bytes: 1_001) == ["full"])
        #expect(rig.add("a", bytes: .max) == ["full"])
        #expect(rig.add("a", bytes: 600) == [])
        #expect(rig.add("a", bytes: 401) == ["full"])
        #expect(rig.add("a", bytes: 400) == [])
        #expect(rig.machine.reserve(bytes: 1) == .bytes)
        _ = rig.withdraw(1)
        #expect(rig.machine.reserve(bytes: 600) == nil)
        rig.machine.unreserve(bytes: 600)
        #expect(rig.machine.snapshot.bytes == 400)
    }

    @Test func deadLettersAreBoundedByRejectingNewMessages() {
        var rig = Rig { $0.maximumDeadLetters = 2 }
        for id in 1...2 as ClosedRange<Int64> {
            _ = rig.add("a")
            _ = rig.failed(id, .illegalFormat, .answered)
        }
        #expect(rig.machine.reserve(bytes: 1) == .deadLetters)
        rig.machine.deadLetterRemoved(bytes: 100)
        #expect(rig.add("a") == ["send 3"])
        #expect(rig.machine.snapshot.deadLetterCount == 1)
    }

    @Test func bytesOfDeadLettersCount() {
        var rig = Rig { $0.maximumBytes = 1_000 }
        _ = rig.add("a", bytes: 600)
        _ = rig.failed(1, .illegalFormat, .answered)
        #expect(rig.machine.reserve(bytes: 401) == .bytes)
        #expect(rig.add("a", bytes: 400) == ["send 2"])
        _ = rig.delivered(2)
        // The dead letter is resent with a longer key.
        #expect(rig.machine.reserveForDeadLetter() == true)
        var entry = OutboxEntry(
            id: .init(rawValue: 9),
            topic: "a",
            key: "9",
            type: 130,
            byteCount: 610,
            enqueued: rig.now.date,
            mayHaveBeenSent: false
        )
        entry.expires = nil
        #expect(rig.reported(rig.machine.resent(entry, deadLetterBytes: 600)) == ["enqueued 9", "send 9"])
        let snapshot = rig.machine.snapshot
        #expect((snapshot.bytes, snapshot.deadLetterCount, snapshot.deadLetterBytes) == (610, 0, 0))
        #expect(rig.machine.reserve(bytes: 391) == .bytes)
        #expect(rig.machine.reserve(bytes: 390) == nil)
    }

    @Test func resendingIsBoundedByTheCountOfMessages() {
        var rig = Rig(isConnected: false) { $0.maximumCount = 1 }
        rig.machine.load([], deadLetterCount: 2, deadLetterBytes: 200)
        #expect(rig.machine.reserveForDeadLetter() == true)
        #expect(rig.machine.reserveForDeadLetter() == false)
        rig.machine.unreserveForDeadLetter()
        #expect(rig.add("a") == [])
        #expect(rig.machine.reserveForDeadLetter() == false)
    }

    @Test func numbersOfWithdrawnMessagesAreForgottenBehindASuspendedOne() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.failed(1, .invalidArgument, .notSent)
        for id in 2...5_000 as ClosedRange<Int64> {
            _ = rig.add("a")
            #expect(rig.withdraw(id) == ["remove, withdrawn \(id)"])
        }
        #expect(rig.machine.queueLength(ofTopic: "a") < 100)
        _ = rig.add("a")
        #expect(rig.withdraw(1) == ["remove, withdrawn 1", "send 5001"])
    }

    @Test func aMessageInFlightCannotBeWithdrawn() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.withdraw(1) == nil)
        #expect(rig.withdraw(2) == ["remove, withdrawn 2"])
        #expect(rig.withdraw(2) == nil)
        #expect(rig.withdraw(99) == nil)
        #expect(rig.delivered(1) == ["remove, delivered 1"])
    }

    // MARK: The disk

    @Test func failedRemovalIsRetriedAndTheMessageIsNotSent() {
        var rig = Rig { $0.maximumCount = 2 }
        _ = rig.add("a")
        _ = rig.add("a")
        let entries = rig.machine.pending
        _ = rig.delivered(1)
        _ = rig.delivered(2)
        // Several failures together cause one report.
        #expect(rig.diskFailed(.remove(entries[0], .withdrawn(entries[0]))) == ["storage storageFailed"])
        let letter = OutboxDeadLetter(entries[1], .refused, explanation: "", date: rig.now.date)
        #expect(rig.diskFailed(.bury(letter)) == [])
        // They are still on disk, and count towards the limits.
        #expect(rig.machine.reserve(bytes: 1) == .count)
        #expect(rig.nextStep == .seconds(5))
        #expect(rig.advance(by: .seconds(4)) == [])
        #expect(rig.advance(by: .seconds(1)) == ["remove, withdrawn 1", "bury, dead 2 refused"])
        #expect(rig.nextStep == nil)
        #expect(rig.machine.reserve(bytes: 1) == nil)
        // Each round of retries reports its failure.
        #expect(rig.diskFailed(.bury(letter)) == ["storage storageFailed"])
    }

    @Test func unreadableMessagesWaitAndMissingOnesAreForgotten() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.finished(1, .unreadable(OutboxError(.storageFailed, message: ""))) == ["storage storageFailed"])
        #expect(rig.advance(by: .seconds(1)) == ["send 1"])
        #expect(rig.finished(1, .missing) == ["send 2"])
    }

    @Test func damagedRowBecomesADeadLetterAndDoesNotBlockItsTopic() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(
            rig.finished(1, .damaged(OutboxError(.corrupted, message: "")))
                == ["bury, dead 1 unreadable", "send 2"]
        )
    }

    @Test func damageOfTheFileBuriesNoMessage() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("a")
        #expect(rig.finished(1, .unreadable(OutboxError(.corrupted, message: ""))) == ["storage corrupted"])
        #expect(rig.advance(by: .seconds(1)) == ["send 1"])
        #expect(rig.finished(1, .unreadable(OutboxError(.corrupted, message: ""))) == ["storage corrupted"])
    }

    @Test func afterAStopNothingIsSentAndMessagesStay() {
        var rig = Rig()
        _ = rig.add("a")
        _ = rig.add("b")
        _ = rig.add("b")
        rig.machine.stop()
        #expect(rig.failed(1, .cancelled, .sentUnknown) == [])
        // An answer that arrives at this moment counts.
        #expect(rig.delivered(2) == ["remove, delivered 2"])
        #expect(rig.machine.pending.map(\.id.rawValue) == [1, 3])
        #expect(rig.nextStep == nil)
    }

    // MARK: Histories

    /// Checks random events: the order within topics, the bounds, and that no message is forgotten.
    @Test func randomHistories() throws {
        for seed in 0..<UInt64(scaled(600)) {
            var generator = SeededGenerator(seed: seed)
            let concurrency = Int.random(in: 1...3, using: &generator)
            var rig = Rig(isConnected: Bool.random(using: &generator)) {
                $0.maximumConcurrency = concurrency
                $0.maximumCount = 12
                $0.maximumAttempts = 3
                $0.backoff.jitter = 1
            }
            rig.generator = SeededGenerator(seed: seed &* 31)
            var isConnected = rig.machine.isConnected
            var topicOf: [Int64: String] = [:]
            var inFlight: Set<Int64> = []
            var waiting: Set<Int64> = []
            var added: Int64 = 0
            var buried = 0

            func take(_ reported: [String], _ what: String) throws {
                for text in reported {
                    let words = text.split(separator: " ")
                    // The first number: "expired 5, perhaps sent", "retry 5 in 1.0 seconds".
                    guard let id = words.compactMap({ Int64($0.filter(\.isNumber)) }).first else { continue }
                    if text.hasPrefix("send") {
                        try #require(isConnected && waiting.contains(id), "seed \(seed), \(what): \(text)")
                        // No earlier message of its topic waits or is in flight.
                        let others = waiting.filter { topicOf[$0] == topicOf[id] && $0 < id }
                        try #require(others.isEmpty, "seed \(seed), \(what): \(text) before \(others)")
                        try #require(
                            inFlight.allSatisfy { topicOf[$0] != topicOf[id] },
                            "seed \(seed), \(what): \(text)"
                        )
                        inFlight.insert(id)
                        try #require(inFlight.count <= concurrency, "seed \(seed), \(what): \(text)")
                    } else if text.hasPrefix("remove,") || text.hasPrefix("bury,") {
                        if text.hasPrefix("bury,") { buried += 1 }
                        try #require(waiting.remove(id) != nil, "seed \(seed), \(what): \(text)")
                        inFlight.remove(id)
                    } else if text.hasPrefix("retry") || text.hasPrefix("suspended") {
                        try #require(inFlight.remove(id) != nil, "seed \(seed), \(what): \(text)")
                    }
                }
            }

            for _ in 0..<60 {
                switch Int.random(in: 0..<12, using: &generator) {
                case 0...3:
                    let topic = ["a", "b", "c", "d"][Int.random(in: 0..<4, using: &generator)]
                    let life: Double? = Int.random(in: 0..<3, using: &generator) == 0 ? 20 : nil
                    topicOf[added + 1] = topic
                    waiting.insert(added + 1)
                    let reported = rig.add(topic, timeToLive: life)
                    if reported == ["full"] {
                        waiting.remove(added + 1)
                        try #require(waiting.count == 12, "seed \(seed): full with \(waiting.count)")
                    } else {
                        added += 1
                        try take(reported, "add")
                    }
                case 4, 5:
                    isConnected.toggle()
                    try take(rig.connected(isConnected), "connection")
                case 6:
                    try take(rig.advance(by: .seconds(Int.random(in: 0...30, using: &generator))), "time")
                case 7:
                    guard let id = waiting.sorted().randomElement(using: &generator) else { break }
                    let reported = rig.withdraw(id)
                    try #require((reported == nil) == inFlight.contains(id), "seed \(seed), withdraw \(id)")
                    try take(reported ?? [], "withdraw")
                default:
                    guard let id = inFlight.sorted().randomElement(using: &generator) else { break }
                    switch Int.random(in: 0..<6, using: &generator) {
                    case 0: try take(rig.failed(id, .overloaded, .answered), "overloaded")
                    case 1: try take(rig.failed(id, .connectionLost, .sentUnknown), "lost")
                    case 2: try take(rig.failed(id, .notConnected, .notSent), "not sent")
                    case 3: try take(rig.failed(id, .illegalFormat, .answered), "refused")
                    default: try take(rig.delivered(id), "delivered")
                    }
                }
                let snapshot = rig.machine.snapshot
                try #require(snapshot.count == waiting.count, "seed \(seed)")
                try #require(snapshot.bytes == waiting.count * 100, "seed \(seed)")
                try #require(snapshot.deadLetterCount == buried, "seed \(seed)")
                try #require(snapshot.deadLetterBytes == buried * 100, "seed \(seed)")
                try #require(rig.machine.pending.map(\.id.rawValue) == waiting.sorted(), "seed \(seed)")
            }
            // In the end all messages are sent.
            if !isConnected {
                isConnected = true
                try take(rig.connected(true), "at last")
            }
            for _ in 0..<200 where !waiting.isEmpty {
                for id in inFlight.sorted() { try take(rig.delivered(id), "at last") }
                try take(rig.advance(by: .seconds(61)), "at last")
            }
            try #require(waiting.isEmpty, "seed \(seed): \(waiting) never left")
        }
    }
}
#endif
