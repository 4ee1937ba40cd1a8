// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTransfers

/// The decisions to retry a transfer, to leave its connection, and to consider it stalled.
@Suite struct TransferAttemptsTests {
    private typealias Attempts = TransferAttempts<SeededGenerator>

    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private let lost = SocketError(.connectionLost, message: "lost", delivery: .sentUnknown)
    private let overloaded = SocketError(.overloaded, message: "overloaded", delivery: .answered)

    private func attempts(seed: UInt64 = 1) -> Attempts {
        Attempts(settings: Attempts.Settings(), generator: SeededGenerator(seed: seed))
    }

    /// Lets time pass, by the attempts' own timer, until something is due or until `end`.
    private func next(_ attempts: inout Attempts, until end: NIODeadline) -> (due: Attempts.Due, at: NIODeadline)? {
        while let deadline = attempts.nextDeadline, deadline <= end {
            if let due = attempts.timePassed(now: deadline) { return (due, deadline) }
        }
        return nil
    }

    @Test func withoutAConnectionItStallsWhenTheTimeoutHasPassedAndNotBefore() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        let due = self.next(&attempts, until: Self.start + .hours(1))
        #expect(due?.due == .stalled && due?.at == Self.start + .seconds(60))
    }

    @Test func aConnectionIsNoProgress() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        _ = self.next(&attempts, until: Self.start + .seconds(50))
        attempts.opened(now: Self.start + .seconds(50))
        let due = self.next(&attempts, until: Self.start + .hours(1))
        #expect(due?.due == .stalled && due?.at == Self.start + .seconds(60))
    }

    @Test func aConnectionOnWhichNothingMovesIsLeftAfterAThirdOfTheTimeout() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        attempts.opened(now: Self.start)
        let due = self.next(&attempts, until: Self.start + .hours(1))
        #expect(due?.due == .replaceConnection && due?.at == Self.start + .seconds(20))
        let opens = attempts.connectionChanged()
        #expect(opens)
        #expect(attempts.phase == .opening)
    }

    @Test func oneThatCannotBeLeftIsTriedAgain() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        attempts.opened(now: Self.start)
        _ = self.next(&attempts, until: Self.start + .hours(1))
        let due = self.next(&attempts, until: Self.start + .hours(1))
        #expect(due?.due == .attempt && due?.at == Self.start + .seconds(40))
    }

    @Test func aByteNowAndThenKeepsItAndItsConnection() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        attempts.opened(now: Self.start)
        for second in stride(from: Int64(15), through: 600, by: 15) {
            let now = Self.start + .seconds(second)
            #expect(self.next(&attempts, until: now) == nil)
            let isProved = attempts.moved(1, isGain: false, now: now)
            #expect(!isProved)
        }
    }

    @Test func sixtyFourKibibytesCountOnceAsHavingBeenReady() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        attempts.opened(now: Self.start)
        let proves = [65_535, 1, 65_536].map { attempts.moved($0, isGain: true, now: Self.start) }
        #expect(proves == [false, true, false])
    }

    @Test(arguments: 1...UInt64(20)) func afterThemTheNextAttemptComesWithinASecond(seed: UInt64) throws {
        var attempts = self.attempts(seed: seed)
        attempts.begin(now: Self.start)
        // Ten failures have increased the back-off.
        for _ in 0..<10 { attempts.failed(self.overloaded, now: Self.start) }
        attempts.begin(now: Self.start)
        attempts.opened(now: Self.start)
        _ = attempts.moved(65_536, isGain: true, now: Self.start)
        attempts.failed(self.overloaded, now: Self.start)
        let due = try #require(self.next(&attempts, until: Self.start + .hours(1)))
        #expect(due.due == .attempt && due.at <= Self.start + .seconds(1))
        attempts.opened(now: due.at)
        _ = attempts.moved(65_536, isGain: true, now: due.at)
        attempts.failed(self.lost, now: due.at)
        // The connection has its own back-off.
        let again = try #require(self.next(&attempts, until: Self.start + .hours(1)))
        #expect(again.due == .attempt && again.at == due.at)
    }

    @Test func refusalsMeetAGrowingWait() {
        var attempts = self.attempts(seed: 5)
        var now = Self.start
        var waits: [TimeAmount] = []
        for _ in 0..<200 {
            attempts.begin(now: now)
            attempts.opened(now: now)
            attempts.failed(self.overloaded, now: now)
            guard let due = self.next(&attempts, until: .distantFuture), due.due == .attempt else { break }
            waits.append(due.at - now)
            now = due.at
        }
        #expect(waits.count == 200)
        #expect(waits.allSatisfy { $0 <= .seconds(15) })
        #expect(waits.dropFirst().allSatisfy { $0 >= .milliseconds(100) })
        #expect(waits.suffix(100).reduce(.zero, +) > .seconds(400))
    }

    @Test func bytesThatLeadNowhereAreNoProgressForEver() {
        var attempts = self.attempts(seed: 2)
        attempts.begin(now: Self.start)
        var now = Self.start
        var opened = 0
        while opened < 1_000 {
            attempts.opened(now: now)
            opened += 1
            // The peer's TCP takes a mebibyte each time, of which the peer has nothing afterwards.
            _ = attempts.moved(1 << 20, isGain: false, now: now)
            attempts.failed(self.lost, now: now + .seconds(1))
            guard let due = self.next(&attempts, until: now + .hours(1)) else { break }
            now = due.at
            if due.due == .stalled { break }
        }
        #expect(opened < 100)
        #expect(attempts.stalledError("put").code == .stalled)
    }

    @Test func theTimeForWhichTheProcessWasSuspendedDoesNotCount() {
        var attempts = self.attempts()
        attempts.begin(now: Self.start)
        attempts.opened(now: Self.start)
        _ = self.next(&attempts, until: Self.start + .seconds(10))
        let woken = Self.start + .hours(8)
        #expect(attempts.timePassed(now: woken) == nil)
        let due = self.next(&attempts, until: .distantFuture)
        #expect(due?.due == .replaceConnection && due.map { $0.at <= woken + .seconds(20) && $0.at > woken } == true)
    }
}

/// The verdicts on errors of streams.
@Suite struct TransferVerdictTests {
    private func code(_ error: SocketError.Code, underlying: (any Error)? = nil) -> TransferError.Code? {
        let error = SocketError(error, message: "m", underlying: underlying)
        if case .end(let error) = TransferVerdict(error, of: "put") { return error.code }
        return nil
    }

    @Test func refusalsThatMayPassAreTriedAgain() {
        let codes: [SocketError.Code] = [
            .serverLostConnection, .cancelledByServer, .overloaded, .draining, .connectionLost, .connectionRefused,
            .notConnected, .timeout, .hostNotFound, .checksumMismatch,
        ]
        for code in codes { #expect(self.code(code) == nil, "\(code)") }
    }

    @Test func othersAreFinal() {
        #expect(self.code(.undefinedType) == .noStore)
        #expect(self.code(.unknown) == .notFound)
        #expect(self.code(.noPermission) == .denied)
        #expect(self.code(.database) == .storeFailed)
        #expect(self.code(.illegalFormat) == .invalidRequest)
        #expect(self.code(.featureNotAgreed) == .connectionFailed)
        #expect(self.code(.server(Status(rawValue: 777))) == .connectionFailed)
    }

    @Test func interceptorsFailAsTheirCallsDo() {
        let lost = SocketError(.connectionLost, message: "lost")
        #expect(self.code(.interceptorFailed, underlying: lost) == nil)
        #expect(self.code(.interceptorFailed) == .connectionFailed)
        #expect(self.code(.interceptorFailed, underlying: CancellationError()) == .connectionFailed)
    }
}

/// The stream's share of acknowledged bytes.
@Suite struct AcknowledgedShareTests {
    @Test func earlierAcknowledgementsAreNotTheStreams() {
        var share = AcknowledgedShare()
        #expect(share.update(sent: 10_000, acknowledged: 5_000_000) == 0)
        #expect(share.update(sent: 10_000, acknowledged: 5_004_000) == 4_000)
    }

    @Test func aStreamIsCreditedWithNoMoreThanItHasSent() {
        var share = AcknowledgedShare()
        _ = share.update(sent: 0, acknowledged: 0)
        #expect(share.update(sent: 100, acknowledged: 1_000) == 100)
        // Heartbeats of the connection continue.
        #expect(share.update(sent: 100, acknowledged: 2_000) == 0)
        #expect(share.update(sent: 150, acknowledged: 2_030) == 30)
        #expect(share.update(sent: 150, acknowledged: 2_030) == 0)
        #expect(share.credited == 130)
    }

    @Test func aSystemThatDoesNotSayCreditsNothing() {
        var share = AcknowledgedShare()
        #expect(share.update(sent: 100, acknowledged: nil) == 0)
        #expect(share.update(sent: 100, acknowledged: nil) == 0)
    }
}
