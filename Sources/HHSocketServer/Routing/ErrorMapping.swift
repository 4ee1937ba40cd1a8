// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The answers to errors that are no ``StatusError``.
struct ErrorMapping: Sendable {
    var maps: [@Sendable (any Error) -> StatusError?] = []

    /// Returns the error that stands for `error`: itself where it has no answer.
    func answer(to error: any Error) -> any Error {
        // What a handler throws because it was cancelled is no failure, and nobody waits for the answer.
        guard !(error is StatusError), !(error is CancellationError) else { return error }
        for map in self.maps {
            if let answer = map(error) { return answer }
        }
        return error
    }

    func around(_ handler: @escaping Router.Handler) -> Router.Handler {
        guard !self.maps.isEmpty else { return handler }
        return { request, context in
            do {
                return try await handler(request, context)
            } catch {
                throw self.answer(to: error)
            }
        }
    }

    func around(_ handler: @escaping Router.SynchronousHandler) -> Router.SynchronousHandler {
        guard !self.maps.isEmpty else { return handler }
        return { request, context in
            do {
                return try handler(request, context)
            } catch {
                throw self.answer(to: error)
            }
        }
    }
}
