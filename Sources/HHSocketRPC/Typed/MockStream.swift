// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage
import NIOConcurrencyHelpers
import NIOCore

/// The far end of a mocked stream, in place of a server.
///
/// ```swift
/// let (stream, far) = MessageStream<Note, Note>.mock()
/// mock.onTalk = { stream }
/// far.respond(note)
/// far.finish()
/// for await sent in far.requests { … }
/// ```
/// There are no windows: a sent message arrives at once, and its sender continues. If the call has a
/// ``CallOptions/timeout`` or a ``CallOptions/deadline``, the stream ends with `timeout` when that is reached, as a
/// client's does.
public final class MockStream<Request: MessageBody, Response: MessageBody>: Sendable {
    /// The final answer of a mocked stream.
    struct Answer: Sendable {
        var response: SocketResponse
        fileprivate var result: Response?

        func message() throws(SocketError) -> Response {
            if let result { return result }
            do {
                return try self.response.body.message()
            } catch {
                throw SocketError(mocked: error)
            }
        }
    }

    /// Retained by the near end's streams and iterators. Its release is that of the stream.
    final class Near: Sendable {
        let far: MockStream

        init(_ far: MockStream) {
            self.far = far
        }

        deinit {
            self.far.wasCancelled()
        }
    }

    private typealias Waiter = CheckedContinuation<Result<Answer, SocketError>, Never>

    private struct State {
        var end: Result<Answer, SocketError>?
        var waiters: [Int: Waiter] = [:]
        var lastWaiter = 0
        /// The time limits of the calls that have returned the stream.
        var timers: [Task<Void, Never>] = []
        var isCancelled = false
    }

    /// The messages that the code under test has sent. The sequence ends when that code ends its messages, and when the
    /// stream has ended.
    public let requests: AsyncStream<Request>
    let responses: AsyncStream<Response>
    private let requestSink: AsyncStream<Request>.Continuation
    private let responseSink: AsyncStream<Response>.Continuation
    private let state = NIOLockedValueBox(State())

    package init() {
        (self.requests, self.requestSink) = AsyncStream.makeStream(of: Request.self)
        (self.responses, self.responseSink) = AsyncStream.makeStream(of: Response.self)
    }

    /// Whether the code under test has cancelled the stream, or released it before its end.
    public var isCancelled: Bool { self.state.withLockedValue { $0.isCancelled } }

    /// Sends a message to the code under test. Without effect once the stream has ended.
    public func respond(_ message: Response) { self.responseSink.yield(message) }

    /// Ends the stream: with status 200, or with an error. Earlier messages still arrive.
    public func finish(throwing error: SocketError? = nil) {
        self.complete(error.map { .failure($0) } ?? .success(Answer(response: Self.response(ByteBuffer()))))
    }

    /// Ends the stream with its one answer, if the server does not stream.
    public func answer(_ message: Response) {
        do {
            let response = Self.response(try ByteBuffer(message: message))
            self.complete(.success(Answer(response: response, result: message)))
        } catch {
            self.complete(.failure(SocketError(mocked: error)))
        }
    }

    private static func response(_ body: ByteBuffer) -> SocketResponse {
        SocketResponse(type: 0, body: body, endpoint: Endpoint(host: "mock", port: 0))
    }

    @discardableResult
    private func complete(_ end: Result<Answer, SocketError>) -> Bool {
        let ended = self.state.withLockedValue { state -> (waiters: [Waiter], timers: [Task<Void, Never>])? in
            guard state.end == nil else { return nil }
            state.end = end
            defer { (state.waiters, state.timers) = ([:], []) }
            return (Array(state.waiters.values), state.timers)
        }
        guard let ended else { return false }
        for timer in ended.timers { timer.cancel() }
        for waiter in ended.waiters { waiter.resume(returning: end) }
        self.responseSink.finish()
        self.requestSink.finish()
        return true
    }

    /// Ends the stream with `error` when `limit` is reached, unless it has ended before.
    func end(at limit: MockLimit, with error: SocketError) {
        let timer = limit.timer { [weak self] in _ = self?.complete(.failure(error)) }
        let hasEnded = self.state.withLockedValue { state in
            if state.end == nil { state.timers.append(timer) }
            return state.end != nil
        }
        if hasEnded { timer.cancel() }
    }

    // MARK: The near end

    func receive(_ message: Request) throws(SocketError) {
        if let end = self.state.withLockedValue({ $0.end }) {
            _ = try end.get()
            throw SocketError(
                .cancelled,
                message: "the mocked stream has ended: no item is sent on it any more",
                delivery: .answered
            )
        }
        self.requestSink.yield(message)
    }

    var isAnswered: Bool { self.state.withLockedValue { $0.end.map { $0.error == nil } ?? false } }

    func finishRequests() { self.requestSink.finish() }

    func wasCancelled() {
        guard self.complete(.failure(SocketError(.cancelled, message: "the mocked stream was cancelled"))) else {
            return
        }
        self.state.withLockedValue { $0.isCancelled = true }
    }

    /// Throws the error that the stream has ended with, or was cancelled by the task that reads it.
    func throwEnd() async throws(SocketError) {
        if Task.isCancelled { self.wasCancelled() }
        _ = try await self.finalAnswer()
    }

    func finalAnswer() async throws(SocketError) -> Answer {
        let number = self.state.withLockedValue { state in
            state.lastWaiter += 1
            return state.lastWaiter
        }
        return try await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let end = self.state.withLockedValue { state in
                    if state.end == nil { state.waiters[number] = waiter }
                    return state.end
                }
                if let end { waiter.resume(returning: end) }
            }
        } onCancel: {
            self.wasCancelled()
        }.get()
    }
}
