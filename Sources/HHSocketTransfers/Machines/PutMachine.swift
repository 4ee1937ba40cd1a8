// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// Sends a file to a store: decides when to open a stream, what to read and to send, and how it ends. Takes events and
/// the time, and returns actions; it has no clock, randomness or I/O.
///
/// It knows the size and the hash of the source, which are announced. While a large source is hashed, content is sent
/// already, unless the server requires the hash first; the hash follows. It does not check that the sent bytes have
/// that hash: the source is checked after each read (``failed(_:)`` if it has changed), and the server compares the
/// hash at the end.
struct PutMachine<Generator: RandomNumberGenerator & Sendable>: TransferMachine {
    struct Settings: Sendable {
        var attempts = TransferAttempts<Generator>.Settings()
        /// The greatest length of a piece, in bytes: 1 to ``TransferPart/maximumLength``.
        var pieceLength: UInt64 = 512 << 10
        /// The largest number of bytes that is sent beyond the server's last report.
        var window: UInt64 = 4 << 20
    }

    /// A piece of the source, which is read and then sent.
    struct Piece: Hashable, Sendable {
        /// Counts up.
        var number: UInt64
        var offset: UInt64
        var length: UInt64

        var end: UInt64 { self.offset + self.length }
    }

    /// A report of the server.
    struct Report: Sendable {
        var offset: UInt64
        var changed = false
        var complete = false
        var busy = false
        var needsHash = false
        var failure: TransferError?
    }

    enum Action: Sendable {
        /// Open the source and hash it; report ``found(size:now:)`` if that takes time, and then ``prepared(_:now:)``.
        case prepare
        /// Open a stream, and send the beginning, with the hash if it is known; report ``opened(now:)``.
        case open
        /// Send the hash.
        case announce(TransferDigest)
        /// Read a piece; report ``wasRead(_:now:)``.
        case read(Piece)
        /// Send the piece that was read last; report ``hasRoom(now:)`` when the next may be sent.
        case send(Piece)
        /// Send no more items.
        case finish
        /// Abandon the stream, if there is one. Its events are no longer reported.
        case abandon
        /// Replace the connection; report ``connectionChanged(now:)``.
        case replaceConnection
        /// The connection counts as having been ready.
        case prove
        /// Hash the source again; report ``rehashed(_:now:)``.
        case rehash
        /// Report the progress.
        case report(TransferProgress)
        /// It has ended. The last action.
        case end(Result<TransferFile, TransferError>)
    }

    /// A stream that is open, or being opened.
    private struct Sending: Sendable {
        /// Whether the beginning had the hash.
        let beganWithHash: Bool
        /// Whether the server has been sent the hash.
        var isAnnounced: Bool
        /// The offset that the server has reported in this attempt; nil before.
        var reported: UInt64?
        /// The offset at which the attempt began.
        var first: UInt64 = 0
        /// The offset of the next piece to read.
        var next: UInt64 = 0
        /// The offset of the next piece to send.
        var sent: UInt64 = 0
        var reading: Piece?
        var ready: Piece?
        var hasRoom = true
        var isFinished = false
        /// Answers to wrong offsets, since the server's offset last grew.
        var mismatches = 0
        /// The number of pieces in flight when the server's offset was found to be different: each is answered like the
        /// first.
        var answersToCome: UInt64 = 0

        init(hasHash: Bool) {
            (self.beganWithHash, self.isAnnounced) = (hasHash, hasHash)
        }
    }

    private enum Phase: Sendable {
        case idle
        /// The source is hashed, before anything is sent.
        case preparing
        case sending(Sending)
        /// Between attempts.
        case waiting
        /// The source is hashed again, since the server has found another hash.
        case checking
        case over
    }

    /// The number of consecutive answers to wrong offsets after which an attempt is abandoned.
    static var maximumMismatches: Int { 3 }

    private let what: String
    private let settings: Settings
    private var phase = Phase.idle
    private var attempts: TransferAttempts<Generator>
    private var size: UInt64?
    /// The source's size and hash, once it is hashed.
    private var file: TransferFile?
    private var lastPiece: UInt64 = 0
    /// The most that the server has ever reported.
    private var most: UInt64 = 0
    private var hadWrongHash = false
    private var progress = TransferProgress()
    /// The number of bytes of content passed to streams so far.
    private(set) var bytesMoved: UInt64 = 0

    /// - Parameter what: The transfer, for errors, such as `put of FILE`.
    init(_ what: String, settings: Settings = Settings(), generator: Generator) {
        self.what = what
        self.settings = settings
        self.attempts = TransferAttempts(settings: settings.attempts, generator: generator)
    }

    var isOver: Bool { if case .over = self.phase { true } else { false } }

    /// The time at which ``timePassed(now:)`` must be called if nothing happens before; nil for never.
    var nextDeadline: NIODeadline? { self.isOver ? nil : self.attempts.nextDeadline }

    // MARK: The source

    mutating func start() -> [Action] {
        guard case .idle = self.phase else { return [] }
        self.phase = .preparing
        return [.prepare]
    }

    /// The source has this size, and will be hashed for some time.
    mutating func found(size: UInt64, now: NIODeadline) -> [Action] {
        guard case .preparing = self.phase, self.size == nil else { return [] }
        return self.begin(size, now: now)
    }

    /// The source has this content.
    mutating func prepared(_ file: TransferFile, now: NIODeadline) -> [Action] {
        guard self.file == nil, !self.isOver else { return [] }
        self.file = file
        switch self.phase {
        case .preparing: return self.begin(file.size, now: now)
        case .sending(var sending):
            sending.isAnnounced = true
            self.phase = .sending(sending)
            return [.announce(file.sha256)] + self.proceed()
        case .idle, .waiting, .checking, .over: return []
        }
    }

    private mutating func begin(_ size: UInt64, now: NIODeadline) -> [Action] {
        self.size = size
        self.progress.total = size
        self.attempts.begin(now: now)
        return [.report(self.progress)] + self.open()
    }

    /// The source cannot be read, or has changed.
    mutating func failed(_ error: TransferError) -> [Action] { self.end(.failure(error)) }

    mutating func wasRead(_ piece: Piece, now: NIODeadline) -> [Action] {
        guard case .sending(var sending) = self.phase, sending.reading == piece else { return [] }
        sending.reading = nil
        sending.ready = piece
        self.phase = .sending(sending)
        return self.proceed()
    }

    /// The source was hashed again.
    mutating func rehashed(_ file: TransferFile, now: NIODeadline) -> [Action] {
        guard case .checking = self.phase, let announced = self.file else { return [] }
        guard file == announced else {
            return self.end(
                .failure(TransferError(.sourceChanged, "\(self.what): its content changed while it was sent"))
            )
        }
        guard !self.hadWrongHash else {
            return self.end(
                .failure(
                    TransferError(
                        .wrongHash,
                        "\(self.what): the server computed another hash of the sent content twice"
                    )
                )
            )
        }
        self.hadWrongHash = true
        self.most = 0
        self.progress.restarts += 1
        self.progress.completed = 0
        self.attempts.begin(now: now)
        return [.report(self.progress)] + self.open()
    }

    // MARK: The stream

    private mutating func open() -> [Action] {
        self.phase = .sending(Sending(hasHash: self.file != nil))
        return [.open]
    }

    /// The stream has been handed to a connection.
    mutating func opened(now: NIODeadline) { self.attempts.opened(now: now) }

    /// The server has reported.
    mutating func receivedReport(_ report: Report, now: NIODeadline) -> [Action] {
        guard case .sending(let sending) = self.phase, let size = self.size else { return [] }
        self.attempts.opened(now: now)
        if let failure = report.failure { return self.receivedFailure(failure) }
        if report.busy {
            self.attempts.isAlive(now: now)
            return []
        }
        if report.needsHash { return self.hashIsNeeded(sending, now: now) }
        guard report.offset <= size else {
            return self.broken("the server reports offset \(report.offset) of \(size) bytes")
        }
        if report.complete {
            guard let file = self.file else {
                return self.broken("the server reports that the file is complete, and does not know its SHA-256")
            }
            self.progress.completed = size
            return [.report(self.progress)] + self.end(.success(file), abandons: false)
        }
        guard let reported = sending.reported else { return self.receivedFirst(report, sending, now: now) }
        return self.receivedOffset(report.offset, after: reported, sending, now: now)
    }

    /// Content cannot be sent before the hash.
    private mutating func hashIsNeeded(_ sending: Sending, now: NIODeadline) -> [Action] {
        guard !sending.beganWithHash, sending.reported == nil else {
            return self.broken("the server requires a SHA-256 that it has been sent")
        }
        // It may have become known meanwhile.
        guard self.file == nil else {
            self.attempts.begin(now: now)
            return [.abandon] + self.open()
        }
        self.attempts.rest()
        self.phase = .preparing
        return [.abandon]
    }

    private mutating func receivedFirst(_ report: Report, _ sending: Sending, now: NIODeadline) -> [Action] {
        var sending = sending
        (sending.reported, sending.first) = (report.offset, report.offset)
        (sending.next, sending.sent) = (report.offset, report.offset)
        self.phase = .sending(sending)
        if report.changed { self.progress.changes += 1 }
        if report.offset > self.most { self.attempts.gained(now: now) }
        self.most = max(self.most, report.offset)
        self.progress.completed = report.offset
        return [.report(self.progress)] + self.proceed()
    }

    private mutating func receivedOffset(
        _ offset: UInt64,
        after reported: UInt64,
        _ sending: Sending,
        now: NIODeadline
    ) -> [Action] {
        var sending = sending
        if offset > reported, offset <= sending.sent {
            let isGain = offset > self.most
            sending.reported = offset
            sending.answersToCome = 0
            // Otherwise a server that goes back and forth would be followed for ever.
            if isGain { sending.mismatches = 0 }
            self.phase = .sending(sending)
            self.most = max(self.most, offset)
            self.progress.completed = offset
            let isProved = self.attempts.moved(offset - reported, isGain: isGain, now: now)
            return [.report(self.progress)] + (isProved ? [.prove] : []) + self.proceed()
        }
        if offset == reported, offset == sending.sent {
            // It has all that was sent: a sign of life.
            self.attempts.isAlive(now: now)
            return []
        }
        if offset == reported, sending.answersToCome > 0 {
            sending.answersToCome -= 1
            self.phase = .sending(sending)
            return []
        }
        // The sent bytes did not continue at the server's offset.
        sending.mismatches += 1
        guard sending.mismatches <= Self.maximumMismatches else {
            return self.failed(self.error("the server reports offset \(offset) repeatedly"), now: now)
        }
        let underWay = sending.sent > offset ? sending.sent - offset : 0
        sending.answersToCome = underWay / self.pieceLength(sending)
        sending.reported = offset
        (sending.next, sending.sent) = (offset, offset)
        (sending.reading, sending.ready) = (nil, nil)
        self.phase = .sending(sending)
        self.progress.completed = offset
        // A sent end cannot be taken back.
        if sending.isFinished { return self.failed(self.error("the server wants offset \(offset)"), now: now) }
        return [.report(self.progress)] + self.proceed()
    }

    private mutating func receivedFailure(_ failure: TransferError) -> [Action] {
        guard failure.code == .wrongHash, self.file != nil else { return self.end(.failure(failure)) }
        // The cause may be this machine, the network, or the server's earlier bytes.
        self.attempts.rest()
        self.phase = .checking
        return [.abandon, .rehash]
    }

    /// The next item may be sent.
    mutating func hasRoom(now: NIODeadline) -> [Action] {
        guard case .sending(var sending) = self.phase else { return [] }
        sending.hasRoom = true
        self.phase = .sending(sending)
        return self.proceed()
    }

    /// Sends and reads as much as allowed.
    private mutating func proceed() -> [Action] {
        guard case .sending(var sending) = self.phase, let size = self.size, let reported = sending.reported else {
            return []
        }
        var actions: [Action] = []
        if sending.hasRoom, let piece = sending.ready {
            sending.ready = nil
            sending.hasRoom = false
            sending.sent = piece.end
            self.bytesMoved += piece.length
            actions.append(.send(piece))
        }
        if sending.reading == nil, sending.ready == nil,
            let piece = self.nextPiece(of: sending, size: size, reported: reported)
        {
            self.lastPiece = piece.number
            sending.next = piece.end
            sending.reading = piece
            actions.append(.read(piece))
        }
        if sending.sent == size, sending.isAnnounced, !sending.isFinished {
            sending.isFinished = true
            actions.append(.finish)
        }
        self.phase = .sending(sending)
        return actions
    }

    private func nextPiece(of sending: Sending, size: UInt64, reported: UInt64) -> Piece? {
        let length = min(self.pieceLength(sending), size - sending.next)
        guard length > 0, sending.next - reported + length <= max(self.settings.window, self.settings.pieceLength)
        else { return nil }
        return Piece(number: self.lastPiece + 1, offset: sending.next, length: length)
    }

    /// The length of the next piece, before the end of the file: determined by the bytes that the server has received
    /// in this attempt.
    private func pieceLength(_ sending: Sending) -> UInt64 {
        let got = sending.reported.map { $0 > sending.first ? $0 - sending.first : 0 } ?? 0
        return TransferPart.length(after: got, longest: self.settings.pieceLength)
    }

    /// The peer's TCP has acknowledged bytes of the stream. Before the server's first report they are those of the
    /// opening, which each attempt sends: a peer that takes in such bytes, and passes on none, makes no progress.
    mutating func acknowledged(_ bytes: UInt64, now: NIODeadline) -> [Action] {
        guard case .sending(let sending) = self.phase, sending.reported != nil else { return [] }
        return self.attempts.moved(bytes, isGain: false, now: now) ? [.prove] : []
    }

    /// The stream has ended.
    ///
    /// - Parameter error: Nil for status 200.
    mutating func streamEnded(_ error: SocketError?, now: NIODeadline) -> [Action] {
        guard case .sending = self.phase else { return [] }
        let error = error ?? self.error("the server ended the stream and did not say that the file is whole")
        switch TransferVerdict(error, of: self.what) {
        case .end(let final): return self.end(.failure(final))
        case .tryAgain: return self.failed(error, now: now)
        }
    }

    private mutating func failed(_ error: SocketError, now: NIODeadline) -> [Action] {
        self.attempts.failed(error, now: now)
        self.phase = .waiting
        return [.abandon]
    }

    private func error(_ what: String) -> SocketError {
        SocketError(.protocolViolation, message: "\(self.what): \(what)", delivery: .answered)
    }

    private mutating func broken(_ what: String) -> [Action] {
        self.end(.failure(TransferError(.invalidRequest, "\(self.what): \(what)")))
    }

    // MARK: Connections and time

    /// There is another connection, or none, or no other can be made.
    mutating func connectionChanged(now: NIODeadline) -> [Action] {
        self.attempts.connectionChanged() ? self.open() : []
    }

    /// The client's attempts to connect have stopped.
    mutating func clientGaveUp(_ error: SocketError) -> [Action] {
        self.end(.failure(TransferError(.connectionFailed, "\(self.what): \(error.message)", underlying: error)))
    }

    mutating func timePassed(now: NIODeadline) -> [Action] {
        guard !self.isOver else { return [] }
        switch self.attempts.timePassed(now: now) {
        case nil: return []
        case .attempt: return [.abandon] + self.open()
        case .stalled: return self.end(.failure(self.attempts.stalledError(self.what)))
        case .replaceConnection:
            self.phase = .waiting
            return [.abandon, .replaceConnection]
        }
    }

    // MARK: The end

    mutating func cancel() -> [Action] {
        self.end(.failure(TransferError(.cancelled, "\(self.what) was cancelled")))
    }

    private mutating func end(_ result: Result<TransferFile, TransferError>, abandons: Bool = true) -> [Action] {
        guard !self.isOver else { return [] }
        self.phase = .over
        self.attempts.rest()
        return (abandons ? [.abandon] : []) + [.end(result)]
    }
}
