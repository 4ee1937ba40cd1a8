// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The streams of one connection whose hello agreed on them: their decisions, and the server's code at the end of each.
/// On the connection's event loop.
final class ConnectionStreams {
    var machine: ServerStreams
    /// The actions that have not been performed. Items wait here until the read that brought them is over.
    var pending: [StreamAction] = []
    var isPerforming = false
    /// Whether frames of the streams wait until the link accepts more.
    var wantsRoom = false
    /// Whether a push is being sent in pieces. Others wait.
    var isPushing = false
    /// Whether reading is suspended because the client does not take its answers.
    var isReadingSuspended = false
    /// The cost that was charged last.
    var charged = 0
    /// Ends streams that do not move.
    var alarm: SocketLoop.TimerID?
    /// The number of bytes of received pieces.
    private var pieceBytes = 0
    private var unfinished: (since: NIODeadline, bytes: Int)?
    private var parties: [StreamID: any StreamParty] = [:]
    /// The streams of handlers that have not returned.
    private var runs: [UInt64: StreamID] = [:]

    init(_ settings: StreamSettings) {
        self.machine = ServerStreams(settings)
    }

    // MARK: Parties

    func add(_ party: any StreamParty) {
        self.parties[party.id] = party
        self.runs[party.run] = party.id
    }

    func party(_ id: StreamID) -> (any StreamParty)? { self.parties[id] }

    /// Whether the handler with this number serves a stream, open or not.
    func takeParty(ofRun run: UInt64) -> (any StreamParty)? {
        guard !self.runs.isEmpty, let id = self.runs.removeValue(forKey: run) else { return nil }
        return self.parties[id]
    }

    func remove(_ id: StreamID) -> (any StreamParty)? {
        guard let party = self.parties.removeValue(forKey: id) else { return nil }
        self.runs[party.run] = nil
        return party
    }

    /// Whether a frame that looks like a whole request may not be one: the last piece of a payload, or a mistake on a
    /// stream whose answer waits behind its items. Other streams are requests in flight.
    var closesFastPath: Bool { self.machine.awaitsPieces || self.parties.count > self.runs.count }

    /// Ends all streams when the connection is lost.
    func lose() {
        self.machine.connectionLost()
        self.pending = []
        let parties = self.parties.values
        self.parties = [:]
        self.runs = [:]
        for party in parties { party.ended(StatusError(.cancelledByServer)) }
        self.machine.takeActions(into: &self.pending)
        self.pending = []
    }

    // MARK: What is held

    /// The memory that they hold, in bytes.
    var cost: Int { Int(clamping: self.machine.heldMemory) + self.machine.waitingBytes }

    /// Whether nothing would change if they were tended.
    var isQuiet: Bool {
        self.machine.isQuiet && self.pending.isEmpty && self.charged == 0 && !self.wantsRoom && !self.isReadingSuspended
    }

    /// Whether nothing is open and nothing waits.
    var isIdle: Bool { self.machine.openCount == 0 && self.machine.waitingBytes == 0 }

    /// The number of bytes of answers and pushes that may wait before nothing more is read, as for a link.
    private static var maximumPlainBytes: Int { 1 << 20 }

    /// The number of streams whose handlers wait for the client.
    var waitingForClient: Int {
        self.runs.values.count { self.parties[$0]?.waitsForClient ?? false }
    }

    /// Whether the client should take its answers before it sends more requests.
    var isBehind: Bool { self.machine.waitingPlainBytes >= Self.maximumPlainBytes }

    // MARK: Unfinished payloads

    func pieceCame(_ length: Int) { self.pieceBytes += length }

    /// Returns whether partially received payloads make no progress, by the rules of ``SessionWatch`` for frames.
    func isStalled(_ times: SessionWatch.Times, now: NIODeadline) -> Bool {
        guard let limit = times.readStall, self.machine.hasUnfinished, !self.isWindowUsed else {
            self.unfinished = nil
            return false
        }
        guard let begun = self.unfinished else {
            self.unfinished = (now, self.pieceBytes)
            return false
        }
        let time = now - begun.since
        guard time >= limit else { return false }
        self.unfinished = (now, self.pieceBytes)
        let rate = Double(self.pieceBytes - begun.bytes) / (Double(time.nanoseconds) / 1e9)
        return rate < Double(max(1, times.minimumReadRate))
    }

    /// Whether the client may send no items for now, since other streams' wait here.
    private var isWindowUsed: Bool {
        let window = self.machine.receiveWindow
        let room = window.granted - min(window.received, window.granted)
        return room < min(StreamFrames.minimumConnectionRoom, window.window / 2)
    }
}
