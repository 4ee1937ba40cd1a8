// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import Logging
import NIOConcurrencyHelpers
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Outages in which the process has no file descriptor left.
///
/// Some descriptors are kept for them. They are released to the process when none is left, because other code needs
/// some to continue: on Linux, Dispatch ends the process if it cannot open files in `/proc` (see ``SweepClock``). Until
/// the spare descriptors have been acquired again, no connection is accepted, which would take them.
final class DescriptorOutage: Sendable {
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

    private let count: Int
    private let core: ServerCore
    private let state = NIOLockedValueBox(State())
    private let isUnderWayNow = ManagedAtomic(false)
    /// Called when one begins.
    private let begins: @Sendable () -> Void

    init(core: ServerCore, spares: Int, begins: @escaping @Sendable () -> Void) {
        self.core = core
        self.count = spares
        self.begins = begins
        self.state.withLockedValue { $0.spares = Self.take(spares) }
    }

    /// Whether nothing should be accepted now.
    var isUnderWay: Bool { self.isUnderWayNow.load(ordering: .relaxed) }

    /// Checks whether one more descriptor is available, or whether an outage has ended. Any thread.
    func look() {
        guard self.hasEnded() else { return }
        let isNone = self.state.withLockedValue { state in !state.isOver && !Self.mayTakeOne(state.spares.first) }
        if isNone { self.begin("no file descriptor is left") }
    }

    /// A descriptor could not be acquired.
    func begin(_ error: String) {
        let begins = self.state.withLockedValue { state in
            guard !state.isOver, !self.isUnderWay else { return false }
            self.isUnderWayNow.store(true, ordering: .relaxed)
            Self.give(&state.spares)
            let now = NIODeadline.now()
            state.isAnnounced = state.announced.map { now - $0 >= Self.quietTime } ?? true
            if state.isAnnounced { state.announced = now }
            return true
        }
        guard begins else { return }
        self.begins()
        guard self.state.withLockedValue({ $0.isAnnounced }) else { return }
        self.core.peerLog.announce(
            .error,
            "a connection cannot be accepted",
            [
                "error": "\(error)",
                "advice": """
                raise the limit of open files (ulimit -n, LimitNOFILE=), or lower ServerLimits.maximumConnections
                """,
            ],
            by: self.core.logger
        )
    }

    /// Whether it has ended: the spare descriptors have been acquired again, and there are more.
    func hasEnded() -> Bool {
        guard self.isUnderWay else { return true }
        let isAnnounced = self.state.withLockedValue { state in
            guard !state.isOver, self.isUnderWay else { return false }
            state.spares = Self.take(self.count)
            guard state.spares.count == self.count, Self.mayTakeOne(state.spares.first) else {
                Self.give(&state.spares)
                return false
            }
            self.isUnderWayNow.store(false, ordering: .relaxed)
            return state.isAnnounced
        }
        if isAnnounced {
            self.core.peerLog.announce(.notice, "connections are accepted again", [:], by: self.core.logger)
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

    private static func take(_ count: Int) -> [CInt] {
        var taken: [CInt] = []
        while taken.count < count {
            // A duplicate of the first, since opening a file takes longer.
            let descriptor = taken.first.map { dup($0) } ?? open("/dev/null", O_RDONLY)
            guard descriptor >= 0 else { break }
            _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
            taken.append(descriptor)
        }
        return taken
    }

    private static func give(_ descriptors: inout [CInt]) {
        for descriptor in descriptors { close(descriptor) }
        descriptors = []
    }

    private static func mayTakeOne(_ spare: CInt?) -> Bool {
        guard let spare else { return true }
        let descriptor = dup(spare)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return true
    }
}
