// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore

/// The outcome of one call.
struct MeasuredOutcome: Sendable {
    var result: Result<SocketResponse, SocketError>
    /// The time from its start to its end.
    var duration: Duration
    var metrics: SocketTaskMetrics?

    /// The metadata of the answer.
    var metadata: [String: String] {
        switch self.result {
        case .success(let response): response.metadata
        case .failure(let error): error.metadata
        }
    }
}

/// Makes one call a number of times, several at once, on one connection.
final class CallSequence: Sendable {
    private struct State {
        var running: [Int: SocketTask] = [:]
        var isCancelled = false
        /// The wait for a connection, if there is one.
        var waiting: Task<Void, Never>?
    }

    private let client: SocketClient
    private let request: SocketRequest
    /// The time that each call may take, including the wait for a connection.
    private let timeout: Duration
    /// The time from the start of each call to its deadline, which is sent to the server; nil for none.
    private let deadline: Duration?
    private let count: Int
    private let inFlight: Int
    private let state = NIOLockedValueBox(State())
    private let outcomes: AsyncStream<MeasuredOutcome>
    private let continuation: AsyncStream<MeasuredOutcome>.Continuation

    init(
        client: SocketClient,
        request: SocketRequest,
        timeout: Duration,
        deadline: Duration?,
        count: Int,
        inFlight: Int
    ) {
        self.client = client
        self.request = request
        self.timeout = timeout
        self.deadline = deadline
        self.count = count
        self.inFlight = inFlight
        (self.outcomes, self.continuation) = AsyncStream.makeStream()
    }

    /// Makes the calls and reports their outcomes, in the order in which they end. Returns when the last one has ended
    /// and the connection is closed.
    ///
    /// - Parameter report: Throws to end the sequence.
    /// - Returns: Whether every call was made and answered with status 200.
    /// - Throws: The error of `report`.
    func run(
        _ report: (MeasuredOutcome) throws(StandardOutput.Failure) -> Void
    ) async throws(StandardOutput.Failure) -> Bool {
        self.client.connect()
        var outcomes = self.outcomes.makeAsyncIterator()
        var started = 0
        var ended = 0
        var succeeded = 0
        var failure: StandardOutput.Failure?
        while true {
            while started < self.count, started - ended < self.inFlight, await self.start() { started += 1 }
            guard ended < started, let outcome = await outcomes.next() else { break }
            ended += 1
            if case .success = outcome.result { succeeded += 1 }
            guard failure == nil else { continue }
            do throws(StandardOutput.Failure) {
                try report(outcome)
            } catch {
                failure = error
                self.cancel()
            }
        }
        // Flushes: a cancel reaches the server before the process ends.
        await self.client.close()
        if let failure { throw failure }
        return succeeded == self.count
    }

    /// Cancels the calls in flight and starts no more.
    func cancel() {
        let (running, waiting) = self.state.withLockedValue { state in
            state.isCancelled = true
            return (Array(state.running.values), state.waiting)
        }
        waiting?.cancel()
        for task in running { task.cancel() }
    }

    /// Starts one call; false if the sequence is cancelled.
    private func start() async -> Bool {
        await self.waitForConnection()
        let clock = ContinuousClock()
        let begin = clock.now
        let made = NIOLockedValueBox<SocketTask?>(nil)
        var request = self.request
        if let deadline = self.deadline { request.deadline = .now() + TimeAmount(deadline) }
        let task = self.client.dataTask(with: request) { [state, continuation] result in
            let duration = clock.now - begin
            let task = made.withLockedValue { made in
                defer { made = nil }
                return made
            }
            if let task { state.withLockedValue { _ = $0.running.removeValue(forKey: task.taskIdentifier) } }
            continuation.yield(MeasuredOutcome(result: result, duration: duration, metrics: task?.metrics))
        }
        made.withLockedValue { $0 = task }
        let starts = self.state.withLockedValue { state in
            guard !state.isCancelled else { return false }
            state.running[task.taskIdentifier] = task
            return true
        }
        if starts { task.resume() } else { made.withLockedValue { $0 = nil } }
        return starts
    }

    /// Waits for a reconnect. Without a connection a call fails at once, which suits an app; here each call gets its
    /// chance.
    private func waitForConnection() async {
        guard case .waiting(_, let reason) = self.client.state else { return }
        guard !Self.isConnectFailure(reason.code) else {
            // No server could be reached a moment ago. This call tries again, and reports the result.
            self.client.connect()
            return
        }
        // The connection was lost: wait for the reconnect, which follows after a random back-off.
        let events = self.client.events
        let waiting = Task { [client, timeout] in
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    guard case .waiting = client.state else { return }
                    for await event in events {
                        switch event {
                        case .disconnected, .waiting: continue
                        default: return
                        }
                    }
                }
                group.addTask { try? await Task.sleep(for: timeout) }
                await group.next()
                group.cancelAll()
            }
        }
        let isCancelled = self.state.withLockedValue { state in
            state.waiting = waiting
            return state.isCancelled
        }
        if isCancelled { waiting.cancel() }
        await waiting.value
        self.state.withLockedValue { $0.waiting = nil }
    }

    private static func isConnectFailure(_ code: SocketError.Code) -> Bool {
        switch code {
        case .connectionRefused, .connectTimeout, .hostNotFound, .connectFailed, .networkUnreachable: true
        // Here only hello is part of the handshake.
        case .handshakeRefused, .handshakeTimeout: true
        default: false
        }
    }
}
