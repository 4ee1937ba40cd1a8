import HHSocket

/// Puts a token into every request, and gets a new one when the server no longer takes it: once, however many calls find out
/// at the same time.
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
/// A call that is refused is made again once, with the new token.
public actor TokenInterceptor<Token: Sendable>: SocketInterceptor {
    private let refresh: @Sendable () async throws -> Token
    private let apply: @Sendable (Token, inout SocketRequest) -> Void
    private let isRefusal: @Sendable (SocketError) -> Bool

    private var token: Token?
    /// Counts the tokens, so that of many calls with an old one only the first asks for a new one.
    private var generation = 0
    private var refreshing: (task: Task<Token, any Error>, generation: Int)?

    /// - Parameters:
    ///   - token: The token to begin with; nil, the default, gets one before the first call.
    ///   - isRefusal: Whether an answer says that the token is no good; by default `noPermission` does.
    ///   - refresh: Gets a new token. Runs in a task of its own, which goes on when the calls that wait for it are cancelled.
    ///     What it throws, all calls that wait for it fail with; the next call tries again.
    ///   - apply: Puts the token into a request.
    public init(
        token: Token? = nil,
        isRefusal: @escaping @Sendable (SocketError) -> Bool = { $0.code == .noPermission },
        refresh: @escaping @Sendable () async throws -> Token,
        apply: @escaping @Sendable (Token, inout SocketRequest) -> Void
    ) {
        self.token = token
        self.isRefusal = isRefusal
        self.refresh = refresh
        self.apply = apply
    }

    public nonisolated func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
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

    private func refreshed() async throws -> (Token, generation: Int) {
        let attempt = self.refreshing ?? (Task { [refresh] in try await refresh() }, self.generation + 1)
        self.refreshing = attempt
        let result = await attempt.task.result
        // The first of those that waited.
        if self.refreshing?.task == attempt.task {
            self.refreshing = nil
            if case .success(let token) = result {
                self.token = token
                self.generation = attempt.generation
            }
        }
        return (try result.get(), attempt.generation)
    }
}
