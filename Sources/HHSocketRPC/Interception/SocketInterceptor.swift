import HHSocket

/// Stands around every call of a client: may change the request, look at the answer, make the call again, or answer
/// without a call.
///
/// ```swift
/// struct SessionID: SocketInterceptor {
///     func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
///         var request = request
///         request.header["sessionID"] = await Session.current.bytes
///         return try await next(request)
///     }
/// }
/// ```
///
/// An interceptor runs in a Swift task of the call, which is cancelled when the call is cancelled or out of time; the
/// call does not wait for it then. The call's timeout is that of the original request, and covers the interceptors.
public protocol SocketInterceptor: Sendable {
    typealias Next = SocketInterceptorNext

    /// Answers the request, as a rule by `next`.
    ///
    /// - Parameters:
    ///   - request: What the interceptor before passed on; the first gets what the task was made with.
    ///   - next: Passes a request on to the next interceptor, and in the end to the server. May be called again when it
    ///     has returned.
    /// - Throws: What the call fails with. What is no ``HHSocket/SocketError`` becomes one with the code
    ///   `interceptorFailed`. An error does not say that nothing was executed if what was asked of the server before
    ///   may have been.
    func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse
}

/// The rest of a call, for a ``SocketInterceptor``.
public struct SocketInterceptorNext: Sendable {
    private let body: @Sendable (SocketRequest) async throws(SocketError) -> SocketResponse

    init(_ body: @escaping @Sendable (SocketRequest) async throws(SocketError) -> SocketResponse) {
        self.body = body
    }

    /// Passes `request` on, and returns the answer. Its `timeout` and `priority` say nothing any more.
    ///
    /// - Throws: ``HHSocket/SocketError``: why the call failed behind here; `invalidArgument` if a call of `next`
    ///   before has not returned yet.
    public func callAsFunction(_ request: SocketRequest) async throws(SocketError) -> SocketResponse {
        try await self.body(request)
    }
}

extension Array where Element == any SocketInterceptor {
    /// The way from the first interceptor to `server`.
    func chain(to server: SocketInterceptorNext) -> SocketInterceptorNext {
        self.reversed().reduce(server) { next, interceptor in
            SocketInterceptorNext { request throws(SocketError) in
                do {
                    return try await interceptor.intercept(request, next: next)
                } catch let error as SocketError {
                    throw error
                } catch {
                    throw SocketError(
                        .interceptorFailed,
                        message: "\(Swift.type(of: interceptor)) failed: \(error)",
                        underlying: error
                    )
                }
            }
        }
    }
}
