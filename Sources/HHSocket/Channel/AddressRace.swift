// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The race between the addresses of one host name, as in RFC 8305 (Happy Eyeballs): attempts begin one after the
/// other, each as soon as the previous one has failed or has had its head start, and the first connection wins.
struct AddressRace {
    /// The next thing to do.
    enum Step: Equatable {
        /// Connect to this address, and call again at ``AddressRace/nextStart``.
        case connect(String)
        /// Wait for attempts that are in progress.
        case wait
        /// Every address has failed.
        case end
    }

    /// The head start of each attempt: the connection attempt delay that RFC 8305 recommends.
    static let delay = TimeAmount.milliseconds(250)

    private var waiting: ArraySlice<String>
    private var inProgress = 0
    /// The time at which ``timerFired(now:)`` must be called; nil if no address waits.
    private(set) var nextStart: NIODeadline?

    init(_ addresses: [String]) {
        self.waiting = addresses[...]
    }

    /// Begins the race. Must be called once.
    mutating func begin(now: NIODeadline) -> Step { self.next(now: now) }

    mutating func timerFired(now: NIODeadline) -> Step {
        // Timers of attempts that failed early are stale.
        guard let nextStart = self.nextStart, now >= nextStart else { return .wait }
        return self.next(now: now)
    }

    /// An attempt has failed.
    mutating func failed(now: NIODeadline) -> Step {
        self.inProgress -= 1
        return self.next(now: now)
    }

    private mutating func next(now: NIODeadline) -> Step {
        guard let address = self.waiting.popFirst() else { return self.inProgress > 0 ? .wait : .end }
        self.inProgress += 1
        self.nextStart = self.waiting.isEmpty ? nil : now + Self.delay
        return .connect(address)
    }
}
