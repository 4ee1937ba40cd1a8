// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// An unfinished file.
struct BegunFile: Hashable, Sendable {
    var file: TransferFile
    /// The number of its bytes, from the beginning.
    var length: UInt64
}

/// Fetches a file from a store: decides when to open a stream, what to write, and how it ends. Takes events and the
/// time, and returns actions; it has no clock, randomness or I/O.
///
/// Actions on the local file must be performed one after the other. So a stream may be opened, at the offset that the
/// file will have, while earlier content is still being written.
struct GetMachine<Generator: RandomNumberGenerator & Sendable>: TransferMachine {
    struct Settings: Sendable {
        var attempts = TransferAttempts<Generator>.Settings()
        /// The largest file that is accepted, in bytes.
        var maximumSize = UInt64(Int64.max)
    }

    typealias Begun = BegunFile

    enum Action: Sendable {
        /// Search for an unfinished file, lock it and hash it; report ``prepared(_:now:)``.
        case prepare
        /// Open a stream that requests the file from here on; report ``opened(now:)``.
        case open(Begun?)
        /// Discard the unfinished file, and begin this one.
        case create(TransferFile)
        /// Write the content that has just arrived; report ``wrote(_:)``.
        case write
        /// Discard the unfinished file.
        case discard
        /// Compare the hash, and put the file into its place; report ``finished(_:now:)``.
        case finish
        /// Abandon the stream, if there is one. Its events are no longer reported.
        case abandon
        /// Replace the connection; report ``connectionChanged(now:)``.
        case replaceConnection
        /// The connection counts as having been ready.
        case prove
        /// Report the progress.
        case report(TransferProgress)
        /// The transfer has ended. The unfinished file is kept for the next time, or removed. The last action.
        case end(Result<TransferFile, TransferError>, keeps: Bool)
    }

    /// The outcome of ``Action/finish``.
    enum Finish: Sendable {
        case done
        case wrongHash
        case failed(TransferError)
    }

    private enum Phase: Sendable {
        case idle
        case preparing
        /// A stream is open, or being opened. `hasBegun`: whether the file's description has arrived.
        case receiving(hasBegun: Bool)
        /// Between attempts.
        case waiting
        /// All content has arrived.
        case finishing
        case over
    }

    /// The number of times that the store may have another file than the unfinished one.
    static var maximumChanges: Int { 16 }

    private let what: String
    private let settings: Settings
    private var phase = Phase.idle
    private var attempts: TransferAttempts<Generator>
    /// The file that is being fetched, with the content received so far.
    private var begun: Begun?
    private var hadWrongHash = false
    private var progress = TransferProgress()
    /// The number of received bytes of content.
    private(set) var bytesMoved: UInt64 = 0

    /// - Parameter what: The transfer, for errors, such as `get of ID`.
    init(_ what: String, settings: Settings = Settings(), generator: Generator) {
        self.what = what
        self.settings = settings
        self.attempts = TransferAttempts(settings: settings.attempts, generator: generator)
    }

    var isOver: Bool { if case .over = self.phase { true } else { false } }

    /// The time at which ``timePassed(now:)`` must be called if nothing happens before; nil for never.
    var nextDeadline: NIODeadline? { self.isOver ? nil : self.attempts.nextDeadline }

    // MARK: The local file

    mutating func start() -> [Action] {
        guard case .idle = self.phase else { return [] }
        self.phase = .preparing
        return [.prepare]
    }

    /// - Parameter begun: The unfinished file; nil if there is none.
    mutating func prepared(_ begun: Begun?, now: NIODeadline) -> [Action] {
        guard case .preparing = self.phase else { return [] }
        self.begun = begun
        self.progress.total = begun?.file.size ?? 0
        self.progress.completed = begun?.length ?? 0
        self.attempts.begin(now: now)
        return (begun == nil ? [] : [.report(self.progress)]) + self.open()
    }

    /// The local file cannot be read or written.
    mutating func failed(_ error: TransferError) -> [Action] {
        guard case .preparing = self.phase else { return self.end(error) }
        // A file that another process has locked is not removed.
        return self.end(error, keeps: true)
    }

    /// Notes that `length` bytes of the file have been written, from its beginning.
    mutating func wrote(_ length: UInt64) -> [Action] {
        guard !self.isOver, let begun = self.begun, length <= begun.length else { return [] }
        self.progress.completed = length
        return [.report(self.progress)]
    }

    mutating func finished(_ outcome: Finish, now: NIODeadline) -> [Action] {
        guard case .finishing = self.phase, let begun = self.begun else { return [] }
        switch outcome {
        case .done:
            self.phase = .over
            return [.end(.success(begun.file), keeps: true)]
        case .failed(let error):
            return self.end(error)
        case .wrongHash where self.hadWrongHash:
            return self.end(
                TransferError(
                    .wrongHash,
                    "\(self.what): the received content has twice had another hash than the server announced"
                )
            )
        case .wrongHash:
            self.hadWrongHash = true
            self.begun = nil
            self.progress.restarts += 1
            self.progress.completed = 0
            self.attempts.begin(now: now)
            return [.discard, .report(self.progress)] + self.open()
        }
    }

    // MARK: The stream

    private mutating func open() -> [Action] {
        self.phase = .receiving(hasBegun: false)
        return [.open(self.begun)]
    }

    /// The stream has been handed to a connection.
    mutating func opened(now: NIODeadline) { self.attempts.opened(now: now) }

    /// The server has described the file. Its content follows.
    mutating func receivedFile(_ file: TransferFile, from offset: UInt64, now: NIODeadline) -> [Action] {
        guard case .receiving(let hasBegun) = self.phase else { return [] }
        self.attempts.opened(now: now)
        guard !hasBegun else { return self.broken("the server described the file twice") }
        guard file.size <= self.settings.maximumSize else {
            let limit = "\(self.settings.maximumSize) bytes at most"
            return self.end(
                TransferError(.noRoom, "\(self.what): it has \(file.size) bytes, and there is room for \(limit)")
            )
        }
        self.phase = .receiving(hasBegun: true)
        if let begun = self.begun, begun.file == file, offset == begun.length { return self.finishIfWhole() }
        guard offset == 0 else {
            return self.broken("the server began at offset \(offset), which it was not asked for")
        }
        if let begun = self.begun {
            if begun.file != file { self.progress.changes += 1 }
            if begun.length > 0 { self.progress.restarts += 1 }
            guard self.progress.changes <= Self.maximumChanges else {
                return self.broken("the store had another file under this id \(self.progress.changes) times")
            }
        }
        self.begun = Begun(file: file, length: 0)
        self.progress.total = file.size
        self.progress.completed = 0
        return [.create(file), .report(self.progress)] + self.finishIfWhole()
    }

    /// Content has arrived.
    mutating func receivedContent(at offset: UInt64, count: Int, now: NIODeadline) -> [Action] {
        guard case .receiving(let hasBegun) = self.phase else { return [] }
        guard hasBegun, var begun = self.begun else {
            return self.broken("the server sent content before it had described the file")
        }
        guard offset == begun.length, UInt64(count) <= begun.file.size - begun.length else {
            return self.broken(
                """
                the server sent \(count) bytes at offset \(offset), where those at \(begun.length) of \
                \(begun.file.size) come next
                """
            )
        }
        guard count > 0 else { return [] }
        begun.length += UInt64(count)
        self.begun = begun
        self.bytesMoved += UInt64(count)
        return [.write] + self.finishIfWhole()
    }

    private mutating func finishIfWhole() -> [Action] {
        guard let begun = self.begun, begun.length == begun.file.size else { return [] }
        self.phase = .finishing
        self.attempts.rest()
        return [.abandon, .finish]
    }

    /// The server has reported why the file cannot be fetched.
    mutating func receivedFailure(_ failure: TransferError) -> [Action] {
        guard case .receiving = self.phase else { return [] }
        return self.end(failure)
    }

    /// The server has sent an invalid message.
    mutating func receivedNonsense() -> [Action] {
        guard case .receiving = self.phase else { return [] }
        return self.broken("the server sent a message that does not belong to transfers")
    }

    /// Bytes of the stream have arrived, in complete items or not.
    mutating func moved(_ bytes: UInt64, now: NIODeadline) -> [Action] {
        guard case .receiving = self.phase else { return [] }
        return self.attempts.moved(bytes, isGain: true, now: now) ? [.prove] : []
    }

    /// The stream has ended.
    ///
    /// - Parameter error: Nil for status 200.
    mutating func streamEnded(_ error: SocketError?, now: NIODeadline) -> [Action] {
        guard case .receiving = self.phase else { return [] }
        let error =
            error
            ?? SocketError(
                .protocolViolation,
                message: "\(self.what): the server ended the stream before all content had arrived",
                delivery: .answered
            )
        switch TransferVerdict(error, of: self.what) {
        case .end(let final): return self.end(final)
        case .tryAgain:
            self.attempts.failed(error, now: now)
            self.phase = .waiting
            return [.abandon]
        }
    }

    private mutating func broken(_ what: String) -> [Action] {
        self.end(TransferError(.invalidRequest, "\(self.what): \(what)"))
    }

    // MARK: Connections and time

    /// There is another connection, or none, or no other can be made.
    mutating func connectionChanged(now: NIODeadline) -> [Action] {
        self.attempts.connectionChanged() ? self.open() : []
    }

    /// The client's attempts to connect have stopped.
    mutating func clientGaveUp(_ error: SocketError) -> [Action] {
        // It no longer needs a connection.
        if case .finishing = self.phase { return [] }
        return self.end(
            TransferError(.connectionFailed, "\(self.what): \(error.message)", underlying: error),
            keeps: true
        )
    }

    mutating func timePassed(now: NIODeadline) -> [Action] {
        guard !self.isOver else { return [] }
        switch self.attempts.timePassed(now: now) {
        case nil: return []
        case .attempt: return [.abandon] + self.open()
        case .stalled: return self.end(self.attempts.stalledError(self.what), keeps: true)
        case .replaceConnection:
            self.phase = .waiting
            return [.abandon, .replaceConnection]
        }
    }

    // MARK: The end

    /// - Parameter discards: Whether the unfinished file is removed.
    mutating func cancel(discards: Bool = false) -> [Action] {
        self.end(TransferError(.cancelled, "\(self.what) was cancelled"), keeps: !discards)
    }

    /// - Parameter keeps: Whether the unfinished file is useful for the next attempt. It is not after a final error,
    ///   except those of the connection.
    private mutating func end(_ error: TransferError, keeps: Bool? = nil) -> [Action] {
        guard !self.isOver else { return [] }
        self.phase = .over
        self.attempts.rest()
        return [.abandon, .end(.failure(error), keeps: keeps ?? (error.code == .connectionFailed))]
    }
}
