// SPDX-License-Identifier: Apache-2.0
public import Foundation
import HHSocket

/// A group of calls, or of anything else that can be resumed and cancelled, which completes with its last member.
///
/// ```swift
/// let group = SocketTaskGroup { outcome in
///     print(outcome.isCancelled, outcome.failures)
/// }
/// group.add(profileRequest, to: client) { result in … }
/// group.add(friendsRequest, to: client) { result in … }
/// group.resume()
/// ```
/// The group completes once, after the completion handler of its last member has returned; without members, when it is
/// resumed. A member that fails does not affect the others: the outcome has its error. ``cancel()`` cancels all
/// members; the group then completes once, as cancelled, when all have ended.
///
/// Members may be added at any time. Those of a suspended group wait for ``resume()``; those of a running one are
/// resumed at once, and a member that is added by the handler of the last one keeps the group open. A member that is
/// added to a group that is being cancelled is cancelled and waited for; one that is added to a complete group is
/// cancelled and not waited for.
///
/// A running group needs no reference to continue. A group that is released before it is resumed or cancelled releases
/// its members, and reports no end.
public final class SocketTaskGroup: Sendable {
    public enum State: Sendable, Hashable {
        /// Neither resumed nor cancelled yet.
        case suspended
        case running
        /// Cancelled; some members have not ended.
        case canceling
        /// All members have ended; the completion has run or is about to run.
        case completed
    }

    /// The result of a group. It is an error itself, for groups that are members of others.
    public struct Outcome: Error, Sendable {
        /// Whether the group was cancelled before it was complete. Some of its members may have succeeded all the same.
        public package(set) var isCancelled: Bool
        /// The number of the group's members.
        package var memberCount: Int
        /// The members that failed, in the order in which they were added. Members that ended by
        /// ``SocketTaskGroup/cancel()`` are among them, with the error that they reported.
        public package(set) var failures: [Failure]

        /// - Throws: The first failure's error; ``/HHSocket/SocketError`` with the code `cancelled` if the group was
        ///   cancelled.
        public func get() throws {
            if self.isCancelled {
                throw SocketError(.cancelled, message: "the task group was cancelled before it was complete")
            }
            if let first = self.failures.first { throw first.error }
        }
    }

    /// A member that failed.
    public struct Failure: Sendable {
        /// The index of the member; 0 is the one that was added first.
        public package(set) var index: Int
        /// The error of the member: a ``/HHSocket/SocketError`` for calls, an ``Outcome`` for groups.
        public package(set) var error: any Error
    }

    let runner: TaskGroupRunner
    /// The largest weight; larger values count as this one.
    private static let maximumWeight = Int(clamping: Int64(1) << 32)

    /// - Parameters:
    ///   - callbackQueue: The queue on which `completionHandler` runs and ``progress`` changes: by default the main
    ///     queue on Apple's platforms, a private one elsewhere. With `.socketThread` it is the thread on which the last
    ///     member ends, or that calls ``resume()`` or ``cancel()`` if no member is left.
    ///   - completionHandler: Called exactly once after ``resume()`` or ``cancel()``.
    public init(
        on callbackQueue: CallbackQueue = .default,
        completionHandler: @escaping @Sendable (Outcome) -> Void = { _ in }
    ) {
        self.runner = TaskGroupRunner(callbackQueue, completionHandler)
    }

    deinit {
        self.runner.release()
    }

    // MARK: Members

    /// Adds a call.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - client: The client that makes the call.
    ///   - weight: The call's weight in ``fractionCompleted``; 1 by default, at least 0.
    ///   - callbackQueue: The queue on which `completionHandler` runs; nil, the default, for the client's.
    ///   - completionHandler: Called exactly once, as by
    ///     ``/HHSocketRPC/SocketClient/dataTask(with:on:completionHandler:)``. The group is complete after it has
    ///     returned, not before.
    /// - Returns: The task, which may also be resumed or cancelled alone.
    @discardableResult
    public func add(
        _ request: SocketRequest,
        to client: SocketClient,
        weight: Int = 1,
        on callbackQueue: CallbackQueue? = nil,
        completionHandler: @escaping @Sendable (Result<SocketResponse, SocketError>) -> Void = { _ in }
    ) -> SocketTask {
        self.add(weight: weight) { end in
            client.dataTask(with: request, on: callbackQueue) { result in
                completionHandler(result)
                end(result.error)
            }
        }
    }

    /// Adds anything that can be resumed and cancelled, such as the task of another library.
    ///
    /// ```swift
    /// group.add { end in
    ///     Download(url) { error in end(error) }
    /// }
    /// ```
    /// - Parameters:
    ///   - weight: The member's weight in ``fractionCompleted``; 1 by default, at least 0.
    ///   - make: Creates the member, suspended. `end` must be called when the member has ended and its handler has
    ///     returned, with an error if it failed. Only the first call counts. If `end` is released without a call, the
    ///     member counts as failed with `cancelled`.
    /// - Returns: The member.
    @discardableResult
    public func add<Member: SocketTaskGroupMember>(
        weight: Int = 1,
        _ make: (_ end: @escaping @Sendable ((any Error)?) -> Void) -> Member
    ) -> Member {
        // Bounded so that no sum of weights overflows.
        self.runner.add(weight: min(max(0, weight), Self.maximumWeight), make)
    }

    /// Adds another group, which is resumed and cancelled with this one. It has ended when its own completion handler
    /// has returned, and has failed if it was cancelled or one of its members failed; the error is its ``Outcome``.
    ///
    /// - Parameters:
    ///   - group: Another group than this one.
    ///   - weight: The group's weight in ``fractionCompleted``; 1 by default, whatever the number of its members.
    public func add(_ group: SocketTaskGroup, weight: Int = 1) {
        precondition(group !== self, "a task group cannot be a member of itself: it would wait for its own end")
        self.add(weight: weight) { end in
            group.runner.whenComplete { outcome in
                end(outcome.isCancelled || !outcome.failures.isEmpty ? outcome : nil)
            }
            return group
        }
    }

    // MARK: Life

    /// Starts all members, in the order in which they were added. Does nothing unless the group is suspended.
    public func resume() { self.runner.resume() }

    /// Cancels all members, in the order in which they were added. Does nothing once all have ended.
    public func cancel() { self.runner.cancel() }

    public var state: State {
        switch self.runner.phase {
        case .suspended, .released: .suspended
        case .running: .running
        case .canceling: .canceling
        case .completed: .completed
        }
    }

    /// The result of the group, once the completion handler has returned.
    public var outcome: Outcome? { self.runner.outcome }

    // MARK: Progress

    /// The number of members that have been added.
    package var memberCount: Int { self.runner.memberCount }

    /// The number of members that have ended.
    package var completedCount: Int { self.runner.completedCount }

    /// The progress of the whole group, from 0 to 1: that of its members, by their weights. It falls when members are
    /// added, or a call is sent again.
    public var fractionCompleted: Double { self.runner.fractionCompleted }

    /// The progress as an object for user interfaces: the weights of the members that have ended, and one more for the
    /// completion. Cancelling it cancels the group.
    ///
    /// It changes on the queue of the completion handler, and is finished when the handler is called. Where
    /// Foundation's `Progress` may not be used by several threads, as on Linux, read it on that queue.
    public var progress: Progress {
        self.runner.progress { [weak runner] in runner?.cancel() }
    }
}

extension SocketTaskGroup: SocketTaskGroupMember {}
