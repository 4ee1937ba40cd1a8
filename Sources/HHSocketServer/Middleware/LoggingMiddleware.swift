// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
public import Logging
import NIOCore

/// Logs each request once it is answered: its type, serial, status and duration, never its content.
///
/// Requests that are refused before a handler begins are logged, too. Clients can cause any number of them, so these
/// lines count towards the ten a second that clients may cause.
public struct LoggingMiddleware: ServerMiddleware, RefusalObserver {
    private let level: Logger.Level

    /// - Parameter level: `debug` by default.
    public init(level: Logger.Level = .debug) {
        self.level = level
    }

    public func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        try await self.timing(request, context, next: next) { status, time in
            context.logger.log(
                level: self.level,
                "answered",
                metadata: [
                    "type": "\(request.type)", "serial": "\(request.serial)", "status": "\(status)",
                    "duration": "\(Duration(time))",
                ]
            )
        }
    }

    public func refused(_ header: RequestHeader, with status: Status, in session: ServerSession) {
        session.peerLog.write(
            self.level,
            "refused",
            metadata: ["type": "\(header.type)", "serial": "\(header.serial)", "status": "\(status)"],
            by: session.logger
        )
    }
}
