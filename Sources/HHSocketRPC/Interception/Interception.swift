// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// The interceptors of calls that are in the table. Those of a call run in a Swift task; each time they request the
/// server's answer, an attempt begins, and its end resumes them. On the socket thread.
final class Interception: @unchecked Sendable {
    // Proof of Sendable: the interceptors are Sendable; the runs are accessed only on the socket thread.
    typealias Reply = CheckedContinuation<CallOutcome, Never>

    /// The interceptors of one call.
    private struct Run {
        let task: Task<Void, Never>
        /// The innermost interceptor, which waits for an answer.
        var reply: Reply?
    }

    private let interceptors: [any SocketInterceptor]
    private var runs: [DispatchKey: Run] = [:]

    init(_ interceptors: [any SocketInterceptor]) {
        self.interceptors = interceptors
    }

    /// Whether the interceptors of a call are running.
    func isRunning(_ key: DispatchKey) -> Bool { self.runs[key] != nil }
    /// Whether the interceptors of a call wait for an answer.
    func isWaiting(_ key: DispatchKey) -> Bool { self.runs[key]?.reply != nil }

    /// Starts the interceptors of a call.
    func begin(_ task: SocketTask, _ key: DispatchKey, for engine: CallEngine) {
        let chain = self.interceptors.chain(
            to: SocketInterceptorNext { [weak self, weak engine] request throws(SocketError) in
                guard let self, let engine else { throw CallErrors.released }
                return try await self.call(task, request, for: engine)
            }
        )
        let request = task.originalRequest
        let context = task.flight.span?.context ?? task.flight.context ?? .topLevel
        let run = Task { [weak engine] in
            let result = await ServiceContext.withValue(context) { () async -> CallOutcome in
                do throws(SocketError) {
                    return .success(try await chain(request))
                } catch {
                    return .failure(error)
                }
            }
            engine?.loop.submit(.closure { [weak engine] in engine?.interceptorsReturned(task, result, in: &$0) })
        }
        self.runs[key] = Run(task: run)
    }

    /// Makes the call for the innermost interceptor, and returns the server's answer. Any thread.
    private func call(
        _ task: SocketTask,
        _ request: SocketRequest,
        for engine: CallEngine
    ) async throws(SocketError) -> SocketResponse {
        let result = await withCheckedContinuation { (reply: Reply) in
            let isAlive = engine.loop.submit(
                .closure { self.wasAsked(task, request, reply: reply, for: engine, in: &$0) }
            )
            if !isAlive { reply.resume(returning: .failure(CallErrors.released)) }
        }
        return try result.get()
    }

    /// The innermost interceptor requests the answer to `request`, which resumes `reply`.
    private func wasAsked(
        _ task: SocketTask,
        _ request: SocketRequest,
        reply: Reply,
        for engine: CallEngine,
        in turn: inout Turn
    ) {
        guard let key = task.flight.key, let phase = engine.phase(of: key), self.isRunning(key) else {
            let error = CallErrors.interceptedTooLate(task.originalRequest.type)
            return reply.resume(returning: .failure(error))
        }
        guard phase == .idle, !self.isWaiting(key) else {
            return reply.resume(returning: .failure(CallErrors.nextIsRunning))
        }
        do throws(SocketError) {
            try engine.check(request, of: task, in: &turn)
        } catch {
            return reply.resume(returning: .failure(error))
        }
        task.flight.request = request
        task.flight.deflated = nil
        task.flight.retries = 0
        task.flight.resends = 0
        self.runs[key]?.reply = reply
        engine.attemptFirst(task, key, in: &turn)
    }

    /// Removes and returns the interceptor that waits for the end of a call's attempt, which must be resumed with it.
    func takeReply(of key: DispatchKey) -> Reply? {
        guard let reply = self.runs[key]?.reply else { return nil }
        self.runs[key]?.reply = nil
        return reply
    }

    /// Cancels the interceptors of a completed call, if they are still running; `result` replies to the one that waits.
    func completed(_ key: DispatchKey, _ result: @autoclosure () -> CallOutcome) {
        guard let run = self.runs.removeValue(forKey: key) else { return }
        run.task.cancel()
        run.reply?.resume(returning: result())
    }
}
