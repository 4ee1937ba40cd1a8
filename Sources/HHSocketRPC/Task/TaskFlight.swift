import HHSocket
import NIOCore
import Tracing

/// What the socket thread knows of a task.
struct TaskFlight {
    /// Its place in the dispatch table while it is there.
    var key: DispatchKey?
    /// What an interceptor made of the request, if there are any.
    var request: SocketRequest?
    var deadline = NIODeadline.distantFuture

    // What SocketTaskMetrics will tell.
    var queued: NIODeadline?
    var sent: NIODeadline?
    var firstByte: NIODeadline?
    var completed: NIODeadline?
    var server: Endpoint?
    var attempts = 0
    var bytesSent = 0
    var bytesReceived = 0

    /// How many attempts followed another, since the innermost interceptor asked for the call.
    var retries = 0
    /// Why the attempt before failed.
    var lastFailure: SocketError?
    /// Whether the server may have run the request in an attempt before, or when an interceptor asked before.
    var mayHaveRun = false

    /// Where the one who resumed the task stands among spans.
    var context: ServiceContext?
    var span: (any Span)?
    /// The Swift task in which the interceptors run.
    var interception: Task<Void, Never>?
    /// The innermost interceptor, which waits for an answer.
    var reply: CheckedContinuation<Result<SocketResponse, SocketError>, Never>?
}
