// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

@Suite struct IdempotencyWindowTests {
    private var window = IdempotencyWindow<String>()

    private func key(_ name: String) -> IdempotencyKey { IdempotencyKey(identity: nil, key: name) }
    private let request = RequestFingerprint(type: 100, body: ByteBuffer(string: "a request"))
    private func answer(_ length: Int = 1) -> KeptAnswer {
        KeptAnswer(status: .ok, body: ByteBuffer(repeating: 0, count: length), metadata: [:])
    }

    private mutating func finish(_ name: String, _ answer: KeptAnswer?, number: UInt64 = 1) -> [String] {
        window.finish(key(name), keeping: answer, number: number, until: start + .seconds(60))
    }

    /// - Parameter expected: `run`, `wait`, or the length of the answer.
    private mutating func begin(
        _ name: String,
        _ number: UInt64 = 1,
        now: NIODeadline = start,
        is expected: String,
        _ location: SourceLocation = #_sourceLocation
    ) {
        let begun =
            switch window.begin(key(name), request: request, number: number, waiter: "waiter \(number)", now: now) {
            case .run: "run"
            case .wait: "wait"
            case .answered(let answer): "\(answer.body.readableBytes)"
            case .full: "full"
            case .contradiction: "contradiction"
            }
        #expect(begun == expected, sourceLocation: location)
    }

    @Test mutating func aRepeatGetsTheFirstAnswer() {
        begin("a", is: "run")
        begin("a", 2, is: "wait")
        begin("a", 3, is: "wait")
        begin("b", is: "run")
        #expect(window.abandon(key("a"), 3) == "waiter 3")
        #expect(window.abandon(key("a"), 3) == nil)
        #expect(finish("a", answer(7)) == ["waiter 2"])
        begin("a", 4, is: "7")
    }

    @Test mutating func unsuccessfulRequestIsExecutedAgain() {
        begin("a", is: "run")
        begin("a", 2, is: "wait")
        #expect(finish("a", nil) == ["waiter 2"])
        #expect(window.count == 0)
        begin("a", 2, is: "run")
    }

    @Test mutating func answersLiveForTheirTime() {
        begin("a", is: "run")
        _ = finish("a", answer())
        begin("a", now: start + .seconds(59), is: "1")
        begin("a", now: start + .seconds(60), is: "run")
        // A further request waits for the one that runs again.
        begin("a", 2, now: start + .seconds(61), is: "wait")
    }

    @Test mutating func anAnswerIsForgottenByItsNumberAlone() {
        begin("a", is: "run")
        _ = finish("a", answer(), number: 1)
        begin("a", now: start + .seconds(60), is: "run")
        window.forget(key("a"), 1)
        // The second request is still running.
        begin("a", 2, now: start + .seconds(60), is: "wait")
        _ = window.finish(key("a"), keeping: answer(2), number: 2, until: start + .seconds(120))
        window.forget(key("a"), 1)
        begin("a", now: start + .seconds(60), is: "2")
        window.forget(key("a"), 2)
        begin("a", now: start + .seconds(60), is: "run")
    }

    @Test mutating func noMoreThan1024WaitForOneKey() {
        begin("a", is: "run")
        for number in 2...1_025 as ClosedRange<UInt64> { begin("a", number, is: "wait") }
        begin("a", 2_000, is: "full")
        begin("b", 2_000, is: "run")
        #expect(window.abandon(key("a"), 7) == "waiter 7")
        begin("a", 2_000, is: "wait")
        let expected = ((2...1_025).filter { $0 != 7 } + [2_000]).map { "waiter \($0)" }
        #expect(finish("a", answer()).sorted() == expected.sorted())
    }

    @Test(arguments: [
        RequestFingerprint(type: 101, body: ByteBuffer(string: "a request")),
        RequestFingerprint(type: 100, body: ByteBuffer(string: "another")),
    ])
    mutating func keyIsBoundToTypeAndBody(other: RequestFingerprint) {
        begin("a", is: "run")
        for _ in 0..<2 {
            guard case .contradiction = window.begin(key("a"), request: other, number: 9, waiter: "", now: start) else {
                Issue.record("another request may have the key")
                return
            }
            // While the first request is running, and after its answer.
            _ = finish("a", answer())
        }
        begin("a", is: "1")
    }

    @Test mutating func keysAreTheirOwners() {
        let one = IdempotencyKey(identity: "ann", key: "k")
        let other = IdempotencyKey(identity: "bob", key: "k")
        let nobodys = IdempotencyKey(identity: nil, key: "k")
        for key in [one, other, nobodys] {
            guard case .run = window.begin(key, request: request, number: 1, waiter: "", now: start) else {
                Issue.record("\(key) is not the first")
                continue
            }
        }
    }
}
