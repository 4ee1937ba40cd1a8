// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A wrapper around every call of a client, which may change the request, inspect the answer, make the call again, or
/// answer without a call.
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
/// An interceptor runs in a Swift task of the call, which is cancelled when the call is cancelled or times out; the
/// call does not wait for it then. The call's timeout is that of the original request, and covers the interceptors.
public protocol SocketInterceptor: Sendable {
    typealias Next = SocketInterceptorNext

    /// Answers the request, usually by calling `next`.
    ///
    /// - Parameters:
    ///   - request: The request from the previous interceptor; the first interceptor receives the task's own.
    ///   - next: Passes a request on to the next interceptor, and in the end to the server. May be called again once it
    ///     has returned.
    /// - Throws: The error that the call fails with. An error that is not a ``/HHSocket/SocketError`` becomes one with
    ///   the code `interceptorFailed`. The call's error is not ``/HHSocket/SocketError/notExecuted`` if an earlier
    ///   request to the server may have been executed.
    func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse
}

/// The rest of a call, for a ``SocketInterceptor``.
public struct SocketInterceptorNext: Sendable {
    private let body: @Sendable (SocketRequest) async throws(SocketError) -> SocketResponse

    init(_ body: @escaping @Sendable (SocketRequest) async throws(SocketError) -> SocketResponse) {
        self.body = body
    }

    /// Passes `request` on, and returns the answer. Its `timeout` and `priority` no longer have an effect.
    ///
    /// It returns with the answer or at the end of the call, even if the Swift task that calls it is cancelled before:
    /// a task group in which it races a timer waits for it. To give up, cancel the call.
    ///
    /// - Throws: ``/HHSocket/SocketError`` if the rest of the call failed; `invalidArgument` if an earlier call of
    ///   `next` has not returned yet.
    public func callAsFunction(_ request: SocketRequest) async throws(SocketError) -> SocketResponse {
        try await self.body(request)
    }
}

extension Array where Element == any SocketInterceptor {
    /// Returns the chain from the first interceptor to `server`.
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
