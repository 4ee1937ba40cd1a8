// SPDX-License-Identifier: Apache-2.0
/// A gate at which tasks wait until it is opened permanently.
package final class Gate: Sendable {
    private let state = Watched((isOpen: false, arrivals: 0))

    package init() {}

    /// The number of tasks that have arrived so far.
    package var count: Int { self.state.withLockedValue { $0.arrivals } }
    package var waitingCount: Int { self.state.waiterCount }

    /// Lets all tasks pass from now on.
    package func open() { self.state.withLockedValue { $0.isOpen = true } }

    /// - Throws: `CancellationError` when the task is cancelled.
    package func wait(
        _ what: String = "the opening of the gate",
        fileID: String = #fileID,
        line: Int = #line
    ) async throws {
        self.state.withLockedValue { $0.arrivals += 1 }
        try await self.state.wait(what, fileID: fileID, line: line) { $0.isOpen }
    }
}
