// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import InMemoryLogging
import Logging
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Calls without a task: those that `dispatch` makes in a handler on the socket thread, and their outcomes if another
/// event precedes their answer.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallsWithoutTasksTests {
    /// A call that must fail has succeeded.
    private struct Unexpected: Error {}
    private typealias Outcome = Result<SocketResponse, SocketError>

    /// Runs `body` in the handler of a call.
    private func inHandler(_ client: SocketClient, _ body: @escaping @Sendable () -> Void) async throws {
        let ran = NIOLockedValueBox(false)
        client.dispatch(SocketRequest(type: 101, body: "first")) { _ in
            body()
            ran.withLockedValue { $0 = true }
        }
        try await eventually("the handler") { ran.withLockedValue { $0 } }
    }

    /// Makes a call in a handler, and checks that it has no object.
    private static func dispatch(
        _ client: SocketClient,
        _ request: SocketRequest,
        _ outcomes: NIOLockedValueBox<[Outcome]>
    ) -> Int {
        let engine = client.host.engine
        let inFlight = engine.hot.table.inFlightCount
        let identifier = client.dispatch(request) { outcome in outcomes.withLockedValue { $0.append(outcome) } }
        let key = engine.hot.table.key(withIdentifier: identifier)
        let hasObject = key.flatMap { engine.hot.table.withCall($0) { call, _ in call.object != nil } }
        #expect(hasObject == false)
        #expect(engine.hot.table.inFlightCount == inFlight + 1)
        return identifier
    }

    private func onlyOutcome(_ outcomes: NIOLockedValueBox<[Outcome]>) async throws -> Outcome {
        try await eventually("the completion") { outcomes.withLockedValue { !$0.isEmpty } }
        let all = outcomes.withLockedValue { $0 }
        #expect(all.count == 1)
        return all[0]
    }

    /// Makes one such call of type 102, then runs `disturb`; returns the call's outcome.
    private func outcome(
        _ client: SocketClient,
        _ request: SocketRequest = SocketRequest(type: 102, body: "second"),
        _ disturb: @escaping @Sendable (_ identifier: Int) -> Void = { _ in }
    ) async throws -> Outcome {
        let outcomes = NIOLockedValueBox<[Outcome]>([])
        try await self.inHandler(client) { disturb(Self.dispatch(client, request, outcomes)) }
        return try await self.onlyOutcome(outcomes)
    }

    @Test func answerEndsIt() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.callingBackInline(to: server)
        #expect(try await self.outcome(client).get().string == "second")
        #expect(client.statistics == ClientStatistics())
    }

    @Test func identifierCancelsIt() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.callingBackInline(to: server)
        let outcome = try await self.outcome(client) { client.cancelTask(withIdentifier: $0) }
        guard case .failure(let error) = outcome else { throw Unexpected() }
        #expect(error.code == .cancelled && error.delivery == .sentUnknown && error.serial != nil)
        // The connection stays.
        #expect(try await client.data(for: SocketRequest(type: 101, body: "third")).string == "third")
    }

    @Test func cancellingAllCancelsIt() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.callingBackInline(to: server)
        let outcome = try await self.outcome(client) { _ in client.cancelAllTasks() }
        #expect(throws: SocketError.self) { try outcome.get() }
    }

    @Test func itTimesOut() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.callingBackInline(to: server)
        let error = try await withGrowingTimeout { timeout -> SocketError in
            let request = SocketRequest(type: 102, timeout: timeout)
            guard case .failure(let error) = try await self.outcome(client, request) else { throw Unexpected() }
            return error
        } until: {
            $0.delivery != .notSent
        }
        #expect(error.code == .timeout && error.delivery == .sentUnknown)
    }

    @Test func errorOfTheServerEndsIt() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .answer("no", status: .noPermission))
        guard case .failure(let error) = try await self.outcome(SocketClient.callingBackInline(to: server)) else {
            throw Unexpected()
        }
        #expect(error.code == .noPermission && error.body.map { String(buffer: $0) } == "no")
    }

    @Test func wrongChecksumEndsItAlone() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .echo.corrupted())
        let client = SocketClient.callingBackInline(to: server)
        guard case .failure(let error) = try await self.outcome(client) else { throw Unexpected() }
        #expect(error.code == .checksumMismatch)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "third")).string == "third")
    }

    @Test func lostConnectionEndsIt() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .reset)
        guard case .failure(let error) = try await self.outcome(SocketClient.callingBackInline(to: server)) else {
            throw Unexpected()
        }
        #expect(error.code == .connectionLost && error.delivery == .sentUnknown)
    }

    /// Metrics, the log and the error window need no task.
    @Test func itIsReported() async throws {
        let server = try await MockServer(.echo)
        let log = InMemoryLogHandler()
        let client = SocketClient.callingBackInline(to: server) {
            var logger = Logger(label: "test", factory: { _ in log })
            logger.logLevel = .trace
            $0.socket.logger = logger
        }
        #expect(try await self.outcome(client).get().string == "second")
        let answered = log.entries.filter { "\($0.message)" == "call answered" }.compactMap { $0.metadata["type"] }
        #expect(answered.contains("102"))
    }

    @Test func policyRetriesIt() async throws {
        let server = try await MockServer(.echo)
        // A status that says that the request was not executed.
        server.once(102, .status(.overloaded))
        let client = SocketClient.callingBackInline(to: server) {
            $0.retryPolicy = RetryPolicy(maximumAttempts: 3, backoff: Backoff(base: .milliseconds(1)))
        }
        #expect(try await self.outcome(client).get().string == "second")
    }

    @Test func answerInPiecesEndsIt() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .echo.dribbled(bytes: 100, every: .milliseconds(1)))
        let body = ByteBuffer(repeating: 7, count: 1_000)
        let outcome = try await self.outcome(
            SocketClient.callingBackInline(to: server),
            SocketRequest(type: 102, body: body)
        )
        #expect(try outcome.get().body == body)
    }

    @Test func releasedClientEndsIt() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let outcomes = NIOLockedValueBox<[Outcome]>([])
        do {
            let client = SocketClient.callingBackInline(to: server)
            try await self.inHandler(client) { [weak client] in
                guard let client else { return }
                _ = Self.dispatch(client, SocketRequest(type: 102), outcomes)
            }
        }
        guard case .failure(let error) = try await self.onlyOutcome(outcomes) else { throw Unexpected() }
        #expect(error.code == .cancelled)
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func awaitedOneOnTheExecutorIsAnsweredAndCancelled() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.callingBackInline(to: server)
        _ = try await client.data(for: SocketRequest(type: 101))
        let task = Task<SocketError?, any Error>(executorPreference: client.executor) {
            #expect(try await client.data(for: SocketRequest(type: 101, body: "here")).string == "here")
            do {
                _ = try await client.data(for: SocketRequest(type: 102))
                return nil
            } catch let error as SocketError {
                return error
            }
        }
        _ = try await server.received(1, ofType: 102)
        task.cancel()
        let error = try await waitForValue(of: task, "the error")
        #expect(error?.code == .cancelled)
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func awaitedOneFailsThoughTheCallbackQueueIsBlocked() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let queue = DispatchQueue(label: "blocked")
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.callbackQueue = .queue(queue) }
        _ = try await client.data(for: SocketRequest(type: 101))
        queue.suspend()
        defer { queue.resume() }
        let task = Task<SocketError?, any Error>(executorPreference: client.executor) {
            _ = try await client.data(for: SocketRequest(type: 101))
            do {
                _ = try await client.data(for: SocketRequest(type: 102, timeout: .milliseconds(50)))
                return nil
            } catch let error as SocketError {
                return error
            }
        }
        #expect(try await waitForValue(of: task, "the error")?.code == .timeout)
    }
}
