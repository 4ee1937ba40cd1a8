// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The rules of progress for a peer, whatever it speaks: it is checked from time to time, and compared with the last
/// check.
struct PeerWatch {
    /// The result of a check.
    struct Finding {
        /// The limit that the peer has exceeded.
        var verdict: SessionWatch.Verdict?
        /// Whether the peer has sent or read something since the last check, or is waited for by nobody.
        var hasProgressed = false
        /// Whether memory that is kept for more traffic is to be freed now.
        var rests = false
    }

    /// The state of a link at a check.
    struct LinkState {
        var bytesReceived: Int
        var bytesSent: Int
        var unfinishedBytes: Int
        /// The number of bytes that the channel holds.
        var channelBytes: Int
        /// The number of sent bytes that have reached the peer, as far as the system reports.
        var bytesTaken: Int
        var isReadingHeld: Bool
    }

    private var watch: SessionWatch
    private var rest = RestWatch()
    private var bytesReceived = 0
    private var bytesSent = 0
    private var units = 0
    /// The time of the last check at which bytes had been sent.
    private var sentAt: NIODeadline
    /// The start of the measurement of the rate at which payloads arrive in pieces, and the number of bytes by then.
    private var pieces: (since: NIODeadline, bytes: Int)?

    /// - Parameter isStranger: Whether the peer must identify itself.
    init(now: NIODeadline, isStranger: Bool = false) {
        self.watch = SessionWatch(now: now, isStranger: isStranger)
        self.sentAt = now
    }

    /// The time since which no bytes have arrived.
    func silence(now: NIODeadline) -> TimeAmount { self.watch.silence(now: now) }

    /// The introduction, such as hello, was in time; or it was of no use, and another is awaited for as long.
    mutating func introductionChanged(isOver: Bool, now: NIODeadline) {
        if isOver { self.watch.firstFrameCame() } else { self.watch.awaitFirstFrame(now: now) }
    }

    mutating func standingChanged(isStranger: Bool, now: NIODeadline) {
        self.watch.standingChanged(isStranger: isStranger, now: now)
    }

    mutating func authenticationChanged(isUnderWay: Bool, now: NIODeadline) {
        self.watch.authenticationChanged(isUnderWay: isUnderWay, now: now)
    }

    /// The incomplete unit is not awaited any longer.
    mutating func partialWasGivenUp() { self.watch.frameWasGivenUp() }

    mutating func check(
        link: LinkState,
        _ state: PeerState,
        _ times: SessionWatch.Times,
        now: NIODeadline
    ) -> Finding {
        let hasReceived = link.bytesReceived != self.bytesReceived
        if hasReceived {
            self.watch.received(
                link.bytesReceived - self.bytesReceived,
                partialBytes: link.unfinishedBytes,
                frames: state.units != self.units,
                now: now
            )
        } else if link.unfinishedBytes == 0 {
            // It was whole, and has been taken now.
            self.watch.frameWasGivenUp()
        }
        if state.isIntroduced { self.watch.firstFrameCame() }
        if link.bytesSent != self.bytesSent { self.sentAt = now }
        (self.bytesReceived, self.bytesSent, self.units) = (link.bytesReceived, link.bytesSent, state.units)
        let rest = self.rest.check(bytes: link.bytesReceived + link.bytesSent - link.channelBytes)
        let observation = SessionWatch.Observation(
            partialBytes: link.unfinishedBytes,
            waitingBytes: link.channelBytes,
            bytesTaken: link.bytesTaken,
            isBusy: state.isBusy || (state.mayListen && times.idle.map { now - self.sentAt < $0 } ?? true),
            isReadingHeld: link.isReadingHeld || state.isHeldByUs || state.isHeldByPeer
        )
        // Units that wait for our own handlers do not wait for the peer.
        var finding = Finding(hasProgressed: rest.hasProgressed || state.isHeldByUs, rests: rest.rests)
        if !observation.isReadingHeld, self.piecesStall(state, times, now: now) {
            finding.verdict = .stalledReading
        } else {
            finding.verdict = self.watch.verdict(observation, times, now: now)
        }
        return finding
    }

    /// Whether payloads that arrive in pieces make no progress, by the rule for a unit.
    private mutating func piecesStall(_ state: PeerState, _ times: SessionWatch.Times, now: NIODeadline) -> Bool {
        guard let limit = times.readStall, let bytes = state.pieceBytes else {
            self.pieces = nil
            return false
        }
        guard let begun = self.pieces else {
            self.pieces = (now, bytes)
            return false
        }
        let time = now - begun.since
        guard time >= limit else { return false }
        self.pieces = (now, bytes)
        let rate = Double(bytes - begun.bytes) / (Double(time.nanoseconds) / 1e9)
        return rate < Double(max(1, times.minimumReadRate))
    }
}
