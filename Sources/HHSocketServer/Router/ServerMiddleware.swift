import NIOCore

/// What stands around handlers: logging, figures, tracing, authentication.
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
public protocol ServerMiddleware: Sendable {
    /// Answers the request, or has it answered.
    ///
    /// - Parameter next: The next middleware, or the handler. It may be given another request, and be called not at all, or
    ///   more than once.
    /// - Throws: As handlers do.
    func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer
}

extension [any ServerMiddleware] {
    /// One handler that is all of these around `handler`, the first outermost.
    func chain(to handler: @escaping Router.Handler) -> Router.Handler {
        self.reversed().reduce(handler) { next, middleware in
            { try await middleware.handle($0, $1, next: next) }
        }
    }
}
