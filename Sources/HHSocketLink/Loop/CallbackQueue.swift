// SPDX-License-Identifier: Apache-2.0
public import Dispatch

/// The queue of delegate callbacks and completion handlers. Cases may be added; have a default when you switch over
/// it.
public enum CallbackQueue: Sendable {
    /// Callbacks run on a queue, in order if it is serial. The callbacks of one read are submitted in one block.
    case queue(DispatchQueue)

    /// Callbacks run on the thread that owns the connection: the least delay, but a callback that takes long, or
    /// blocks, delays every other call. For callbacks that only pass results on.
    ///
    /// A callback never runs before the function that was called has returned, so it may take a lock that the caller
    /// holds; with one exception. The thread ends soon after its client or socket was released or invalidated: from
    /// then on functions that are still called, such as those of a task or a subscription that was kept, call back on
    /// the calling thread, before they return.
    case socketThread

    /// Runs `body` where callbacks run; on the calling thread if that is the socket thread, for callers that have none.
    package func run(_ body: @escaping @Sendable () -> Void) {
        switch self {
        case .queue(let queue): queue.async(execute: body)
        case .socketThread: body()
        }
    }

    /// The main queue on Apple platforms, a private serial queue elsewhere.
    public static var `default`: CallbackQueue {
        #if canImport(Darwin)
        .queue(.main)
        #else
        .queue(DispatchQueue(label: "HHSocket callbacks"))
        #endif
    }
}
