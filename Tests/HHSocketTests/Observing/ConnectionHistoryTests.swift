// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

@Suite struct ConnectionHistoryTests {
    private let a = Endpoint(host: "10.0.0.1", port: 7_000)
    private let b = Endpoint(host: "10.0.0.2", port: 7_000)
    /// 2026-11-21T12:00:00Z.
    private let noon = 1_795_262_400.0

    private func date(_ seconds: Double) -> Date { Date(timeIntervalSince1970: self.noon + seconds) }

    private func refused(_ message: String = "refused") -> SocketError {
        SocketError(.connectionRefused, message: message)
    }

    @Test func printsOneLineAnEntryThatSaysWhenWhatWhereAndWhy() {
        var history = ConnectionHistory()
        #expect(history.description == "")
        history.record(.connected(attempt: 1, offline: nil), endpoint: self.a, at: self.date(-62.077))
        let lost = SocketError(
            .connectionLost,
            message: "the server answered no heartbeat, silent for 16.0 seconds"
        )
        history.record(.lost(ready: .milliseconds(63_200)), endpoint: self.a, error: lost, at: self.date(1.123))
        history.record(.connectFailed(count: 1), endpoint: self.a, error: self.refused(), at: self.date(1.5))
        history.record(.connectFailed(count: 1), endpoint: self.b, error: self.refused(), at: self.date(1.501))
        history.record(.connectFailed(count: 1), endpoint: self.b, error: self.refused(), at: self.date(3))
        history.record(.connected(attempt: 4, offline: .milliseconds(250)), endpoint: self.b, at: self.date(3.25))
        history.record(.leftForAnotherServer(ready: .seconds(7_500), next: self.a), endpoint: self.b, at: self.date(4))
        history.record(.leftForAnotherServer(ready: nil, next: nil), endpoint: self.b, at: self.date(5))
        history.record(.enteredBackground, at: self.date(6))
        history.record(.enteredForeground, at: self.date(7))
        history.record(.networkLost, at: self.date(8))
        history.record(.networkChanged(name: nil), at: self.date(9))
        history.record(.networkChanged(name: "Wi-Fi"), at: self.date(10))
        history.record(.gaveUp, error: self.refused("two\nlines\r\nand more"), at: self.date(11))
        history.record(.closedByUser, endpoint: self.a, at: self.date(12.000_4))
        #expect(
            history.description == """
                2026-11-21T11:58:57.923Z connected 10.0.0.1:7000 at attempt 1
                2026-11-21T12:00:01.123Z lost 10.0.0.1:7000 after 63.2 s ready: connectionLost: \
                the server answered no heartbeat, silent for 16.0 seconds
                2026-11-21T12:00:01.500Z connect failed 10.0.0.1:7000: connectionRefused: refused
                2026-11-21T12:00:01.501Z connect failed 10.0.0.2:7000 2 times until 2026-11-21T12:00:03.000Z: \
                connectionRefused: refused
                2026-11-21T12:00:03.250Z connected 10.0.0.2:7000 at attempt 4, after 250 ms without a connection
                2026-11-21T12:00:04.000Z left 10.0.0.2:7000 after 2 h 5 min ready for 10.0.0.1:7000
                2026-11-21T12:00:05.000Z left 10.0.0.2:7000 for another server
                2026-11-21T12:00:06.000Z the app went to the background
                2026-11-21T12:00:07.000Z the app returned to the foreground
                2026-11-21T12:00:08.000Z the network was lost
                2026-11-21T12:00:09.000Z the network changed
                2026-11-21T12:00:10.000Z the network changed to Wi-Fi
                2026-11-21T12:00:11.000Z gave up: connectionRefused: two lines and more
                2026-11-21T12:00:12.000Z closed 10.0.0.1:7000 by the user
                """
        )
    }

    /// A round for the successor of a departing connection ends with both events.
    @Test func attemptThatFailsWhileAServerDrainsIsCountedOnce() {
        var recorder = HistoryRecorder()
        var error = self.refused()
        error.endpoint = self.b
        recorder.happened(.connectFailed(error), now: .now(), date: self.date(0))
        recorder.happened(.switchFailed(error), now: .now(), date: self.date(0))
        #expect(recorder.history.entries.map(\.kind) == [.connectFailed(count: 1)])
    }

    @Test func oldestEntriesAreDropped() {
        var history = ConnectionHistory()
        for second in 0..<100 { history.record(.networkLost, at: self.date(Double(second))) }
        #expect(history.entries.map(\.date) == (68..<100).map { self.date(Double($0)) })
        var smallest = ConnectionHistory(capacity: -1)
        smallest.record(.networkLost, at: self.date(0))
        smallest.record(.closedByUser, at: self.date(1))
        #expect(smallest.entries.map(\.kind) == [.closedByUser])
    }

    @Test func failuresOfALongOutageAreOneEntryForEachServerAndCode() {
        var history = ConnectionHistory()
        let lost = SocketError(.connectionLost, message: "lost")
        history.record(.lost(ready: .seconds(1)), endpoint: self.a, error: lost, at: self.date(0))
        for round in 1...1_000 {
            let error = self.refused("round \(round)")
            history.record(.connectFailed(count: 1), endpoint: self.a, error: error, at: self.date(Double(round)))
            history.record(.connectFailed(count: 1), endpoint: self.b, error: error, at: self.date(Double(round)))
        }
        let timeout = SocketError(.connectTimeout, message: "timeout")
        history.record(.connectFailed(count: 1), endpoint: self.a, error: timeout, at: self.date(1_001))
        #expect(
            history.entries.map(\.kind) == [
                .lost(ready: .seconds(1)), .connectFailed(count: 1_000), .connectFailed(count: 1_000),
                .connectFailed(count: 1),
            ]
        )
        #expect(history.entries[1].date == self.date(1))
        #expect(history.entries[1].lastDate == self.date(1_000))
        #expect(history.entries[1].error?.message == "round 1000")
        #expect(history.entries[3].error?.code == .connectTimeout)
    }

    @Test func failuresBeforeAndAfterAConnectionAreTwoEntries() {
        var history = ConnectionHistory()
        history.record(.connectFailed(count: 1), endpoint: self.a, error: self.refused(), at: self.date(0))
        history.record(.connected(attempt: 2, offline: nil), endpoint: self.a, at: self.date(1))
        history.record(.connectFailed(count: 1), endpoint: self.a, error: self.refused(), at: self.date(2))
        #expect(history.entries.count == 3)
    }

    @Test(arguments: [
        (0.0, "1970-01-01T00:00:00.000Z"), (-0.001, "1969-12-31T23:59:59.999Z"), (0.9996, "1970-01-01T00:00:01.000Z"),
        (951_782_400.5, "2000-02-29T00:00:00.500Z"), (951_868_800.0, "2000-03-01T00:00:00.000Z"),
        (4_107_542_399.0, "2100-02-28T23:59:59.000Z"), (4_107_542_400.0, "2100-03-01T00:00:00.000Z"),
        (1_795_262_401.123, "2026-11-21T12:00:01.123Z"), (-62_135_596_800.0, "0001-01-01T00:00:00.000Z"),
        (-.infinity, "0001-01-01T00:00:00.000Z"), (.infinity, "9999-12-31T23:59:59.000Z"),
        (.nan, "1970-01-01T00:00:00.000Z"), (.greatestFiniteMagnitude, "9999-12-31T23:59:59.000Z"),
    ])
    func timesAreInUTCWithMilliseconds(seconds: Double, text: String) {
        #expect(Date(timeIntervalSince1970: seconds).inUTC == text)
    }

    @Test func timesAreWhatFoundationMakesOfThem() {
        var generator = SeededGenerator(seed: 3)
        let formatter = ISO8601DateFormatter()
        for _ in 0..<2_000 {
            // From the Gregorian reform on, before which Foundation uses the Julian calendar.
            let date = Date(
                timeIntervalSince1970: Double(Int64.random(in: -12_000_000_000...100_000_000_000, using: &generator))
            )
            #expect(date.inUTC == formatter.string(from: date).dropLast() + ".000Z")
        }
    }

    @Test(arguments: [
        (Duration.zero, "0 ms"), (.seconds(-5), "0 ms"), (.microseconds(999_600), "1.0 s"),
        (.milliseconds(250), "250 ms"),
        (.milliseconds(63_249), "63.2 s"), (.seconds(599), "599.0 s"), (.seconds(600), "10 min"),
        (.seconds(3_599), "1 h 0 min"), (.seconds(90_061), "25 h 1 min"), (.seconds(Int64.max), "876000 h 0 min"),
    ])
    func spansAreShort(span: Duration, text: String) {
        #expect(span.forHumans == text)
    }
}
