// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// A client of the note language over one long link, on the real driver: the smallest client of a further language.
final class NoteClient: DriverHost, TurnHost, @unchecked Sendable {
    // Proof of Sendable: the log is locked; the rest is only accessed on the socket thread, or set before the first
    // submission.
    /// The received notes, outcomes and events, in order.
    struct Log: Sendable {
        var received: [Note] = []
        /// The outcomes of notes, by their text.
        var outcomes: [String: String] = [:]
        var lost: [SocketError] = []
        var events: [SocketEvent] = []
        /// The number of connections that were ready.
        var connected: Int { self.events.count { if case .connected = $0 { true } else { false } } }
        /// The number of times that a link was made while another one existed.
        var overlaps = 0
    }

    private(set) var driver: Driver!
    private let log = NIOLockedValueBox(Log())
    private let settings: LinkSettings<Note>
    private let configuration: SocketConfiguration
    private var connection: NoteConnection?
    /// Whether the server is being left, and gets no new notes.
    private var isGoingAway = false
    private var waiting = WaitingLine<Note>(maximumCount: 4)
    private var holds = ReadingHolds()
    /// Every link that was ever made.
    private var made: [Link<NoteLanguage>] = []

    init(
        _ endpoints: [Endpoint],
        beats: @escaping @Sendable (Duration?, NIODeadline) -> Beats? = { _, _ in nil },
        makeBeat: @escaping @Sendable () throws -> Note? = { .beat },
        configure: (inout SocketConfiguration) -> Void = { _ in }
    ) {
        var configuration = SocketConfiguration(servers: endpoints)
        configuration.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        configuration.networkMonitor = nil
        configure(&configuration)
        self.configuration = configuration
        self.settings = LinkSettings(
            maximumQueuedBytes: configuration.maximumQueuedBytes,
            writeStallTimeout: TimeAmount(configuration.writeStallTimeout),
            beats: beats,
            makeBeat: makeBeat
        )
        self.driver = Driver(configuration: configuration, maker: NoteMaker(self))
        self.driver.setHost(self)
    }

    // MARK: Any thread

    var now: Log { self.log.withLockedValue { $0 } }

    func connect() { self.driver.submit { self.driver.connect(in: &$0) } }
    func disconnect() { self.driver.submit { self.driver.disconnect(in: &$0) } }
    func switchServer() { self.driver.submit { self.driver.switchServer(to: nil, in: &$0) } }
    func invalidate() { self.driver.invalidate() }

    /// Sends notes in one turn.
    func send(_ notes: Note..., priority: FramePriority = .default) {
        self.driver.submit { turn in for note in notes { self.send(note, priority, in: &turn) } }
    }

    func setReading(isSuspended: Bool) {
        self.driver.submit { turn in
            guard isSuspended ? self.holds.hold() : self.holds.release() else { return }
            self.driver.perform(.setReading(isSuspended: isSuspended), in: &turn)
        }
    }

    fileprivate func note(_ body: (inout Log) -> Void) { self.log.withLockedValue(body) }

    // MARK: Sending

    private func send(_ note: Note, _ priority: FramePriority, in turn: inout Turn) {
        if let link = self.connection?.link, !self.isGoingAway, self.waiting.isEmpty {
            switch link.send(note, priority, in: &turn) {
            case .sent: return self.note { $0.outcomes[note.text] = "sent" }
            case .queued: return self.note { $0.outcomes[note.text] = "queued" }
            case .refused: break
            }
        }
        guard self.waiting.hasRoom(for: note.body.readableBytes) else {
            return self.note { $0.outcomes[note.text] = "refused" }
        }
        self.note { $0.outcomes[note.text] = "waits" }
        self.waiting.append(note, priority, cost: note.body.readableBytes)
    }

    private func sendWaiting(in turn: inout Turn) {
        guard let link = self.connection?.link, !self.isGoingAway else { return }
        while let note = self.waiting.popFirst(unless: { _ in false }) {
            let taken = link.send(note, in: &turn)
            self.note { $0.outcomes[note.text] = taken == .sent ? "sent" : "queued" }
        }
    }

    // MARK: The driver

    fileprivate func makeLink(_ id: ConnectionID, _ loop: SocketLoop, _ host: any LinkHost) -> NoteConnection {
        let link = Link(
            id: id,
            loop: loop,
            language: NoteLanguage(),
            settings: self.settings,
            host: host
        )
        if self.made.contains(where: { $0.phase != .ended }) { self.note { $0.overlaps += 1 } }
        self.made.append(link)
        let connection = NoteConnection(link, self)
        link.receiver = connection
        return connection
    }

    fileprivate func isReady(_ connection: NoteConnection, in turn: inout Turn) {
        self.connection = connection
        self.isGoingAway = false
        self.sendWaiting(in: &turn)
    }

    func connectionChanged(_ change: ConnectionChange, in turn: inout Turn) {
        switch change {
        case .goingAway:
            self.isGoingAway = true
        case .lost(_, let error):
            self.connection = nil
            self.note { $0.lost.append(error) }
        case .happened(let event):
            self.note { $0.events.append(event) }
        case .beingMade, .reconnectDeferred, .draining, .offline, .invalidated:
            break
        }
    }

    func turnEnds(in turn: inout Turn) {}
    func turnEnded() { self.driver.measure() }

    /// Takes the unsent notes of a link that has ended.
    fileprivate func returned(_ notes: [Note]) {
        self.note { log in
            for (text, outcome) in log.outcomes where outcome == "queued" { log.outcomes[text] = "sentUnknown" }
            for note in notes { log.outcomes[note.text] = "waits" }
        }
        for note in notes {
            self.waiting.append(note, .default, cost: note.body.readableBytes, isReturning: true)
        }
    }
}

/// Makes the links of a ``NoteClient``, which holds the driver that holds this.
private final class NoteMaker: LinkMaker {
    private weak var client: NoteClient?

    init(_ client: NoteClient) {
        self.client = client
    }

    var linksMayOverlap: Bool { false }

    func makeLink(
        _ id: ConnectionID,
        to endpoint: Endpoint,
        agreement: OpeningAgreement?,
        on loop: SocketLoop,
        for host: any LinkHost
    ) throws(SocketError) -> any MadeLink {
        guard let client = self.client else { throw SocketError(.cancelled, message: "the client has gone") }
        return client.makeLink(id, loop, host)
    }
}

/// One connection of a ``NoteClient``.
final class NoteConnection: LinkReceiver, MadeLink {
    typealias Language = NoteLanguage

    let link: Link<NoteLanguage>
    private weak var client: NoteClient?

    init(_ link: Link<NoteLanguage>, _ client: NoteClient) {
        self.link = link
        self.client = client
    }

    func shakeHands(attempt: Int, in turn: inout Turn) {}
    func isReady(in turn: inout Turn) { self.client?.isReady(self, in: &turn) }
    func ended(_ error: SocketError, in turn: inout Turn) {}

    func received(_ batch: inout Batch<NoteLanguage>, in turn: inout Turn) throws(LinkError) {
        while let note = try batch.next() {
            if note.kind != .beat { self.client?.note { $0.received.append(note) } }
            if note.kind == .bye { self.receivedBye(note, in: &turn) }
        }
    }

    /// Handles the server's last word: the answer to ours, or the first one.
    private func receivedBye(_ note: Note, in turn: inout Turn) {
        guard self.link.phase == .open else { return self.link.peerAnsweredClose(in: &turn) }
        let error = SocketError(.connectionLost, message: "the server says bye: \(note.text)")
        let verdict: EndVerdict =
            switch note.text {
            case "never": EndVerdict(.never)
            case "at once": EndVerdict(.atOnce, isServersFault: false)
            default: EndVerdict()
            }
        self.link.end(LinkEnd(.said(error), verdict), in: &turn)
    }

    func unitWillBeSent(_ note: Note, in turn: inout Turn) -> Bool {
        self.client?.note { $0.outcomes[note.text] = "sent" }
        return true
    }

    func linkEnded(returning notes: [Note], in turn: inout Turn) {
        self.client?.returned(notes)
    }
}
