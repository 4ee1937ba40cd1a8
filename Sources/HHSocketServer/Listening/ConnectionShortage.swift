// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import NIOCore

/// Makes room for new connections when the server has reached its limit: the connection of all event loops that has
/// been silent longest is closed.
final class ConnectionShortage: Sendable {
    private let loops: [ServerLoop]
    /// Nil: none is closed.
    private let minimumSilence: TimeAmount?
    private let time: SocketTime
    /// The time within which a connection that is being closed has ended, in nanoseconds.
    private static let closingTime: UInt64 = 1_000_000_000
    /// The time of the last request to close a connection, in nanoseconds.
    private let lastClosing = ManagedAtomic<UInt64>(0)

    init(_ loops: [ServerLoop], minimumSilence: Duration?, time: SocketTime) {
        self.loops = loops
        self.time = time
        self.minimumSilence = minimumSilence.map { TimeAmount(clamping: $0) }
    }

    /// Requests that a connection be closed soon. Any thread.
    ///
    /// - Returns: False if none has been silent for long enough.
    func makeRoom() -> Bool {
        self.makeRoom(tries: self.loops.count + 1)
    }

    /// Closes connections beyond the maximum, periodically: a new one was admitted for one on which bytes had meanwhile
    /// arrived.
    func closeExcess(_ count: Int) {
        guard count > 0 else { return }
        // Others may just be closing.
        let last = self.lastClosing.load(ordering: .relaxed)
        guard self.time.now().uptimeNanoseconds >= last + Self.closingTime else { return }
        for _ in 0..<count {
            guard self.makeRoom() else { return }
        }
    }

    private func makeRoom(tries: Int) -> Bool {
        guard tries > 0, let minimum = self.minimumSilence else { return false }
        var longest: (loop: ServerLoop, since: NIODeadline)?
        for loop in self.loops {
            guard let since = loop.silence.silentSince, since < longest?.since ?? .distantFuture else { continue }
            longest = (loop, since)
        }
        let now = self.time.now()
        guard let (loop, since) = longest, now - since >= minimum else { return false }
        self.lastClosing.store(now.uptimeNanoseconds, ordering: .relaxed)
        return loop.socketLoop.submit { turn in
            guard !loop.silence.closeOldest(silentFor: minimum, in: &turn) else { return }
            // Bytes have arrived on all of them meanwhile.
            _ = self.makeRoom(tries: tries - 1)
        }
    }
}
