// SPDX-License-Identifier: Apache-2.0
/// The thread of a client, or of a server's connection, as an executor of Swift tasks.
///
/// ```swift
/// Task(executorPreference: client.executor) {
///     for await push in client.pushes(ofType: 2001) {
///         let answer = try await client.data(for: request(after: push))
///         …
///     }
/// }
/// ```
/// A task here is resumed in the turn of the thread that receives its answer, and its next requests are sent with that
/// turn: awaiting a call costs no change of threads. A turn runs 1,024 jobs or about 5 ms at most; others wait for the
/// next one.
///
/// **A job must not block.** While it computes or waits other than by `await`, nothing is sent or received, including
/// answers and heartbeats, and a job that blocks until an answer arrives waits for ever. Work that takes more than
/// about 100 µs belongs elsewhere. A debug build logs a warning when a job has blocked the thread for 100 ms.
///
/// Once the client has been released, or the server has shut down, jobs run on the system's threads, one after the
/// other: each of them exactly once.
///
/// Requires macOS 15, iOS 18, tvOS 18, watchOS 11 or visionOS 2 to be used as a `TaskExecutor`; Linux has no such
/// limit.
public final class SocketExecutor: Sendable {
    private let loop: SocketLoop
    /// This thread as an executor for actors.
    ///
    /// ```swift
    /// actor Conversation {
    ///     private let executor: SocketExecutor
    ///     nonisolated var unownedExecutor: UnownedSerialExecutor { executor.serial.asUnownedSerialExecutor() }
    /// }
    /// ```
    /// The actor has to keep the executor, or the client. Calls from its methods cost no change of threads. Requires
    /// macOS 14, iOS 17, tvOS 17, watchOS 10 or visionOS 1; Linux has no such limit.
    public let serial: Serial

    package init(_ loop: SocketLoop) {
        self.loop = loop
        self.serial = Serial(loop)
    }

    /// A socket's thread as the executor of actors.
    public final class Serial: Sendable {
        private let loop: SocketLoop

        init(_ loop: SocketLoop) {
            self.loop = loop
        }
    }
}

@available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
extension SocketExecutor: TaskExecutor {
    public func enqueue(_ job: consuming ExecutorJob) {
        self.loop.enqueue(SocketJob(UnownedJob(job), .task(.passUnretained(self)), on: self.loop))
    }
}

@available(macOS 14, iOS 17, tvOS 17, watchOS 10, visionOS 1, *)
extension SocketExecutor.Serial: SerialExecutor {
    public func enqueue(_ job: consuming ExecutorJob) {
        self.loop.enqueue(SocketJob(UnownedJob(job), .serial(.passUnretained(self)), on: self.loop))
    }

    /// Ends the process unless called on the socket's thread, so that `assumeIsolated` works in completion handlers
    /// there.
    public func checkIsolated() {
        precondition(self.loop.isCurrent, "this is not the socket's thread")
    }
}
