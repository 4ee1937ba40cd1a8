// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Tracing

/// An interceptor that puts a token into every request, and gets a new one when the server no longer accepts it: once,
/// however many calls are refused at the same time.
///
/// ```swift
/// configuration.interceptors = [
///     TokenInterceptor(token: saved) {
///         try await login()                       // one at a time
///     } apply: { token, request in
///         request.header["sessionID"] = token
///     }
/// ]
/// ```
///
/// A call that is refused is made again once, with the new token. `refresh` may make calls with the same client: those
/// pass this interceptor without a token, and are not made again when they are refused.
public actor TokenInterceptor<Token: Sendable>: SocketInterceptor {
    private typealias Waiter = CheckedContinuation<Result<(Token, generation: Int), any Error>, Never>

    /// One attempt to get a token.
    private struct Attempt {
        let generation: Int
        var waiters: [Int: Waiter] = [:]
        var tasks: [Task<Void, Never>] = []
    }

    private let refreshTimeout: Duration
    private let refresh: @Sendable () async throws -> Token
    private let apply: @Sendable (Token, inout SocketRequest) -> Void
    private let isRefusal: @Sendable (SocketError) -> Bool

    private var token: Token?
    /// The number of the current token, so that only the first of many calls with an old one requests a new one.
    private var generation = 0
    private var lastAttempt = 0
    private var attempt: Attempt?
    private var lastWaiter = 0

    /// - Parameters:
    ///   - token: The initial token; nil, the default, gets one before the first call.
    ///   - refreshTimeout: The time limit of `refresh`; 30 s by default. Then the calls that wait for it fail with
    ///     `timeout`, its task is cancelled, and its result is ignored.
    ///   - isRefusal: Whether an error means that the token was not accepted; by default, `noPermission` does.
    ///   - refresh: Gets a new token. Runs in a separate task, which continues when the calls that wait for it are
    ///     cancelled. If it throws, all calls that wait for it fail with that error; the next call tries again.
    ///   - apply: Puts the token into a request.
    public init(
        token: Token? = nil,
        refreshTimeout: Duration = .seconds(30),
        isRefusal: @escaping @Sendable (SocketError) -> Bool = { $0.code == .noPermission },
        refresh: @escaping @Sendable () async throws -> Token,
        apply: @escaping @Sendable (Token, inout SocketRequest) -> Void
    ) {
        self.token = token
        self.refreshTimeout = refreshTimeout
        self.isRefusal = isRefusal
        self.refresh = refresh
        self.apply = apply
    }

    deinit {
        for task in self.attempt?.tasks ?? [] { task.cancel() }
    }

    public nonisolated func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
        // A call that `refresh` itself makes would wait for its own end.
        if ServiceContext.current?.refreshingInterceptors.contains(ObjectIdentifier(self)) == true {
            return try await next(request)
        }
        let (token, generation) = try await self.current()
        do {
            return try await next(self.request(request, with: token))
        } catch let error where self.isRefusal(error) {
            let (token, _) = try await self.successor(of: generation)
            return try await next(self.request(request, with: token))
        }
    }

    private nonisolated func request(_ request: SocketRequest, with token: Token) -> SocketRequest {
        var request = request
        self.apply(token, &request)
        return request
    }

    private func current() async throws -> (Token, generation: Int) {
        if let token = self.token { return (token, self.generation) }
        return try await self.refreshed()
    }

    private func successor(of generation: Int) async throws -> (Token, generation: Int) {
        if generation == self.generation { self.token = nil }
        return try await self.current()
    }

    /// Waits for a new token, until the current task is cancelled.
    private func refreshed() async throws -> (Token, generation: Int) {
        try Task.checkCancellation()
        if self.attempt == nil { self.begin() }
        self.lastWaiter += 1
        let number = self.lastWaiter
        return try await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in self.attempt?.waiters[number] = waiter }
        } onCancel: {
            Task { await self.abandon(number) }
        }.get()
    }

    private func begin() {
        self.lastAttempt += 1
        let generation = self.lastAttempt
        var context = ServiceContext.current ?? .topLevel
        context.refreshingInterceptors.insert(ObjectIdentifier(self))
        let work = Task { [context, refresh] in
            self.ended(generation, await .of { try await ServiceContext.withValue(context) { try await refresh() } })
        }
        let limit = Task { [refreshTimeout] in
            guard (try? await Task.sleep(for: refreshTimeout)) != nil else { return }
            let error = SocketError(
                .timeout,
                message: "a new token did not come within \(refreshTimeout) (refreshTimeout of the TokenInterceptor)"
            )
            self.ended(generation, .failure(error))
        }
        self.attempt = Attempt(generation: generation, tasks: [work, limit])
    }

    private func ended(_ generation: Int, _ result: Result<Token, any Error>) {
        guard let attempt = self.attempt, attempt.generation == generation else { return }
        self.attempt = nil
        if case .success(let token) = result {
            self.token = token
            self.generation = generation
        }
        let outcome = result.map { token -> (Token, generation: Int) in (token, generation) }
        for waiter in attempt.waiters.values { waiter.resume(returning: outcome) }
        for task in attempt.tasks { task.cancel() }
    }

    private func abandon(_ number: Int) {
        self.attempt?.waiters.removeValue(forKey: number)?.resume(returning: .failure(CancellationError()))
    }
}

extension ServiceContext {
    private enum RefreshingInterceptors: ServiceContextKey {
        typealias Value = Set<ObjectIdentifier>
    }

    /// The interceptors whose `refresh` runs in the current task.
    fileprivate var refreshingInterceptors: Set<ObjectIdentifier> {
        get { self[RefreshingInterceptors.self] ?? [] }
        set { self[RefreshingInterceptors.self] = newValue }
    }
}
