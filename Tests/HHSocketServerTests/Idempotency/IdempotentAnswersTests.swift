// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

@Suite(.timeLimit(.minutes(5))) struct IdempotentAnswersTests {
    private let answers = IdempotentAnswers(IdempotencyPolicy())
    private let key = IdempotencyKey(identity: nil, key: "k")
    private let request = RequestFingerprint(type: 100, body: ByteBuffer(string: "a request"))

    private func answer(_ run: @Sendable @escaping () async -> Status) async -> (Status, IdempotentAnswers.Source) {
        let outcome = await self.answers.answer(
            for: self.key,
            request: self.request,
            of: .local,
            run: { KeptAnswer(status: await run(), body: ByteBuffer(), metadata: [:]) },
            isKept: { $0.status.isKept }
        )
        return (outcome.answer.status, outcome.source)
    }

    /// Otherwise each of a thousand waiting repeats would run the handler, one after the other, and all would fail.
    @Test func repeatsThatWaitForATransientFailureGetItAndRunNothing() async throws {
        let runs = Watched(0)
        let (begun, release) = (Gate(), Gate())
        let refused = Watched(0)
        let first = Task {
            await self.answer {
                runs.increment()
                begun.open()
                try? await release.wait()
                return .database
            }
        }
        try await begun.wait()
        let repeats = try await withThrowingTaskGroup(of: Bool.self) { group in
            for _ in 0...IdempotencyWindow<Never>.maximumWaiters {
                group.addTask {
                    let (status, source) = await self.answer {
                        runs.increment()
                        return .ok
                    }
                    if case .overload = source { refused.increment() }
                    return status == .database
                }
            }
            // One more than may wait: once it is rejected, all others wait.
            try await refused.wait("the refusal of the last") { $0 == 1 }
            release.open()
            return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(await first.value.0 == .database)
        #expect(repeats == IdempotencyWindow<Never>.maximumWaiters)
        #expect(runs.current == 1)
        // A later repeat runs.
        let (status, _) = await self.answer { .ok }
        #expect(status == .ok)
    }

    // MARK: What is kept

    private func keep(
        _ answers: IdempotentAnswers,
        _ key: IdempotencyKey,
        _ body: ByteBuffer,
        of owner: IdempotencyOwner = .identity("ann")
    ) async -> IdempotentAnswers.Outcome {
        await answers.answer(
            for: key,
            request: self.request,
            of: owner,
            run: { KeptAnswer(status: .ok, body: body, metadata: [:]) },
            isKept: { _ in true }
        )
    }

    /// For example, the echo of a small request is a slice of its read buffer.
    @Test func sliceOfALargeBufferIsCopiedAndCountsWithWhatItHolds() async throws {
        let answers = IdempotentAnswers(IdempotencyPolicy())
        let slice = try #require(ByteBuffer(repeating: 7, count: 256 << 10).getSlice(at: 0, length: 1_025))
        _ = await self.keep(answers, self.key, slice)
        #expect(answers.kept.count == 1)
        #expect(answers.kept.bytes < 2 * 1_025 + KeptAnswer.overhead + 2)
        let repeated = await self.keep(answers, self.key, ByteBuffer())
        #expect(repeated.answer.body == slice)
        #expect(repeated.answer.body.storageCapacity <= 2_050)
        // A slice that is not much smaller than its buffer is not copied, and counts with the whole buffer.
        let other = IdempotencyKey(key: "other")
        let before = answers.kept.bytes
        _ = await self.keep(answers, other, ByteBuffer(repeating: 1, count: 1_025))
        #expect(answers.kept.bytes - before == 2_048 + KeptAnswer.overhead + 5)
    }

    @Test func ownersNameAndKeyAndMetadataCountToo() {
        let answer = KeptAnswer(status: .ok, body: ByteBuffer(), metadata: [:])
        let key = IdempotencyKey(identity: String(repeating: "n", count: 40), key: "kk")
        #expect(answer.cost(key) == 42 + KeptAnswer.overhead)
        var tagged = answer
        tagged.metadata = ["a": "bcd"]
        #expect(tagged.cost(key) >= answer.cost(key) + 4)
    }

    /// It would displace all other answers of its owner.
    @Test func answerThatIsTooLargeIsNotKeptAndCountedAndGivenToThoseWhoWait() async throws {
        var policy = IdempotencyPolicy()
        policy.maximumAnswerBytes = 10_000
        let answers = IdempotentAnswers(policy)
        _ = await self.keep(answers, self.key, ByteBuffer(string: "small"))
        let large = IdempotencyKey(key: "large")
        let (begun, release) = (Gate(), Gate())
        let body = ByteBuffer(repeating: 0, count: 20_000)
        let first = Task {
            await answers.answer(
                for: large,
                request: self.request,
                of: .identity("ann"),
                run: {
                    begun.open()
                    try? await release.wait()
                    return KeptAnswer(status: .ok, body: body, metadata: [:])
                },
                isKept: { _ in true }
            )
        }
        try await begun.wait()
        let waiting = Task { await self.keep(answers, large, ByteBuffer(string: "run again")) }
        // The repeat must not be lost, whether it has begun to wait or arrives later.
        release.open()
        let outcome = await first.value
        #expect(outcome.isTooLarge)
        #expect(outcome.answer.body == body)
        let waited = await waiting.value
        #expect([body, ByteBuffer(string: "run again")].contains(waited.answer.body))
        #expect(await self.keep(answers, self.key, ByteBuffer()).answer.body == ByteBuffer(string: "small"))
    }

    @Test func answersThatMakeRoomAreCounted() async {
        var policy = IdempotencyPolicy()
        policy.maximumCount = 32
        let answers = IdempotentAnswers(policy)
        var forgotten = 0
        for number in 0..<5 {
            forgotten += await self.keep(answers, IdempotencyKey(key: "\(number)"), ByteBuffer()).forgotten
        }
        // A sixteenth of 32 is 2.
        #expect(forgotten == 3)
        #expect(answers.kept.count == 2)
        for (number, isThere) in [(3, true), (4, true), (0, false)] {
            let outcome = await self.keep(answers, IdempotencyKey(key: "\(number)"), ByteBuffer())
            #expect((outcome.source == .repeat) == isThere)
        }
    }

    @Test func expiredAnswersReleaseMemoryWithoutNewRequests() async {
        var policy = IdempotencyPolicy()
        policy.lifetime = .seconds(1)
        let answers = IdempotentAnswers(policy)
        for number in 0..<1_000 {
            _ = await self.keep(answers, IdempotencyKey(key: "\(number)"), ByteBuffer(), of: .identity("\(number)"))
        }
        answers.forgetExpired(now: .now())
        #expect(answers.kept.count == 1_000)
        answers.forgetExpired(now: .now() + .seconds(2))
        #expect(answers.kept == .init())
    }
}
