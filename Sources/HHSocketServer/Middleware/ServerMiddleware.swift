// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// A layer around handlers: logging, metrics, tracing, authentication.
///
/// ```swift
/// struct Quota: ServerMiddleware {
///     func handle(
///         _ request: ServerRequest, _ context: ServerContext, next: Router.Handler
///     ) async throws -> ByteBuffer {
///         guard await self.allows(context.session.identity) else { throw StatusError(.noPermission) }
///         return try await next(request, context)
///     }
/// }
/// router.use(Quota())
/// ```
/// It can pass values to the handler (``ServerContext/subscript(_:)``). For a decision by the header alone use a
/// ``ServerAdmission``, which costs no task.
public protocol ServerMiddleware: RouterLayer {
    /// Whether it also sees requests of types without a handler. False by default.
    ///
    /// Without it such requests are answered ``/HHSocket/Status/undefinedType`` (401) for any client, which can so find
    /// out which types exist. A middleware that admits only some clients should return true; the `next` of such a
    /// request throws ``StatusError`` with that status.
    var seesUnknownTypes: Bool { get }

    /// Answers the request, or passes it on.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - context: The context of the request.
    ///   - next: The next middleware, or the handler. It may be called with another request, and any number of times.
    /// - Throws: As handlers do.
    func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer
}

extension ServerMiddleware {
    public var seesUnknownTypes: Bool { false }

    /// Passes the request to `next`, and calls `note` with the answer's status and duration.
    func timing(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler,
        note: (Status, TimeAmount) -> Void
    ) async throws -> ByteBuffer {
        let begun = context.session.now
        do {
            let answer = try await next(request, context)
            note(.ok, context.session.now - begun)
            return answer
        } catch {
            note(Status(answering: error), context.session.now - begun)
            throw error
        }
    }
}

extension [any ServerMiddleware] {
    /// One handler that is all of these around `handler`, the first outermost.
    func chain(to handler: @escaping Router.Handler) -> Router.Handler {
        self.reversed().reduce(handler) { next, middleware in
            { try await middleware.handle($0, $1, next: next) }
        }
    }
}
