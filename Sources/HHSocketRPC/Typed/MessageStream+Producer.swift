// SPDX-License-Identifier: Apache-2.0
import HHSocket

extension MessageStream {
    /// Sends the items that a closure produces, and returns the one answer of a server that does not stream. Generated
    /// clients call this function.
    ///
    /// A server may answer before it has received everything: then `send` throws in the closure, which ends it, and the
    /// answer is returned as usual.
    ///
    /// - Parameter produce: Sends the items. The stream is finished when it returns, and cancelled if it throws another
    ///   error.
    /// - Throws: The error of `produce`; otherwise the errors of ``answer()``.
    public nonisolated(nonsending) func answer(
        to produce: nonisolated(nonsending) (MessageStream) async throws -> Void
    ) async throws -> Response {
        do {
            try await produce(self)
        } catch {
            // `send` was refused because the answer has already arrived.
            let isRefused = (error as? SocketError).map { $0.code == .cancelled && $0.delivery == .answered } ?? false
            guard isRefused, self.isAnswered else {
                self.cancel()
                throw error
            }
        }
        return try await self.answer()
    }
}
