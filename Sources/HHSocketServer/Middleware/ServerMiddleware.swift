// SPDX-License-Identifier: Apache-2.0
import HHSocket
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
/// It can hand values to the handler (``ServerContext/subscript(_:)``). A decision by the header alone is better a
/// ``ServerAdmission``: it costs no task.
public protocol ServerMiddleware: RouterLayer {
    /// Whether it sees requests of types that no handler has, too. False by default.
    ///
    /// Without it such requests are answered ``/HHSocket/Status/undefinedType`` (401) whoever sends them, and so a
    /// client finds out which types there are. A middleware that lets only some clients through should return true; the
    /// `next` of such a request throws ``StatusError`` with that status.
    var seesUnknownTypes: Bool { get }

    /// Answers the request, or has it answered.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - context: Where it comes from.
    ///   - next: The next middleware, or the handler. It may be given another request, and be called not at all, or
    ///     more than once.
    /// - Throws: As handlers do.
    func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer
}

extension ServerMiddleware {
    public var seesUnknownTypes: Bool { false }

    /// Has the request answered by `next`, and hands `note` the answer's status and how long it took.
    func timing(
        _ request: ServerRequest,
        _ context: ServerContext,
        _ next: Router.Handler,
        _ note: (Status, TimeAmount) -> Void
    ) async throws -> ByteBuffer {
        let begun = NIODeadline.now()
        do {
            let answer = try await next(request, context)
            note(.ok, .now() - begun)
            return answer
        } catch {
            note(Status(answering: error), .now() - begun)
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
