// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct EchoBodyTests {
    @Test(arguments: [2, 3, 16, 1_000, 100_000])
    func numberIsInTheFirstByteAndTheLast(length: Int) {
        let body = EchoBody(length: length)
        #expect(body.length == length)
        for number in [0, 1, 255, 256, 0x1234, 0xFFFF_FFFF] as [UInt32] {
            var sent = body.template
            EchoBody.stamp(number, into: &sent)
            let bytes = Array(sent.readableBytesView)
            #expect(bytes.count == length)
            #expect(bytes.first == UInt8(number & 63) + 64)
            #expect(bytes.last == UInt8(number >> 6 & 63) + 64)
            #expect(bytes.allSatisfy { (64..<128).contains($0) }, "it may be a line")
            #expect(bytes[1..<length - 1] == Array(body.template.readableBytesView)[1..<length - 1])
            #expect(body.isEchoed(by: sent, number: number))
        }
    }

    @Test func wrongAnswersAreFoundAndExplained() {
        let body = EchoBody(length: 16)
        var sent = body.template
        EchoBody.stamp(0x1234, into: &sent)
        #expect(!body.isEchoed(by: sent, number: 0x1235))
        #expect(!body.isEchoed(by: sent, number: 0x1334))
        #expect(!body.isEchoed(by: ByteBuffer(), number: 0x1234))
        var longer = sent
        longer.writeInteger(0x12 ^ 0x5A as UInt8)
        #expect(!body.isEchoed(by: longer, number: 0x1234))
        #expect(
            body.reason(about: longer, number: 0x1234) == "wrong answer to call 4660: 17 bytes, where 16 were sent"
        )
        #expect(
            body.reason(about: sent, number: 1)
                == "wrong answer to call 1: it begins with 116 and ends with 72, where 65 and 64 were sent"
        )
    }

    @Test func answerMayBeASliceOfARead() {
        let body = EchoBody(length: 16)
        var read = ByteBuffer(bytes: [9, 9, 9])
        var sent = body.template
        EchoBody.stamp(7, into: &sent)
        read.writeBuffer(&sent)
        read.moveReaderIndex(forwardBy: 3)
        read.writeInteger(9 as UInt8)
        read.moveWriterIndex(to: read.writerIndex - 1)
        #expect(body.isEchoed(by: read, number: 7))
    }

    @Test func aRequestStaysAsItIsWhenTheNextOneIsStamped() {
        let body = EchoBody(length: 16)
        var pair = RequestPair(body)
        let requests = (0..<10 as Range<UInt32>).map { pair.next($0) }
        for (number, request) in requests.enumerated() {
            #expect(request.type == 1000)
            #expect(body.isEchoed(by: request.body, number: UInt32(number)))
        }
    }

    @Test func nothingIsCopiedOnceTheLastButOneIsReleased() {
        var pair = RequestPair(EchoBody(length: 1_000))
        func address() -> UnsafeRawPointer? {
            pair.next(1).body.withUnsafeReadableBytes { $0.baseAddress }
        }
        // The first call of each place takes its copy of the template.
        let first = address()
        let second = address()
        #expect(first != second)
        #expect(address() == first)
        #expect(address() == second)
    }
}

@Suite struct StartScheduleTests {
    @Test func startsAreEven() {
        var schedule = StartSchedule(rate: 1_000, origin: 5)
        #expect((0..<4).map { _ in schedule.take() } == [5, 1_000_005, 2_000_005, 3_000_005])
    }

    @Test func roundingDoesNotAddUp() {
        var schedule = StartSchedule(rate: 3, origin: 0)
        for _ in 0..<3_000_000 { _ = schedule.take() }
        #expect(schedule.next == 1_000_000_000_000_000)
    }

    @Test func connectionsAlternate() {
        var schedules = (0..<4).map { StartSchedule(rate: 4_000, origin: 0, connection: $0, of: 4) }
        let starts = (0..<3).flatMap { _ in schedules.indices.map { schedules[$0].take() } }
        #expect(starts == (0..<12).map { $0 * 250_000 })
    }

    @Test func aLateStartDoesNotMoveTheNext() {
        var schedule = StartSchedule(rate: 10, origin: 0)
        #expect(schedule.takeDue(at: 250_000_000) == 0)
        #expect(schedule.takeDue(at: 250_000_000) == 100_000_000)
        #expect(schedule.takeDue(at: 250_000_000) == 200_000_000)
        #expect(schedule.takeDue(at: 250_000_000) == nil)
        #expect(schedule.takeDue(at: 300_000_000) == 300_000_000)
    }
}

@Suite struct EchoTallyTests {
    /// From 1,000,000 to 3,000,000.
    private let window = MeasuredWindow(origin: 0, warmup: 0.001, seconds: 0.002)

    @Test func windowEndsJustBeforeItsEnd() {
        #expect(!self.window.contains(999_999))
        #expect(self.window.contains(1_000_000))
        #expect(self.window.contains(2_999_999))
        #expect(!self.window.contains(3_000_000))
        #expect(self.window.seconds == 0.002)
    }

    @Test func windowIsCutWithinItself() {
        func cut(_ time: UInt64) -> UInt64 {
            var window = self.window
            window.cut(at: time)
            return window.end
        }
        #expect(cut(2_000_000) == 2_000_000)
        #expect(cut(5) == 1_000_000)
        #expect(cut(9_000_000) == 3_000_000)
    }

    @Test func closedLoopCountsWhatCompletesInTheWindow() {
        var tally = EchoTally(.closedLoop, window: self.window)
        tally.completed(start: 100_000, now: 900_000)
        tally.completed(start: 900_000, now: 1_100_000)
        tally.completed(start: 1_100_000, now: 1_200_000)
        tally.completed(start: 2_900_000, now: 3_000_000)
        #expect(tally.calls == 2)
        #expect(tally.latencies.count == 2)
        #expect(tally.latencies.longest == 200_000)
    }

    @Test func scheduleCountsTheLatencyOfWhatWasToStartInTheWindow() {
        var tally = EchoTally(.schedule, window: self.window)
        // This call completes in the window, but was due before.
        tally.completed(start: 900_000, now: 1_100_000)
        tally.completed(start: 1_100_000, now: 1_200_000)
        // This call was due in the window, and completes long after.
        tally.completed(start: 2_000_000, now: 9_000_000)
        #expect(tally.calls == 2)
        #expect(tally.latencies.count == 2)
        #expect(tally.latencies.longest == 7_000_000)
    }

    @Test func dueCallsThatNeverStartedAreCounted() {
        var schedule = StartSchedule(rate: 10_000, origin: 0)
        // The calls before the window, and the first in it.
        for _ in 0..<11 { _ = schedule.take() }
        var tally = EchoTally(.schedule, window: self.window)
        tally.completed(start: 1_000_000, now: 1_050_000)
        tally.countNotStarted(schedule)
        #expect(tally.notStarted == 19)
        #expect(tally.calls == 1)
        #expect(tally.latencies.count == 20)
        // The call that was due at 1,100,000 had waited until the end.
        #expect(tally.latencies.longest == 1_900_000)
    }

    @Test func connectionsAddUp() {
        var sum = EchoTally(.closedLoop, window: self.window)
        sum.completed(start: 1_000_000, now: 1_100_000)
        var other = EchoTally(.closedLoop, window: self.window)
        other.completed(start: 1_000_000, now: 1_400_000)
        other.cut(at: 2_000_000)
        sum.add(other)
        #expect(sum.calls == 2)
        #expect(sum.latencies.longest == 400_000)
        #expect(sum.window.end == 2_000_000)
    }

    @Test func latenciesAreRightWithinAThousandth() throws {
        var latencies = Latencies()
        #expect(latencies.nanoseconds(atPercentile: 50) == nil)
        #expect(latencies.longest == nil)
        for value in 1...100_000 as ClosedRange<UInt64> { latencies.record(nanoseconds: value * 1_000) }
        for (percentile, value) in [(50.0, 5e7), (99, 9.9e7), (99.9, 9.99e7), (100, 1e8)] {
            let found = try #require(latencies.nanoseconds(atPercentile: percentile))
            #expect(abs(found - value) <= value * 0.001)
        }
        #expect(latencies.values.reduce(0) { $0 + $1.count } == 100_000)
        latencies.record(nanoseconds: .max)
        #expect(latencies.longest == 3_600_000_000_000)
    }
}

@Suite struct EchoCallsTests {
    private let body = EchoBody(length: 16)

    private func calls(inFlight: Int, rate: Double? = nil) -> EchoCalls {
        // From 1,000 to 2,000.
        let window = MeasuredWindow(origin: 0, warmup: 0.000_001, seconds: 0.000_001)
        return EchoCalls(
            body: self.body,
            inFlight: inFlight,
            tally: EchoTally(rate == nil ? .closedLoop : .schedule, window: window),
            schedule: rate.map { StartSchedule(rate: $0, origin: 0) }
        )
    }

    /// Returns the calls that are started at `now`.
    private func starts(of calls: inout EchoCalls, at now: UInt64) -> [EchoCalls.Start] {
        var starts: [EchoCalls.Start] = []
        while let start = calls.nextStart(now) { starts.append(start) }
        return starts
    }

    @Test func aClosedLoopReplacesEachCallAtOnce() throws {
        var calls = self.calls(inFlight: 3)
        let first = self.starts(of: &calls, at: 0)
        #expect(Set(first.map(\.slot)) == [0, 1, 2])
        #expect(self.body.isEchoed(by: first[2].request.body, number: 3))
        #expect(calls.nextCheck == nil)
        let optionalNext = calls.answered(first[1].slot, with: first[1].request.body, now: 1_500)
        let next = try #require(optionalNext)
        #expect(next.slot == first[1].slot)
        #expect(self.body.isEchoed(by: next.request.body, number: 4))
        #expect(calls.tally.calls == 1)
        #expect(calls.tally.latencies.longest == 1_500)
    }

    @Test func theEndIsWaitedForAndItsAnswersAreChecked() throws {
        var calls = self.calls(inFlight: 2)
        let first = self.starts(of: &calls, at: 0)
        #expect(calls.answered(first[0].slot, with: first[0].request.body, now: 2_000) == nil)
        #expect(self.starts(of: &calls, at: 2_000).isEmpty)
        #expect(!calls.isOver)
        #expect(calls.answered(first[1].slot, with: first[0].request.body, now: 2_001) == nil)
        #expect(calls.isOver)
        #expect(calls.isGivenUp)
        #expect(throws: EchoFailure.self) { try calls.result() }
    }

    @Test func aScheduleStartsWhatIsDueAsFarAsThereIsRoom() throws {
        // One call every 100.
        var calls = self.calls(inFlight: 2, rate: 1e7)
        #expect(self.starts(of: &calls, at: 0).count == 1)
        #expect(calls.nextCheck == 100)
        let second = self.starts(of: &calls, at: 1_050)
        #expect(second.count == 1)
        // A completion makes the next check.
        #expect(calls.nextCheck == nil)
        // The call was due at 100: that counts, and is before the window.
        #expect(calls.answered(second[0].slot, with: second[0].request.body, now: 1_100) == nil)
        #expect(calls.tally.calls == 1)
        #expect(calls.tally.latencies.count == 0)
        #expect(self.starts(of: &calls, at: 1_100).count == 1)
    }

    @Test func callsDueBeforeTheEndStartAtTheEndIfThereIsRoom() throws {
        var calls = self.calls(inFlight: 100, rate: 1e7)
        #expect(self.starts(of: &calls, at: 1_950).count == 20)
        #expect(calls.nextCheck == 2_000)
        #expect(self.starts(of: &calls, at: 2_000).isEmpty)
        #expect(!calls.isOver)
        var late = self.calls(inFlight: 100, rate: 1e7)
        let starts = self.starts(of: &late, at: 5_000)
        #expect(starts.count == 20)
        for start in starts { #expect(late.answered(start.slot, with: start.request.body, now: 5_100) == nil) }
        #expect(late.isOver)
        let tally = try late.result()
        #expect(tally.notStarted == 0)
        #expect(tally.calls == 0)
        #expect(tally.latencies.count == 10)
        #expect(tally.latencies.longest == 4_100)
    }

    @Test func callsWithoutRoomAreReported() throws {
        var calls = self.calls(inFlight: 1, rate: 1e7)
        let optionalStart = calls.nextStart(0)
        let start = try #require(optionalStart)
        #expect(calls.answered(start.slot, with: start.request.body, now: 3_000) == nil)
        let optionalLast = calls.nextStart(3_000)
        let last = try #require(optionalLast)
        #expect(calls.nextStart(3_000) == nil)
        #expect(calls.answered(last.slot, with: last.request.body, now: 3_100) == nil)
        #expect(calls.isOver)
        // All of the ten from 1,000 on.
        #expect(try calls.result().notStarted == 10)
    }

    @Test func theFirstFailureIsTheOneThatIsReported() {
        var calls = self.calls(inFlight: 3)
        let starts = self.starts(of: &calls, at: 0)
        calls.failed(starts[0].slot, EchoFailure("first"))
        #expect(calls.isGivenUp)
        #expect(!calls.isOver)
        calls.failed(starts[1].slot, EchoFailure("second"))
        // Right or wrong, later answers are not checked.
        #expect(calls.answered(starts[2].slot, with: ByteBuffer(), now: 1_500) == nil)
        #expect(calls.nextStart(1_500) == nil)
        #expect(calls.isOver)
        #expect(throws: EchoFailure.self) { try calls.result() }
        #expect(calls.failure?.description == "first")
    }

    @Test func measurementsBeforeTheStopCount() throws {
        var calls = self.calls(inFlight: 1)
        let optionalStart = calls.nextStart(0)
        let start = try #require(optionalStart)
        let optionalNext = calls.answered(start.slot, with: start.request.body, now: 1_200)
        let next = try #require(optionalNext)
        calls.stop(at: 1_300)
        calls.failed(next.slot, EchoFailure("cancelled"))
        #expect(calls.isOver)
        let tally = try calls.result()
        #expect(tally.calls == 1)
        #expect(tally.window.end == 1_300)
    }

    @Test func stoppedBeforeItBeganNothingIsCalled() throws {
        var calls = self.calls(inFlight: 2)
        calls.stop(at: 5)
        #expect(calls.nextStart(10) == nil)
        #expect(calls.isOver)
        #expect(try calls.result().window.seconds == 0)
    }
}

@Suite struct BenchReportTests {
    private func result(
        rate: Double? = nil,
        api: EchoParameters.API = .task,
        server: Double? = 0.25,
        hello: Bool = false
    ) -> EchoResult {
        let window = MeasuredWindow(origin: 0, warmup: 1, seconds: 2)
        var tally = EchoTally(rate == nil ? .closedLoop : .schedule, window: window)
        for index in 0..<2_000 as Range<UInt64> {
            let start = 1_000_000_000 + index * 1_000
            tally.completed(start: start, now: start + (index < 1_900 ? 15_000 : 150_000))
        }
        if let rate {
            var schedule = StartSchedule(rate: rate, origin: 0)
            for _ in 0..<29 { _ = schedule.take() }
            tally.countNotStarted(schedule)
        }
        let parameters = EchoParameters(
            server: Endpoint(host: "::1", port: 7000),
            serverPID: nil,
            peer: "ours",
            format: .standard,
            hello: hello,
            body: 4_096,
            inFlight: 64,
            connections: 1,
            threads: 1,
            warmup: 1,
            seconds: 2,
            api: api,
            callbacks: api == .task ? .inline : nil,
            executor: api == .task ? nil : .socket,
            rate: rate
        )
        return EchoResult(
            parameters: parameters,
            tally: tally,
            cpu: CPUUse(client: 0.5, server: server),
            isInterrupted: false
        )
    }

    @Test func jsonHasTheNamesThatOthersUse() throws {
        let line = self.result().json
        #expect(line.hasSuffix("}\n"))
        #expect(line.filter { $0 == "\n" }.count == 1)
        let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        #expect(
            Set(object.keys) == [
                "peer", "workload", "body", "inflight", "calls_per_s", "p50_us", "p99_us", "client_cpu_s",
                "server_cpu_s", "seconds", "calls", "api", "callbacks", "connections", "threads", "rate", "not_started",
                "p90_us",
                "p999_us", "max_us", "interrupted", "hello", "executor",
            ]
        )
        #expect(object["peer"] as? String == "ours")
        #expect(object["workload"] as? String == "echo")
        #expect(object["body"] as? Int == 4_096)
        #expect(object["inflight"] as? Int == 64)
        #expect(object["calls"] as? Int == 2_000)
        #expect(object["calls_per_s"] as? Double == 1_000)
        #expect(object["seconds"] as? Double == 2)
        #expect(abs((object["p50_us"] as? Double ?? 0) - 15) <= 0.02)
        #expect(abs((object["p99_us"] as? Double ?? 0) - 150) <= 0.2)
        #expect(object["client_cpu_s"] as? Double == 0.5)
        #expect(object["server_cpu_s"] as? Double == 0.25)
        #expect(object["api"] as? String == "task")
        #expect(object["callbacks"] as? String == "inline")
        #expect(object["connections"] as? Int == 1)
        #expect(object["rate"] is NSNull)
        #expect(object["interrupted"] as? Bool == false)
        #expect(object["hello"] as? Bool == false)
    }

    @Test func unknownValuesAreNull() throws {
        let line = self.result(api: .async, server: nil).json
        #expect(line.contains(#""server_cpu_s":null"#))
        #expect(line.contains(#""callbacks":null"#))
    }

    @Test func summaryIsForPeople() {
        #expect(
            self.result().summary == """
                ours at [::1]:7000: 4,096 B bodies, 64 in flight, task API, inline callbacks
                2,000 calls in 2.000 s: 1,000 calls/s
                latency: p50 15 µs, p90 15 µs, p99 150 µs, p99.9 150 µs, longest 150 µs
                CPU time for each call: client 250 µs, server 125 µs

                 10 µs to  20 µs  ########################################  95.0 %
                 20 µs to  50 µs                                             0.0 %
                 50 µs to 100 µs                                             0.0 %
                100 µs to 200 µs  ##                                         5.0 %

                """
        )
    }

    @Test func summaryReportsCallsThatWereDueAndNotStarted() {
        let lines = self.result(rate: 10, api: .async, server: nil).summary.split(separator: "\n")
        let title = "ours at [::1]:7000: 4,096 B bodies, 64 in flight, 10 calls/s asked for, async API, socket executor"
        #expect(lines.first == Substring(title))
        #expect(
            lines.dropFirst(2).first == "1 more call was due, but waited until the end for a place among 64 in flight"
        )
        #expect(lines.contains("CPU time for each call: client 250 µs"))
    }

    @Test func aHelloIsReported() {
        let result = self.result(hello: true)
        #expect(result.json.contains(#""hello":true"#))
        let title = result.summary.split(separator: "\n").first
        #expect(title == "ours at [::1]:7000: 4,096 B bodies, 64 in flight, task API, inline callbacks, after hello")
    }

    @Test(arguments: [
        (0, "0 ns"), (999, "999 ns"), (999.9, "1 µs"), (1_000, "1 µs"), (1_234, "1.23 µs"), (12_340, "12.3 µs"),
        (123_400, "123 µs"), (99_960, "100 µs"), (999_400, "999 µs"), (999_900, "1 ms"), (2_500_000, "2.5 ms"),
        (3_600_000_000_000, "3600 s"), (2_000_000_000, "2 s"),
    ])
    func spansAreReportedInTheUnitThatSuits(nanoseconds: Double, text: String) {
        #expect(LatencyChart.text(nanoseconds: nanoseconds) == text)
    }

    @Test func rowsOfTheChartMeet() {
        #expect(LatencyChart.bounds(around: 0) == 0..<1_000)
        var end: UInt64 = 1_000
        for expected in [2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000] as [UInt64] {
            let bounds = LatencyChart.bounds(around: end)
            #expect(bounds == end..<expected)
            #expect(LatencyChart.bounds(around: expected - 1) == bounds)
            end = expected
        }
        #expect(LatencyChart([]).lines.isEmpty)
        // One in a million is visible.
        #expect(LatencyChart([(500, 1_000_000), (1_500, 1)]).lines.map { $0.filter { $0 == "#" }.count } == [40, 1])
    }

    @Test func liveLineShowsTheRateSinceTheLast() {
        let window = MeasuredWindow(origin: 0, warmup: 1, seconds: 10)
        var line = LiveLine(window)
        #expect(line.text(at: 500_000_000, calls: 0) == "warming up")
        #expect(line.text(at: 2_000_000_000, calls: 1_000) == "1.0 of 10.0 s   1,000 calls   1,000 calls/s")
        #expect(line.text(at: 2_500_000_000, calls: 2_000_000) == "1.5 of 10.0 s   2,000,000 calls   3,998,000 calls/s")
        #expect(line.text(at: 11_000_000_000, calls: 3) == "waiting for calls in flight")
    }

    @Test(arguments: [
        (0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567"), (-1_000, "-1,000"), (-12, "-12"),
    ])
    func thousandsAreGrouped(number: Int, text: String) {
        #expect(number.grouped == text)
    }
}

@Suite struct CPUTimeTests {
    @Test func ticksAreThoseOfTheRightFields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 700 35 0 0 20 0 4 0 100"
        #expect(CPUTime.ticks(inStat: "12 (hhsocket) \(rest)") == 735)
        #expect(CPUTime.ticks(inStat: "12 (a) b (c) \(rest)\n") == 735)
        #expect(CPUTime.ticks(inStat: "12 (hhsocket) S 1 2") == nil)
        #expect(CPUTime.ticks(inStat: "") == nil)
        #expect(CPUTime.ticks(inStat: "12 (x) S 1 2 3 4 5 6 7 8 9 10 -1 35 0") == nil)
    }

    @Test func thisProcessHasUsedSome() {
        #expect(CPUTime.ofThisProcess > 0)
        #if os(Linux)
        #expect(CPUTime.ofProcess(ProcessInfo.processInfo.processIdentifier) != nil)
        #endif
        #expect(CPUTime.ofProcess(.max) == nil)
    }
}
