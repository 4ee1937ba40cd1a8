// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore

/// A writer at work on an unfinished file.
///
/// Its content is accessed only within turns of its id, so the lock is never contended.
final class LivePut: Sendable {
    private struct State {
        var content: UnfinishedContent?
        /// The reason why there is no content.
        var end: any Error = TransferError(.invalidRequest, "the file is whole or was closed")
    }

    let id: TransferID
    private let onEnd: @Sendable (any Error) -> Void
    private let state: NIOLockedValueBox<State>

    init(_ id: TransferID, _ content: UnfinishedContent, onEnd: @escaping @Sendable (any Error) -> Void) {
        self.id = id
        self.onEnd = onEnd
        self.state = NIOLockedValueBox(State(content: content))
    }

    /// Works on the content.
    ///
    /// - Throws: The reason, if the writer's work has ended.
    func withContent<Result>(_ body: (inout UnfinishedContent) throws -> Result) throws -> Result {
        try self.state.withLockedValue { state in
            guard var content = state.content.take() else { throw state.end }
            defer { state.content = content }
            return try body(&content)
        }
    }

    /// Ends the writer's work, and hands over its content. Nil if it has ended before.
    ///
    /// - Parameter error: The error that the writer throws; nil if it ended normally.
    func end(_ error: (any Error)?) -> UnfinishedContent? {
        let content = self.state.withLockedValue { state in
            if state.content != nil, let error { state.end = error }
            return state.content.take()
        }
        if content != nil, let error { self.onEnd(error) }
        return content
    }
}
