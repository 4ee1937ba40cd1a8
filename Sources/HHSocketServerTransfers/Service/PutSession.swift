// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketServer
import HHSocketTransferValues
import NIOCore

/// The server's side of one put: decides which item of the client may follow, and when the client is informed how much
/// the store has. No I/O.
///
/// ```
/// waiting --begin--> opening --begun--> receiving --all has come--> whole
/// ```
/// The SHA-256 of the file is part of the beginning, or comes while content is received.
struct PutSession: Sendable {
    /// The next step of the shell after an item.
    enum Step: Sendable {
        /// Do nothing: the client sent the item before it knew where to continue.
        case ignore
        /// Ask the application and the store.
        case begin(Beginning)
        /// The file has this hash, which was not known before: ask the application, and report it to the store.
        case identify(TransferDigest)
        /// Write this part, and then call ``wrote()``.
        case take(ByteBuffer)
        case report(Report)
        case fail(TransferError)
    }

    /// The announcement of a file.
    struct Beginning: Hashable, Sendable {
        var id: TransferID
        var size: UInt64
        /// Nil if the client does not know it yet.
        var sha256: TransferDigest?
        var writer: UInt64
        /// The state of the client's file; not nil if there is no hash.
        var source: TransferDigest?
    }

    /// The content of a report to the client.
    struct Report: Hashable, Sendable {
        var offset: UInt64
        var isChanged = false
        var isComplete = false
    }

    private enum Phase: Hashable, Sendable { case waiting, opening, receiving }

    /// The number of bytes after which the client is sent a report, once no more input is available.
    static let reportInterval: UInt64 = 128 << 10
    /// The number of bytes after which the client is sent a report at the latest.
    static let longestInterval: UInt64 = 512 << 10

    private var phase = Phase.waiting
    private var size: UInt64 = 0
    /// Whether the hash of the file is known.
    private var isIdentified = false
    /// The offset at which the next part must begin.
    private var taken: UInt64 = 0
    private var reported: UInt64 = 0
    /// The offset that follows parts at the wrong place; nil if the last part was at the right place.
    private var strayEnd: UInt64?

    /// Whether all of the content has arrived, and its hash.
    var isWhole: Bool { self.phase == .receiving && self.taken == self.size && self.isIdentified }

    // MARK: The store

    /// Records that the store is ready to take the content after `offset`.
    mutating func begun(at offset: UInt64, isChanged: Bool) -> Report {
        self.phase = .receiving
        self.taken = min(offset, self.size)
        self.reported = self.taken
        return Report(offset: self.taken, isChanged: isChanged)
    }

    /// Whether a report must be sent to the client before more is taken.
    var mustReport: Bool { self.taken - self.reported >= Self.longestInterval }

    /// Records that the store has written everything that was taken. Returns the report that is due.
    mutating func wrote() -> Report? {
        guard self.taken - self.reported >= Self.reportInterval else { return nil }
        self.reported = self.taken
        return Report(offset: self.taken)
    }

    /// Records that the store has the whole file.
    func complete() -> Report { Report(offset: self.size, isComplete: true) }

    // MARK: The client

    mutating func receivedItem(_ item: ByteBuffer) -> Step {
        if let part = TransferPart(item: item) { return self.receivedPart(part) }
        guard let message: Hhsocket_PutRequest = try? item.message() else {
            return .fail(Self.invalid("an item is not a PutRequest"))
        }
        switch message.kind {
        case .begin(let begin): return self.receivedBegin(begin)
        case .content(let content):
            return self.receivedPart(TransferPart(offset: content.offset, bytes: ByteBuffer(bytes: content.bytes)))
        case .sha256(let bytes): return self.receivedHash(bytes)
        case nil: return .fail(Self.invalid("an item has neither a beginning nor content"))
        }
    }

    private mutating func receivedBegin(_ begin: Hhsocket_PutBegin) -> Step {
        guard self.phase == .waiting else { return .fail(Self.invalid("a second beginning")) }
        guard let id = TransferID(begin.id) else { return .fail(.invalidID(begin.id)) }
        let (sha256, source) = (TransferDigest(bytes: begin.file.sha256), TransferDigest(bytes: begin.source))
        guard begin.hasFile, sha256 != nil || begin.file.sha256.isEmpty && source != nil else {
            return .fail(Self.invalid("a beginning without size and SHA-256"))
        }
        guard source != nil || begin.source.isEmpty else {
            return .fail(Self.invalid("a source that has not 32 bytes"))
        }
        let size = begin.file.size
        guard size <= UInt64(Int64.max) else { return .fail(Self.invalid("a size that no file has")) }
        guard begin.writer != 0 else { return .fail(Self.invalid("a beginning without the writer's number")) }
        self.phase = .opening
        self.size = size
        self.isIdentified = sha256 != nil
        return .begin(Beginning(id: id, size: size, sha256: sha256, writer: begin.writer, source: source))
    }

    private mutating func receivedHash(_ bytes: some Sequence<UInt8>) -> Step {
        guard self.phase == .receiving, !self.isIdentified else {
            return .fail(Self.invalid("a SHA-256 that was not to be sent"))
        }
        guard let sha256 = TransferDigest(bytes: bytes) else {
            return .fail(Self.invalid("a SHA-256 that has not 32 bytes"))
        }
        self.isIdentified = true
        return .identify(sha256)
    }

    private mutating func receivedPart(_ part: TransferPart) -> Step {
        guard self.phase == .receiving else { return .fail(Self.invalid("content before the beginning")) }
        let count = UInt64(part.bytes.readableBytes)
        guard count <= UInt64(TransferPart.maximumLength) else {
            return .fail(Self.invalid("a part of more than \(TransferPart.maximumLength) bytes"))
        }
        guard part.offset <= self.size, count <= self.size - part.offset else {
            return .fail(Self.invalid("content beyond the size of \(self.size) bytes"))
        }
        guard part.offset == self.taken else {
            // Everything sent after a part at the wrong place is at the wrong place as well. One answer is enough: the
            // client would go back for each.
            let isAnswered = self.strayEnd == part.offset
            self.strayEnd = part.offset + count
            return isAnswered ? .ignore : .report(Report(offset: self.taken))
        }
        self.strayEnd = nil
        self.taken += count
        return count == 0 ? .ignore : .take(part.bytes)
    }

    /// Returns the error for a client that has ended its items before all content arrived.
    func endedEarly() -> TransferError {
        switch self.phase {
        case .waiting, .opening: Self.invalid("no beginning")
        case .receiving where self.taken == self.size: Self.invalid("the content without its SHA-256")
        case .receiving: Self.invalid("the content ended after \(self.taken) of \(self.size) bytes")
        }
    }

    private static func invalid(_ reason: String) -> TransferError {
        TransferError(.invalidRequest, "the server was sent \(reason), which breaks the rules of transfers")
    }
}

extension TransferError {
    /// - Parameter text: A stranger's, of any length.
    static func invalidID(_ text: String) -> TransferError {
        TransferError(
            .invalidID,
            """
            \(PeerLog.printable(String(text.prefix(200)))) is not an id, which has 1 to \(TransferID.maximumLength) of A-Z a-z 0-9 \
            . _ -, and neither . nor ..
            """
        )
    }
}
