// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import NIOCore

/// The calls of one screen or feature: made with values, answered by handlers or `async`, and cancelled when the
/// manager is released.
///
/// ```swift
/// let manager = APIManager(client: client, cache: cache)
/// let identifier = manager.dispatch(request) { result in … }
/// manager.cancelTask(withIdentifier: identifier)
/// let profile = try await manager.value(for: request)
/// ```
///
/// A manager owns its requests. When the last reference to it is released, all of them are cancelled, including
/// refreshes in the background: each handler that has not been called yet is called once, with `cancelled`. Handlers do
/// not retain the manager, unless they refer to it. An `async` call retains it until it returns.
///
/// All methods may be called from any thread and return immediately.
public final class APIManager: Sendable {
    private static let lastNumber = ManagedAtomic<UInt64>(0)

    /// The name in the cache, by which ``ResponseCache/removeAll(of:)`` drops the answers that managers of this name
    /// asked for.
    package let name: String
    /// The cache, in which answers are kept and calls are shared.
    public let cache: ResponseCache
    let transport: any APITransport
    /// The number of the manager, unique in the process.
    private let number: UInt64
    private let lastIdentifier = ManagedAtomic(0)

    /// - Parameters:
    ///   - client: The client that makes the calls: a ``/HHSocketRPC/SocketClient``.
    ///   - cache: The cache in which requests that allow it keep answers and share calls; by default a new one.
    ///   - name: The name in the cache; by default one that no other manager of the process has.
    public init(client: any APITransport, cache: ResponseCache = ResponseCache(), name: String? = nil) {
        self.number = Self.lastNumber.wrappingIncrementThenLoad(ordering: .relaxed)
        self.name = name ?? "manager \(self.number)"
        self.transport = client
        self.cache = cache
    }

    deinit {
        self.cancelAllTasks()
    }

    // MARK: Calls

    /// Begins a request and returns its identifier, for ``cancelTask(withIdentifier:)``: 1 or more, unique among those
    /// of this manager.
    ///
    /// Handlers run on the callback queue of the client's configuration, even if the answer is in the cache. On the
    /// thread that calls this function they never run before it has returned; if the queue uses another thread, a
    /// handler may run before the caller has the identifier.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - refreshHandler: Called once with the fresh answer, after `completionHandler` was called with an expired one
    ///     (``CachePolicy/returningStale(upTo:)``); not called if the refresh fails, or its answer cannot be decoded.
    ///     Nil by default.
    ///   - completionHandler: Called exactly once, with the value or with an error: those of
    ///     ``/HHSocketRPC/SocketClient``; `decodingFailed` if the answer cannot be decoded, `noData` and `noMoreData`
    ///     if a page of a list is empty, `timeout` also if only this caller has timed out.
    @discardableResult
    public func dispatch<Value>(
        _ request: APIRequest<Value>,
        refreshHandler: (@Sendable (APIResponse<Value>) -> Void)? = nil,
        completionHandler: @escaping @Sendable (Result<APIResponse<Value>, SocketError>) -> Void
    ) -> Int {
        let caller = self.nextCaller()
        let key = self.key(of: request)
        let (transport, calls) = (self.transport, self.cache.calls)
        var refreshCompletion: SharedCalls.Completion?
        if let refreshHandler {
            refreshCompletion = { result in
                transport.performCallback {
                    guard case .success(let response) = Self.response(from: result, to: request, key: key, calls: calls)
                    else { return }
                    refreshHandler(response)
                }
            }
        }
        calls.ask(caller, self.asking(request, key), refreshCompletion: refreshCompletion) { result in
            transport.performCallback {
                completionHandler(Self.response(from: result, to: request, key: key, calls: calls))
            }
        }
        return caller.number
    }

    /// Makes a request and waits for its answer. Cancelling the Swift task cancels it.
    ///
    /// - Throws: ``/HHSocket/SocketError``, with which ``dispatch(_:refreshHandler:completionHandler:)`` would
    ///   complete.
    public nonisolated(nonsending) func response<Value>(
        for request: APIRequest<Value>
    ) async throws(SocketError) -> APIResponse<Value> {
        try await self.ask(for: request).get()
    }

    private func ask<Value>(
        for request: APIRequest<Value>,
        isolation: isolated (any Actor)? = #isolation
    ) async -> Result<APIResponse<Value>, SocketError> {
        let caller = self.nextCaller()
        let key = self.key(of: request)
        let calls = self.cache.calls
        let result = await withTaskCancellationHandler {
            // A closure that captures the isolation runs in it. Otherwise it would begin elsewhere, and hop back.
            _ = isolation
            return await withCheckedContinuation { continuation in
                calls.ask(caller, self.asking(request, key)) { continuation.resume(returning: $0) }
                // The task may have been cancelled before there was a request to cancel.
                if Task.isCancelled { calls.cancel(caller) }
            }
        } onCancel: {
            calls.cancel(caller)
        }
        // The thread that resumed this task has held the lock before, which the thread sanitizer sees.
        if ThreadSanitizer.isRunning { _ = calls.statistics }
        return Self.response(from: result, to: request, key: key, calls: calls)
    }

    /// Makes a request and returns only the value, regardless of its source.
    public nonisolated(nonsending) func value<Value>(for request: APIRequest<Value>) async throws(SocketError) -> Value
    {
        try await self.response(for: request).value
    }

    /// Cancels one request, and its refresh in the background. Its handler is called with `cancelled`; other callers
    /// that share its call are not affected. Does nothing if it has completed.
    public func cancelTask(withIdentifier identifier: Int) {
        self.cache.calls.cancel(.init(manager: self.number, number: identifier))
    }

    /// Cancels all requests of this manager, including `async` ones.
    public func cancelAllTasks() {
        self.cache.calls.cancelAll(ofManager: self.number)
    }

    // MARK: Inside

    private func nextCaller() -> SharedCallMachine.Caller {
        .init(manager: self.number, number: self.lastIdentifier.wrappingIncrementThenLoad(ordering: .relaxed))
    }

    private func key<Value>(of request: APIRequest<Value>) -> ResponseKey? {
        request.cachePolicy == .ignoringCache ? nil : request.key
    }

    private func asking<Value>(_ request: APIRequest<Value>, _ key: ResponseKey?) -> SharedCallMachine.Asking {
        .init(
            request: request.request,
            key: key,
            transport: self.transport,
            policy: request.cachePolicy,
            validity: request.validity,
            owner: self.name,
            timeout: request.request.timeout ?? self.transport.defaultTimeout
        )
    }

    /// Returns the caller's result. An answer that cannot be decoded is not kept.
    private static func response<Value>(
        from result: Result<SharedCallMachine.Answer, SocketError>,
        to request: APIRequest<Value>,
        key: ResponseKey?,
        calls: SharedCalls
    ) -> Result<APIResponse<Value>, SocketError> {
        switch result {
        case .failure(let error):
            return .failure(error)
        case .success(let answer):
            do {
                let value = try request.decode(answer.response)
                return .success(APIResponse(value: value, source: answer.source, response: answer.response))
            } catch let error as SocketError where error.code == .noData || error.code == .noMoreData {
                return .failure(error)
            } catch {
                if let key { calls.discard(key) }
                return .failure(Self.decodingError(error, answer.response))
            }
        }
    }

    private static func decodingError(_ error: any Error, _ response: SocketResponse) -> SocketError {
        if let error = error as? SocketError { return error }
        return SocketError(
            .decodingFailed,
            message: """
                the answer of \(response.endpoint) to type \(response.type), of \(response.body.readableBytes) bytes, \
                cannot be decoded: \(error)
                """,
            underlying: error,
            endpoint: response.endpoint,
            serial: response.serial,
            delivery: .answered,
            body: response.body
        )
    }
}
