import HHSocket

extension MessageStream {
    /// Sends what a closure produces, and returns the one answer of a server that does not stream. Generated clients
    /// call this function.
    ///
    /// - Parameter produce: Sends the items. The stream is finished when it returns, and cancelled if it throws.
    /// - Throws: What `produce` throws; else as ``answer()``.
    public nonisolated(nonsending) func answer(
        to produce: nonisolated(nonsending) (MessageStream) async throws -> Void
    ) async throws -> Response {
        do {
            try await produce(self)
        } catch {
            self.cancel()
            throw error
        }
        return try await self.answer()
    }
}
