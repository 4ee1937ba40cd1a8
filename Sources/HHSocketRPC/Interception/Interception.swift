// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Tracing

/// The owner of the calls that interceptors run for, which is on the socket thread. A protocol, since the engine's name
/// would join this file to its cycle.
protocol InterceptedCalls: AnyObject, Sendable {
    var loop: SocketLoop { get }

    /// Whether a call has no attempt in progress; nil if it has completed.
    func isIdle(_ key: DispatchKey) -> Bool?

    /// Begins the first attempt that an interceptor has requested.
    ///
    /// - Parameter willBegin: Called before it begins.
    /// - Throws: The error of a request that can never be sent; no attempt begins.
    func attempt(
        _ key: DispatchKey,
        _ request: SocketRequest,
        in turn: inout Turn,
        willBegin: () -> Void
    ) throws(SocketError)

    /// Completes a call with the result of its interceptors.
    func interceptorsReturned(_ key: DispatchKey, _ result: CallOutcome, in turn: inout Turn)
}

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
    ///
    /// - Parameter context: The span context that they run in.
    func begin(
        _ request: SocketRequest,
        _ key: DispatchKey,
        in context: ServiceContext,
        for owner: any InterceptedCalls
    ) {
        let chain = self.interceptors.chain(
            to: SocketInterceptorNext { [weak self, weak owner] changed throws(SocketError) in
                guard let self, let owner else { throw CallErrors.released }
                return try await self.call(Asking(key: key, type: request.type, request: changed), for: owner)
            }
        )
        let run = Task { [weak owner] in
            let result = await ServiceContext.withValue(context) { () async -> CallOutcome in
                await .of { () async throws(SocketError) in try await chain(request) }
            }
            owner?.loop.submit { [weak owner] in owner?.interceptorsReturned(key, result, in: &$0) }
        }
        self.runs[key] = Run(task: run)
    }

    /// A request of the innermost interceptor of a call.
    private struct Asking {
        let key: DispatchKey
        /// The type of the call's own request.
        let type: UInt32
        let request: SocketRequest
    }

    /// Makes the call for the innermost interceptor, and returns the server's answer. Any thread.
    private func call(_ asking: Asking, for owner: any InterceptedCalls) async throws(SocketError) -> SocketResponse {
        let result = await withCheckedContinuation { (reply: Reply) in
            let isAlive = owner.loop.submit(.closure { self.wasAsked(asking, reply: reply, for: owner, in: &$0) })
            if !isAlive { reply.resume(returning: .failure(CallErrors.released)) }
        }
        return try result.get()
    }

    /// The innermost interceptor requests an answer, which resumes `reply`.
    private func wasAsked(_ asking: Asking, reply: Reply, for owner: any InterceptedCalls, in turn: inout Turn) {
        guard let isIdle = owner.isIdle(asking.key), let run = self.runs[asking.key] else {
            return reply.resume(returning: .failure(CallErrors.interceptedTooLate(asking.type)))
        }
        guard isIdle, run.reply == nil else {
            return reply.resume(returning: .failure(CallErrors.nextIsRunning))
        }
        do throws(SocketError) {
            try owner.attempt(asking.key, asking.request, in: &turn) { self.runs[asking.key]?.reply = reply }
        } catch {
            reply.resume(returning: .failure(error))
        }
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
