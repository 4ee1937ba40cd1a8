// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The answers to errors that are no ``StatusError``.
struct ErrorMapping: Sendable {
    var maps: [@Sendable (any Error) -> StatusError?] = []

    /// Returns the error to answer with in place of `error`: itself if it has no mapping.
    func answer(to error: any Error) -> any Error {
        // An error of a cancelled handler is not a failure, and its answer is not awaited.
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
