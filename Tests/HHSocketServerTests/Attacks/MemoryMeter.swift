// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import NIOConcurrencyHelpers
import TestSupport

@testable import HHSocketServer

/// Looks every few milliseconds at the process's memory, from a thread of its own, and asks a server for the most that
/// it has held meanwhile.
final class MemoryMeter: Sendable {
    /// What a server holds and does. Sizes are in bytes.
    struct Figures: Codable, Sendable, CustomStringConvertible {
        /// The resident memory that the process has gained at most since the mark.
        var growth = 0
        /// What the server has held at most since the mark, by its account, beyond what it held then.
        var held = 0
        /// The largest number of buffered bytes that was seen since the mark.
        var highestBufferedBytes = 0
        // And now:
        /// The resident memory that the process has gained since the mark.
        var gained = 0
        var bufferedBytes = 0
        var connections = 0
        var requestsInFlight = 0

        var description: String {
            """
            at most \(self.held >> 20) MiB held by its account and \(self.growth >> 20) MiB gained; now \(self.bufferedBytes) bytes \
            held, \(self.gained >> 20) MiB gained, \(self.connections) connections, \(self.requestsInFlight) requests in flight
            """
        }
    }

    private struct State {
        var baseline: Int
        /// What the server held.
        var heldBefore: Int
        var figures = Figures()
        var isOver = false
    }

    private let server: SocketServer
    private let state: NIOLockedValueBox<State>

    init(_ server: SocketServer) {
        self.server = server
        self.state = NIOLockedValueBox(State(baseline: residentBytes(), heldBefore: server.heldBytes))
        Thread.detachNewThread { [self] in
            while !self.look().isOver { usleep(5_000) }
        }
    }

    @discardableResult
    private func look() -> State {
        // Samples would miss a peak of a few milliseconds, and the memory that it took stays for longer.
        let (resident, peak) = (residentBytes(), self.server.takePeakOfHeldBytes())
        let buffered = self.server.bufferedBytes
        return self.state.withLockedValue { state in
            state.figures.highestBufferedBytes = max(state.figures.highestBufferedBytes, buffered)
            state.figures.gained = resident - state.baseline
            state.figures.growth = max(state.figures.growth, state.figures.gained)
            state.figures.held = max(state.figures.held, peak - state.heldBefore)
            return state
        }
    }

    /// Measures from here on.
    func mark() {
        // What was freed before would be used again, as if nothing were gained.
        returnFreeMemory()
        _ = self.server.takePeakOfHeldBytes()
        self.state.withLockedValue { $0 = State(baseline: residentBytes(), heldBefore: self.server.heldBytes) }
    }

    var figures: Figures {
        var figures = self.look().figures
        figures.bufferedBytes = self.server.bufferedBytes
        figures.connections = self.server.connectionCount
        figures.requestsInFlight = self.server.requestsInFlight
        return figures
    }

    func end() {
        self.state.withLockedValue { $0.isOver = true }
    }
}
#endif
