// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// Decides when a transfer is retried, when its connection is replaced, and when it has stalled.
///
/// Time runs from ``begin(now:)`` on. Progress is a transferred byte, and nothing else: neither a connection nor a
/// hello.
struct TransferAttempts<Generator: RandomNumberGenerator & Sendable>: Sendable {
    struct Settings: Sendable {
        /// The time without progress after which the transfer ends. After a third of it a connection without progress
        /// is replaced.
        var timeout = Duration.seconds(60)
        /// The waits between unsuccessful attempts. The connection has its own waits.
        var backoff = Backoff(cap: .seconds(15))
    }

    enum Phase: Hashable, Sendable {
        /// The transfer does not depend on a connection at present.
        case idle
        /// A stream is being opened, which may have to wait for a connection.
        case opening
        /// A stream is open.
        case open
        /// Until the next attempt.
        case waiting(until: NIODeadline)
        /// The connection is being replaced.
        case replacing
    }

    /// The step that is due.
    enum Due: Hashable, Sendable {
        /// Open a stream.
        case attempt
        /// Replace the connection.
        case replaceConnection
        /// The transfer has stalled.
        case stalled
    }

    /// The number of bytes that must have moved on a connection for it to count as having been ready.
    static var bytesOfReadiness: UInt64 { 64 << 10 }
    /// The time between two checks of the progress.
    static var tick: TimeAmount { .seconds(1) }
    /// The gap between two checks that shows that the process was suspended, so that nothing could be transferred.
    static var suspension: TimeAmount { .seconds(5) }
    /// The number of attempts in a row that may move bytes, and lead nowhere, until such bytes are no progress.
    static var maximumVainAttempts: Int { 10 }

    let settings: Settings
    private var generator: Generator
    private(set) var phase = Phase.idle
    private var lastProgress = NIODeadline.uptimeNanoseconds(0)
    /// The time at which bytes last moved in this attempt, or at which it began.
    private var lastMovement = NIODeadline.uptimeNanoseconds(0)
    private var lastCheck = NIODeadline.uptimeNanoseconds(0)
    /// The number of bytes that have moved in this attempt.
    private var moved: UInt64 = 0
    /// Whether that was enough for its connection to count as having been ready.
    private var isProved = false
    /// The number of consecutive unsuccessful attempts: the back-off's exponent.
    private var failures = 0
    /// The number of consecutive attempts after which the peer had no more than before.
    private var vainAttempts = 0
    private(set) var lastError: SocketError?

    init(settings: Settings, generator: Generator) {
        self.settings = settings
        self.generator = generator
    }

    private func moment(_ span: Duration, after time: NIODeadline) -> NIODeadline {
        time.advanced(clamping: TimeAmount(clamping: span))
    }

    private var stalls: NIODeadline { self.moment(self.settings.timeout, after: self.lastProgress) }

    /// The time at which ``timePassed(now:)`` must be called; nil while nothing is due.
    var nextDeadline: NIODeadline? {
        let deadline: NIODeadline
        switch self.phase {
        case .idle: return nil
        case .opening: deadline = self.stalls
        case .waiting(let until): deadline = min(self.stalls, until)
        case .open, .replacing: deadline = min(self.stalls, self.replaces)
        }
        return min(deadline, self.lastCheck + Self.tick)
    }

    private var replaces: NIODeadline { self.moment(self.settings.timeout / 3, after: self.lastMovement) }

    // MARK: Events

    /// The transfer depends on a connection from now on: a stream is opened.
    mutating func begin(now: NIODeadline) {
        self.lastProgress = now
        self.lastCheck = now
        self.open()
    }

    private mutating func open() {
        self.phase = .opening
        self.moved = 0
        self.isProved = false
    }

    /// The transfer depends on nothing but this machine.
    mutating func rest() { self.phase = .idle }

    /// The stream has been handed to a connection.
    mutating func opened(now: NIODeadline) {
        guard self.phase == .opening else { return }
        self.phase = .open
        self.lastMovement = now
    }

    /// Records that bytes were transferred.
    ///
    /// - Parameter isGain: Whether one side has more than ever before. Sent and acknowledged bytes may be lost with the
    ///   connection.
    /// - Returns: Whether the connection counts as having been ready from now on.
    mutating func moved(_ bytes: UInt64, isGain: Bool, now: NIODeadline) -> Bool {
        guard self.phase == .open, bytes > 0 else { return false }
        if isGain { self.vainAttempts = 0 }
        guard self.vainAttempts < Self.maximumVainAttempts else { return false }
        self.lastProgress = now
        self.lastMovement = now
        self.moved = self.moved.addingReportingOverflow(bytes).partialValue
        guard !self.isProved, self.moved >= Self.bytesOfReadiness else { return false }
        self.isProved = true
        self.failures = 0
        return true
    }

    /// Records that the peer has more than was known, which arrived on an earlier connection.
    mutating func gained(now: NIODeadline) {
        self.vainAttempts = 0
        self.isAlive(now: now)
    }

    /// Records a sign of life of the peer that counts as progress.
    mutating func isAlive(now: NIODeadline) {
        guard self.phase == .open else { return }
        self.lastProgress = now
        self.lastMovement = now
    }

    /// The attempt has ended by an error that is not final.
    mutating func failed(_ error: SocketError, now: NIODeadline) {
        self.lastError = error
        self.vainAttempts += 1
        let wait: Duration
        if !self.isProved {
            wait = self.settings.backoff.delay(afterFailures: self.failures, using: &self.generator)
            self.failures += 1
        } else if error.code.status == nil {
            // The connection's own wait starts over, and ends within the next second.
            wait = .zero
        } else {
            wait = .seconds(Double.random(in: 0...1, using: &self.generator))
        }
        self.phase = .waiting(until: self.moment(wait, after: now))
    }

    /// There is another connection, or none, or no other can be made.
    ///
    /// - Returns: Whether to open a stream.
    mutating func connectionChanged() -> Bool {
        guard self.phase == .replacing else { return false }
        self.open()
        return true
    }

    mutating func timePassed(now: NIODeadline) -> Due? {
        guard self.phase != .idle else { return nil }
        self.noteSuspension(now)
        if now >= self.stalls { return .stalled }
        switch self.phase {
        case .waiting(let until) where now >= until:
            self.open()
            return .attempt
        case .open where now >= self.replaces:
            self.phase = .replacing
            self.vainAttempts += 1
            self.lastMovement = now
            return .replaceConnection
        case .replacing where now >= self.replaces:
            self.open()
            return .attempt
        default:
            return nil
        }
    }

    /// The time for which the process was suspended counts for nothing.
    private mutating func noteSuspension(_ now: NIODeadline) {
        let gap = now - self.lastCheck
        self.lastCheck = max(now, self.lastCheck)
        guard gap > Self.suspension else { return }
        self.lastProgress = min(now, self.lastProgress + gap)
        self.lastMovement = min(now, self.lastMovement + gap)
    }

    // MARK: Ends

    func stalledError(_ what: String) -> TransferError {
        let why = self.lastError.map { "; the last failure: \($0.message)" } ?? ""
        return TransferError(
            .stalled,
            "\(what): nothing moved for \(self.settings.timeout) (timeout)\(why)",
            underlying: self.lastError
        )
    }
}
