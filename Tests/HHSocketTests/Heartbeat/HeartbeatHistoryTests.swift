// SPDX-License-Identifier: Apache-2.0
import Foundation
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct HeartbeatHistoryTests {
    typealias Run = HeartbeatHistory.Run

    @Test func equalNeighboursMerge() {
        var history = HeartbeatHistory()
        for isAnswered in [true, true, false, true] { history.record(interval: .seconds(210), isAnswered: isAnswered) }
        history.record(interval: .seconds(270), isAnswered: true)
        #expect(
            history.runs == [
                Run(interval: .seconds(210), isAnswered: true, count: 2),
                Run(interval: .seconds(210), isAnswered: false),
                Run(interval: .seconds(210), isAnswered: true),
                Run(interval: .seconds(270), isAnswered: true),
            ]
        )
    }

    @Test func oldestRunsAreDropped() {
        var history = HeartbeatHistory()
        for second in 1...100 { history.record(interval: .seconds(second), isAnswered: true) }
        #expect(history.runs.count == 64)
        #expect(history.runs.first?.interval == .seconds(37))
        #expect(history.runs.last?.interval == .seconds(100))
        #expect(HeartbeatHistory(runs: history.runs + history.runs).runs == history.runs)
    }

    @Test func storedRunsThatCannotBeArePutRight() {
        let history = HeartbeatHistory(runs: [
            Run(interval: .seconds(-5), isAnswered: true, count: 2),
            Run(interval: .seconds(10), isAnswered: true, count: 0),
            Run(interval: .zero, isAnswered: true, count: .max),
            Run(interval: .seconds(10), isAnswered: true, count: .min),
            Run(interval: .seconds(Int64.max), isAnswered: false, count: .max),
            Run(interval: .seconds(Int64.max), isAnswered: false, count: .max),
        ])
        #expect(
            history.runs == [
                Run(interval: .milliseconds(1), isAnswered: true, count: .max),
                Run(interval: .seconds(365 * 24 * 3_600), isAnswered: false, count: .max),
            ]
        )
    }

    @Test func runsSurviveEncoding() throws {
        let runs = [
            Run(interval: .milliseconds(210_500), isAnswered: true, count: 7),
            Run(interval: .seconds(270), isAnswered: false, count: 2),
        ]
        #expect(try JSONDecoder().decode([Run].self, from: JSONEncoder().encode(runs)) == runs)
    }
}
