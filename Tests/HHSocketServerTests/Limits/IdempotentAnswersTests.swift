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
        let (answer, source) = await self.answers.answer(
            self.key,
            self.request,
            { KeptAnswer(status: await run(), body: ByteBuffer(), metadata: [:]) },
            isKept: { $0.status.isKept }
        )
        return (answer.status, source)
    }

    /// Otherwise each of a thousand that wait would run the handler, one after the other, and all would fail.
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
            // One more than may wait: once it is refused, all others wait.
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
}
