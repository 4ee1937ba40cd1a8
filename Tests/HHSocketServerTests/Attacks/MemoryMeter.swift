// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import NIOConcurrencyHelpers
import TestSupport

@testable import HHSocketServer

/// Samples the process's memory every few milliseconds, on a separate thread, and asks a server for the most that it
/// has held meanwhile.
final class MemoryMeter: Sendable {
    /// The memory and work of a server. Sizes are in bytes.
    struct Figures: Codable, Sendable, CustomStringConvertible {
        /// The greatest growth of the process's resident memory since the mark.
        var growth = 0
        /// The most that the server has reported to hold since the mark, beyond the amount at the mark.
        var held = 0
        /// The largest number of buffered bytes seen since the mark.
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
        /// The bytes that the server held.
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
            while !self.check().isOver { usleep(5_000) }
        }
    }

    @discardableResult
    private func check() -> State {
        // Samples would miss a peak of a few milliseconds, whose memory stays for longer.
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

    /// Starts measuring.
    func mark() {
        // Memory that was freed before would be reused, and growth would be missed.
        returnFreeMemory()
        _ = self.server.takePeakOfHeldBytes()
        self.state.withLockedValue { $0 = State(baseline: residentBytes(), heldBefore: self.server.heldBytes) }
    }

    var figures: Figures {
        var figures = self.check().figures
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
