// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// Calls with interceptors. Such a call is in the table from its start. Its interceptors run in a Swift task; each time
/// they request the server's answer, an attempt begins, and its end resumes them.
extension ClientCore {
    /// Starts the interceptors of a call.
    func intercept(_ task: SocketTask, _ key: DispatchKey) {
        let chain = self.configuration.interceptors.chain(
            to: SocketInterceptorNext { [weak self] request throws(SocketError) in
                guard let self else { throw Self.released }
                return try await self.callFromInterceptor(task, request)
            }
        )
        let request = task.originalRequest
        let context = task.flight.span?.context ?? task.flight.context ?? .topLevel
        task.flight.interception = Task { [weak self] in
            let result = await ServiceContext.withValue(context) { () async -> Result<SocketResponse, SocketError> in
                do throws(SocketError) {
                    return .success(try await chain(request))
                } catch {
                    return .failure(error)
                }
            }
            _ = self?.submit(.closure { [weak self] in self?.interceptorsReturned(task, result, in: &$0) })
        }
    }

    /// Makes the call for the innermost interceptor, and returns the server's answer. Any thread.
    private func callFromInterceptor(
        _ task: SocketTask,
        _ request: SocketRequest
    ) async throws(SocketError) -> SocketResponse {
        let result = await withCheckedContinuation {
            (reply: CheckedContinuation<Result<SocketResponse, SocketError>, Never>) in
            let isAlive = self.submit(.closure { self.interceptorAsks(task, request, reply, in: &$0) })
            if !isAlive { reply.resume(returning: .failure(Self.released)) }
        }
        return try result.get()
    }

    private func interceptorAsks(
        _ task: SocketTask,
        _ request: SocketRequest,
        _ reply: CheckedContinuation<Result<SocketResponse, SocketError>, Never>,
        in turn: inout Turn
    ) {
        guard let key = task.flight.key, let phase = self.hot.table.phase(of: key) else {
            return reply.resume(returning: .failure(self.interceptedTooLate(task)))
        }
        guard phase == .idle, task.flight.reply == nil else {
            return reply.resume(
                returning: .failure(
                    SocketError(
                        .invalidArgument,
                        message: "an interceptor called next again before the call of it before had returned"
                    )
                )
            )
        }
        do throws(SocketError) {
            try self.check(request, in: &turn)
            if let stream = task.flight.stream { try self.check(request, for: stream) }
        } catch {
            return reply.resume(returning: .failure(error))
        }
        task.flight.request = request
        task.flight.deflated = nil
        task.flight.reply = reply
        task.flight.retries = 0
        task.flight.resends = 0
        self.hot.table.resetAttempts(key)
        self.attempt(task, key, in: &turn)
        self.armTimer()
    }

    private func interceptorsReturned(
        _ task: SocketTask,
        _ result: Result<SocketResponse, SocketError>,
        in turn: inout Turn
    ) {
        // Otherwise the call has completed already.
        guard let key = task.flight.key, let attempt = self.hot.table.remove(key) else { return }
        // They may have returned without waiting for an answer that they requested.
        self.sendCancel(of: attempt, in: &turn)
        self.complete(task, result, in: &turn)
    }

    /// Cancels the interceptors of a completed call, if they are still running; `result` replies to the one that waits.
    func endInterception(_ task: SocketTask, _ result: Result<SocketResponse, SocketError>, in turn: inout Turn) {
        guard let interception = task.flight.interception else { return }
        task.flight.interception = nil
        interception.cancel()
        if let reply = task.flight.reply {
            task.flight.reply = nil
            reply.resume(returning: result)
        }
    }

    private func interceptedTooLate(_ task: SocketTask) -> SocketError {
        SocketError(
            .cancelled,
            message:
                "the call of type \(task.originalRequest.type) has completed, before an interceptor "
                + "asked for its answer"
        )
    }
}
