// SPDX-License-Identifier: Apache-2.0
import HHSocket

extension MessageStream {
    /// Sends what a closure produces, and returns the one answer of a server that does not stream. Generated clients
    /// call this function.
    ///
    /// A server may answer before it has everything: then `send` throws in the closure, which is the end of it, and the
    /// answer is returned as any other.
    ///
    /// - Parameter produce: Sends the items. The stream is finished when it returns, and cancelled if it throws another
    ///   error.
    /// - Throws: What `produce` throws; else as ``answer()``.
    public nonisolated(nonsending) func answer(
        to produce: nonisolated(nonsending) (MessageStream) async throws -> Void
    ) async throws -> Response {
        do {
            try await produce(self)
        } catch {
            // `send` was refused since the answer is there already.
            let isRefused = (error as? SocketError).map { $0.code == .cancelled && $0.delivery == .answered } ?? false
            guard isRefused, self.isAnswered else {
                self.cancel()
                throw error
            }
        }
        return try await self.answer()
    }
}
