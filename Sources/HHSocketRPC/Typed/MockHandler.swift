// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import HHSocketMessage

/// The handler of a mocked method whose caller passes one request. Generated mocks store their handlers in it.
@propertyWrapper
@_documentation(visibility: internal)
public struct MockHandler<Request: Sendable, Response: Sendable>: Sendable {
    private let method: MockedMethod
    private var handler: (@Sendable (Request, CallOptions) async throws -> Response)?

    /// Creates a property without a handler.
    ///
    /// - Parameters:
    ///   - mock: The type of the mock, for errors.
    ///   - name: The name of the property, for errors.
    public init(of mock: String, named name: String) {
        self.method = MockedMethod(mock: mock, handler: name)
    }

    /// The handler that is given the request only; nil if none is set. A handler from ``set(_:)`` that is read here is
    /// given default options.
    public var wrappedValue: (@Sendable (Request) async throws -> Response)? {
        get {
            guard let handler = self.handler else { return nil }
            return { request in try await handler(request, CallOptions()) }
        }
        set {
            guard let newValue else { return self.handler = nil }
            self.handler = { request, _ in try await newValue(request) }
        }
    }

    /// Replaces the handler with one that is given the call's options too.
    public mutating func set(_ handler: @escaping @Sendable (Request, CallOptions) async throws -> Response) {
        self.handler = handler
    }

    /// Answers a call with the handler, which runs in a separate task.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - options: The options of the call, of which the timeout and the deadline apply.
    ///   - clock: The clock by which time passes.
    /// - Throws: ``/HHSocket/SocketError``: that of the handler (`init(mocked:)`); `timeout` if
    ///   the handler does not return in time; `cancelled` as soon as the caller's task is cancelled; `invalidArgument`
    ///   without a handler. The handler's task is cancelled with the call.
    public nonisolated(nonsending) func answer(
        _ request: Request,
        options: CallOptions,
        clock: any Clock<Duration>
    ) async throws(SocketError) -> Response {
        guard let handler = self.handler else { throw self.method.unanswered }
        let limit = MockLimit(options, by: clock)
        return try await self.method.call(within: limit) { try await handler(request, options) }
    }

    /// Opens a stream with the handler, like ``answer(_:options:clock:)``. The timeout and the deadline apply to the
    /// whole stream.
    public nonisolated(nonsending) func open<Sent, Received>(
        _ request: Request,
        options: CallOptions,
        clock: any Clock<Duration>
    ) async throws(SocketError) -> Response where Response == MessageStream<Sent, Received> {
        guard let handler = self.handler else { throw self.method.unanswered }
        return try await self.method.open(within: MockLimit(options, by: clock)) { try await handler(request, options) }
    }
}

/// The handler of a mocked method whose caller sends a stream. Generated mocks store their handlers in it.
@propertyWrapper
@_documentation(visibility: internal)
public struct MockStreamHandler<Request: MessageBody, Response: MessageBody>: Sendable {
    private let method: MockedMethod
    private var handler: (@Sendable (CallOptions) async throws -> MessageStream<Request, Response>)?

    /// Creates a property without a handler.
    ///
    /// - Parameters:
    ///   - mock: The type of the mock, for errors.
    ///   - name: The name of the property, for errors.
    public init(of mock: String, named name: String) {
        self.method = MockedMethod(mock: mock, handler: name)
    }

    /// The handler that is given nothing; nil if none is set. A handler from ``set(_:)`` that is read here is given
    /// default options.
    public var wrappedValue: (@Sendable () async throws -> MessageStream<Request, Response>)? {
        get {
            guard let handler = self.handler else { return nil }
            return { try await handler(CallOptions()) }
        }
        set {
            guard let newValue else { return self.handler = nil }
            self.handler = { _ in try await newValue() }
        }
    }

    /// Replaces the handler with one that is given the call's options.
    public mutating func set(
        _ handler: @escaping @Sendable (CallOptions) async throws -> MessageStream<Request, Response>
    ) {
        self.handler = handler
    }

    /// Opens a stream with the handler, which runs in a separate task.
    ///
    /// - Parameters:
    ///   - options: The options of the call, of which the timeout and the deadline apply to the whole stream.
    ///   - clock: The clock by which time passes.
    /// - Throws: The errors of ``MockHandler/answer(_:options:clock:)``.
    public nonisolated(nonsending) func open(
        options: CallOptions,
        clock: any Clock<Duration>
    ) async throws(SocketError) -> MessageStream<Request, Response> {
        guard let handler = self.handler else { throw self.method.unanswered }
        return try await self.method.open(within: MockLimit(options, by: clock)) { try await handler(options) }
    }
}

/// A method of a mock, whose calls end as those of a client do.
private struct MockedMethod: Sendable {
    var mock: String
    var handler: String

    var unanswered: SocketError { .unanswered(by: self.mock, handler: self.handler) }

    nonisolated(nonsending) func call<Response: Sendable>(
        within limit: MockLimit?,
        _ handler: @escaping @Sendable () async throws -> Response
    ) async throws(SocketError) -> Response {
        if Task.isCancelled { throw SocketError.cancelledMock(delivery: .notSent) }
        guard let limit else { return try await MockCall(handler).run() }
        guard !limit.isReached else {
            throw self.timeout("\(self.handler) was not called, because it could not return \(limit)", .notSent)
        }
        let error = self.timeout("\(self.handler) did not return \(limit)", .sentUnknown)
        return try await MockCall(handler).run(until: (limit, error))
    }

    nonisolated(nonsending) func open<Request, Response>(
        within limit: MockLimit?,
        _ handler: @escaping @Sendable () async throws -> MessageStream<Request, Response>
    ) async throws(SocketError) -> MessageStream<Request, Response> {
        let stream = try await self.call(within: limit, handler)
        if let limit {
            let error = self.timeout("the stream of \(self.handler) did not end \(limit)", .sentUnknown)
            stream.end(at: limit, with: error)
        }
        return stream
    }

    private func timeout(_ what: String, _ delivery: SocketError.Delivery) -> SocketError {
        SocketError(.timeout, message: "\(self.mock): \(what)", delivery: delivery)
    }
}
