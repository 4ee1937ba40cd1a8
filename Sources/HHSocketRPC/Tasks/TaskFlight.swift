// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// The socket thread's part of a task. Small, because every call has one: properties that few calls need are stored
/// behind a reference.
struct TaskFlight {
    /// The key of the call while it is in the dispatch table.
    var key: DispatchKey?
    var deadline = NIODeadline.distantFuture

    // The values of SocketTaskMetrics.
    var queued = Moment()
    var sent = Moment()
    var firstByte = Moment()
    var completed = Moment()
    /// The server to which the request was sent last.
    var origin: SocketResponse.Origin?
    var attempts: UInt32 = 0
    var bytesSent = 0
    var bytesReceived = 0

    private var rareState: RareState?

    /// Records that the whole request was sent at the time at which it was queued.
    mutating func isSentOnFastPath(
        _ key: DispatchKey,
        at time: NIODeadline,
        until deadline: NIODeadline,
        bytes length: Int
    ) {
        self.key = key
        self.deadline = deadline
        self.queued.comes(at: time)
        self.sent.comes(at: time)
        self.attempts = 1
        self.bytesSent = length
    }

    /// A point in time that may be in the future.
    struct Moment {
        private var time = NIODeadline.distantPast

        /// The time; nil until it has been set.
        var date: NIODeadline? { self.hasCome ? self.time : nil }
        var hasCome: Bool { self.time > .distantPast }

        mutating func comes(at time: NIODeadline) { self.time = time }

        /// Sets the moment unless it is set already.
        mutating func comesFirst(at time: NIODeadline) {
            if !self.hasCome { self.time = time }
        }
    }

    /// The result of compressing a body.
    enum Deflated: Equatable {
        case smaller(ByteBuffer)
        case notSmaller
    }

    /// Properties that few calls need. Socket thread only, like everything here.
    private final class RareState {
        var request: SocketRequest?
        var payloadLength: Int?
        var deflated: Deflated?
        var retries = 0
        var resends = 0
        var lastFailure: SocketError?
        var mayHaveRun = false
        var context: ServiceContext?
        var span: (any Span)?
    }

    private mutating func set<T>(_ path: ReferenceWritableKeyPath<RareState, T>, _ value: T) {
        let rareState = self.rareState ?? RareState()
        rareState[keyPath: path] = value
        self.rareState = rareState
    }

    /// The request as changed by the interceptors, if there are any.
    var request: SocketRequest? {
        get { self.rareState?.request }
        set { self.set(\.request, newValue) }
    }

    /// The length of the current attempt's payload, in bytes, if it is not only the request's body.
    var payloadLength: Int? {
        get { self.rareState?.payloadLength }
        set { if newValue != self.rareState?.payloadLength { self.set(\.payloadLength, newValue) } }
    }

    /// The result of compressing the request's body on another thread; nil if that was not done.
    var deflated: Deflated? {
        get { self.rareState?.deflated }
        set { if newValue != nil || self.rareState?.deflated != nil { self.set(\.deflated, newValue) } }
    }

    /// The number of retries since the innermost interceptor requested the call.
    var retries: Int {
        get { self.rareState?.retries ?? 0 }
        set { self.set(\.retries, newValue) }
    }

    /// The number of times that the call was sent again because a server was shutting down, since the innermost
    /// interceptor requested it.
    var resends: Int {
        get { self.rareState?.resends ?? 0 }
        set { self.set(\.resends, newValue) }
    }

    /// The error of the previous attempt.
    var lastFailure: SocketError? {
        get { self.rareState?.lastFailure }
        set { self.set(\.lastFailure, newValue) }
    }

    /// Whether the server may have run the request in an earlier attempt, or at an earlier request of an interceptor.
    var mayHaveRun: Bool {
        get { self.rareState?.mayHaveRun ?? false }
        set { self.set(\.mayHaveRun, newValue) }
    }

    /// The span context of the caller that resumed the task.
    var context: ServiceContext? {
        get { self.rareState?.context }
        set { self.set(\.context, newValue) }
    }

    var span: (any Span)? {
        get { self.rareState?.span }
        set { self.set(\.span, newValue) }
    }
}
