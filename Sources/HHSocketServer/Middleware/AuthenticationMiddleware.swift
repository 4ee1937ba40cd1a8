import HHSocket
import NIOCore

/// Lets through the requests of clients whose identity is known (``ServerSession/authenticate(as:)``), and those by
/// which it becomes known. Others are answered ``HHSocket/Status/noPermission`` (405), whether or not a handler has
/// their type.
public struct AuthenticationMiddleware: ServerMiddleware {
    private let openTypes: Set<UInt32>

    /// - Parameter openTypes: Requests that anybody may make, such as that for signing in.
    public init(except openTypes: Set<UInt32> = []) {
        self.openTypes = openTypes
    }

    /// True: a client without an identity does not find out which types there are.
    public var seesUnknownTypes: Bool { true }

    public func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        guard context.session.identity != nil || self.openTypes.contains(request.type) else {
            throw StatusError(.noPermission)
        }
        return try await next(request, context)
    }
}
