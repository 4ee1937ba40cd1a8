// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import HHSocketSystem
import NIOConcurrencyHelpers
import NIOCore

/// Outages in which the process has hardly a file descriptor left.
///
/// An outage begins before the last one is taken, because other code needs some to continue: on Linux, Dispatch ends
/// the process if it cannot open files in `/proc` (see ``SweepClock``). So accepting, which takes most of them, stops
/// while fewer than a margin are free. Others take descriptors too: the spare ones, which are kept for that, are then
/// given to the process, and nothing is accepted until they have been acquired again and the margin is free.
final class DescriptorOutage: Sendable {
    /// The descriptors of the process, by default the system's.
    struct Descriptors: Sendable {
        /// The number that are kept.
        var spares: Int
        /// The number below which an outage begins.
        var margin: Int
        /// The number that may still be opened; nil if it is not known.
        var free: @Sendable () -> Int? = { DescriptorLimit.free }

        /// - Parameter limit: The number that the process may have.
        init(limit: Int) {
            self.spares = DescriptorLimit.spares(of: limit)
            self.margin = DescriptorLimit.margin(of: limit)
        }
    }

    private struct State {
        var spares: [CInt] = []
        /// The time of the last line in the log.
        var announced: NIODeadline?
        /// Whether the current outage was logged.
        var isAnnounced = false
        var isOver = false
    }

    /// The time for which no further outage is logged.
    private static let quietTime = TimeAmount.seconds(10)
    /// The largest number of connections that are accepted in a turn of the event loop.
    private static let maximumAcceptsInTurn = 64

    private let descriptors: Descriptors
    private let books: ServerBooks
    private let state = NIOLockedValueBox(State())
    private let isUnderWayNow = ManagedAtomic(false)
    /// The number of descriptors that were free when they were last counted, less those accepted since.
    private let free = ManagedAtomic(Int.max)
    /// Called when one begins.
    private let begins: @Sendable () -> Void

    init(_ books: ServerBooks, _ descriptors: Descriptors, begins: @escaping @Sendable () -> Void) {
        self.books = books
        self.descriptors = descriptors
        self.begins = begins
        self.state.withLockedValue { self.acquire(&$0) }
        self.count()
    }

    /// Whether nothing should be accepted now.
    var isUnderWay: Bool { self.isUnderWayNow.load(ordering: .relaxed) }

    /// The number of connections that one of `sockets` listening sockets may accept in a turn of its event loop: what
    /// all of them accept before anyone checks is at most half of the margin.
    func acceptsInTurn(sockets: Int) -> Int {
        min(Self.maximumAcceptsInTurn, max(1, self.descriptors.margin / 2 / max(1, sockets)))
    }

    /// Records that connections have been accepted, and checks whether more may be. Any thread.
    func accepted(_ count: Int) {
        let free = self.free.load(ordering: .relaxed)
        // It may be wrong by what others count at the same time, and is corrected before it matters.
        if free < .max { self.free.wrappingDecrement(by: count, ordering: .relaxed) }
        if free - count < self.descriptors.margin { self.check() }
    }

    /// Checks whether descriptors are available, or whether an outage has ended. Any thread.
    func check() {
        guard self.hasEnded(), self.count() < self.descriptors.margin else { return }
        self.begin("hardly a file descriptor is left")
    }

    @discardableResult
    private func count() -> Int {
        let free = self.descriptors.free() ?? .max
        self.free.store(free, ordering: .relaxed)
        return free
    }

    /// A descriptor could not be acquired, or few are left.
    func begin(_ error: String) {
        let begins = self.state.withLockedValue { state in
            guard !state.isOver, !self.isUnderWay else { return false }
            self.isUnderWayNow.store(true, ordering: .relaxed)
            Self.give(&state.spares)
            let now = self.books.time.now()
            state.isAnnounced = state.announced.map { now - $0 >= Self.quietTime } ?? true
            if state.isAnnounced { state.announced = now }
            return true
        }
        guard begins else { return }
        self.begins()
        guard self.state.withLockedValue({ $0.isAnnounced }) else { return }
        self.books.peerLog.announce(
            .error,
            "a connection cannot be accepted",
            metadata: [
                "error": "\(error)",
                "advice": """
                raise the limit of open files (ulimit -n, LimitNOFILE=), or lower ServerLimits.maximumConnections
                """,
            ],
            by: self.books.logger
        )
    }

    /// Whether it has ended: the spare descriptors have been acquired again, and the margin is free.
    func hasEnded() -> Bool {
        guard self.isUnderWay else { return true }
        let isAnnounced = self.state.withLockedValue { state in
            guard !state.isOver, self.isUnderWay,
                // Before any is acquired, so that there is no moment without one.
                self.count() >= self.descriptors.spares + self.descriptors.margin
            else { return false }
            self.acquire(&state)
            guard state.spares.count == self.descriptors.spares else {
                Self.give(&state.spares)
                return false
            }
            self.count()
            self.isUnderWayNow.store(false, ordering: .relaxed)
            return state.isAnnounced
        }
        if isAnnounced {
            self.books.peerLog.announce(.notice, "connections are accepted again", metadata: [:], by: self.books.logger)
        }
        return !self.isUnderWay
    }

    /// Gives the descriptors back for good.
    func end() {
        self.state.withLockedValue { state in
            state.isOver = true
            Self.give(&state.spares)
        }
    }

    private func acquire(_ state: inout State) {
        while state.spares.count < self.descriptors.spares {
            // A duplicate of the first, since opening a file takes longer.
            let descriptor = state.spares.first.map { dup($0) } ?? open("/dev/null", O_RDONLY)
            guard descriptor >= 0 else { return }
            _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
            state.spares.append(descriptor)
        }
    }

    private static func give(_ descriptors: inout [CInt]) {
        for descriptor in descriptors { close(descriptor) }
        descriptors = []
    }
}
