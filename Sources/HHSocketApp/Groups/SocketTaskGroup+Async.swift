// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

extension SocketTaskGroup {
    /// Resumes the group and waits until it is complete and its completion handler has returned. Cancelling the Swift
    /// task cancels the group.
    ///
    /// - Returns: The outcome, even if the group had completed before.
    @discardableResult
    public func run() async -> Outcome {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                self.runner.whenComplete { continuation.resume(returning: $0) }
                self.resume()
            }
        } onCancel: {
            self.cancel()
        }
    }

    /// Makes a call that belongs to the group, and waits for its answer. The call begins when the group is resumed, and
    /// is cancelled with it. Cancelling the Swift task cancels only this call.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - client: The client that makes the call.
    ///   - weight: The call's weight in ``fractionCompleted``; 1 by default, at least 0.
    /// - Throws: ``/HHSocket/SocketError``, as ``/HHSocketRPC/SocketClient/data(for:)``.
    public func data(
        for request: SocketRequest,
        with client: SocketClient,
        weight: Int = 1
    ) async throws(SocketError) -> SocketResponse {
        let call = CancellableMember()
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                call.set(
                    self.add(request, to: client, weight: weight) { continuation.resume(returning: $0) }
                )
            }
        } onCancel: {
            call.cancel()
        }
        return try result.get()
    }

    /// Adds a function, which runs in its own Swift task once the group is resumed. The task is cancelled with the
    /// group; a function that has not begun then does not run.
    ///
    /// - Parameters:
    ///   - weight: The function's weight in ``fractionCompleted``; 1 by default, at least 0.
    ///   - operation: The function. An error that it throws is the member's failure.
    public func addOperation(weight: Int = 1, _ operation: @escaping @Sendable () async throws -> Void) {
        self.add(weight: weight) { end in OperationMember(operation, end) }
    }
}

/// Runs `body` with a running group, which stays open for new members until `body` has returned: for several `async
/// let` that are cancelled together and have one progress.
///
/// ```swift
/// let (profile, friends) = try await withSocketTaskGroup { group in
///     async let profile = group.data(for: profileRequest, with: client)
///     async let friends = group.data(for: friendsRequest, with: client)
///     return try await (profile, friends)
/// }
/// ```
/// Returns when all members have ended. If `body` throws, or the Swift task is cancelled, the group is cancelled.
///
/// - Throws: The error of `body`. Failures of members are for `body` to handle: the group itself throws nothing.
public func withSocketTaskGroup<Value: Sendable>(
    isolation: isolated (any Actor)? = #isolation,
    _ body: (SocketTaskGroup) async throws -> Value
) async throws -> Value {
    let group = SocketTaskGroup(on: .socketThread)
    group.runner.hold()
    group.resume()
    let result: Result<Value, any Error> = await withTaskCancellationHandler {
        do {
            return .success(try await body(group))
        } catch {
            group.cancel()
            return .failure(error)
        }
    } onCancel: {
        group.cancel()
    }
    group.runner.letGo()
    await group.run()
    return try result.get()
}

/// A member that can be cancelled even before it exists.
private final class CancellableMember: Sendable {
    private struct State {
        var member: SocketTask?
        var isCancelled = false
    }

    private let state = NIOLockedValueBox(State())

    func set(_ member: SocketTask) {
        let isCancelled = self.state.withLockedValue { state in
            state.member = member
            return state.isCancelled
        }
        if isCancelled { member.cancel() }
    }

    func cancel() {
        let member = self.state.withLockedValue { state in
            state.isCancelled = true
            return state.member
        }
        member?.cancel()
    }
}

/// A member that runs a function.
private final class OperationMember: SocketTaskGroupMember {
    private enum State {
        case suspended(@Sendable () async throws -> Void)
        case running(Task<Void, Never>)
        case over
    }

    private let state: NIOLockedValueBox<State>
    private let end: @Sendable ((any Error)?) -> Void

    init(
        _ operation: @escaping @Sendable () async throws -> Void,
        _ end: @escaping @Sendable ((any Error)?) -> Void
    ) {
        self.state = NIOLockedValueBox(.suspended(operation))
        self.end = end
    }

    func resume() {
        self.state.withLockedValue { state in
            guard case .suspended(let operation) = state else { return }
            let end = self.end
            // The task is only created under the lock; its body does not run there.
            state = .running(
                Task {
                    do {
                        try await operation()
                        end(nil)
                    } catch {
                        end(error)
                    }
                }
            )
        }
    }

    func cancel() {
        let state = self.state.withLockedValue { state in
            let former = state
            if case .suspended = state { state = .over }
            return former
        }
        switch state {
        case .suspended:
            self.end(SocketError(.cancelled, message: "the task group was cancelled before this member began"))
        case .running(let task): task.cancel()
        case .over: break
        }
    }
}
