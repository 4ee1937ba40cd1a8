// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A tiny language for tests of links: notes of two kinds, text and blobs, each a kind, a lane, a length and bytes. It
/// has beats, and a last word that the peer answers. Large blobs are sent in parts, between which other notes may be
/// sent.
struct Note: Sendable, Equatable, CustomStringConvertible {
    enum Kind: UInt8, Sendable {
        case beat = 0
        case text = 1
        case blob = 2
        /// A part of a blob that continues.
        case part = 3
        /// The last word; its text is the reason.
        case bye = 4
    }

    var kind: Kind
    /// Identifies the blob of a part.
    var lane: UInt8 = 0
    var body: ByteBuffer

    static func text(_ text: String) -> Note { Note(kind: .text, body: ByteBuffer(string: text)) }
    static func blob(_ length: Int, lane: UInt8) -> Note {
        Note(kind: .blob, lane: lane, body: ByteBuffer(repeating: lane, count: length))
    }
    static let beat = Note(kind: .beat, body: ByteBuffer())

    var text: String { String(buffer: self.body) }
    var description: String { self.kind == .blob ? "blob of \(self.body.readableBytes)" : "\(self.kind) \(self.text)" }
}

struct NoteLanguage: LinkLanguage {
    typealias Unit = Note
    typealias Incoming = Note

    static let headerLength = 6
    static let maximumLength = 4 << 20

    /// The length of the parts in which larger blobs are sent.
    var partLength = 1 << 10
    /// The time that our last word waits for the peer's.
    var patience = TimeAmount.seconds(5)
    private var input = ByteBuffer()
    /// Blobs that are arriving, by lane.
    private var lanes: [UInt8: ByteBuffer] = [:]
    private var failure: LinkError?

    mutating func append(_ bytes: consuming ByteBuffer) {
        guard self.failure == nil else { return }
        self.input.writeBuffer(&bytes)
    }

    mutating func dropInput() { (self.input, self.lanes) = (ByteBuffer(), [:]) }

    mutating func next() throws(LinkError) -> Note? {
        while let note = try self.nextPart() {
            var body = self.lanes.removeValue(forKey: note.lane) ?? ByteBuffer()
            switch note.kind {
            case .part:
                guard body.readableBytes + note.body.readableBytes <= Self.maximumLength else {
                    throw self.fail("a blob is too long")
                }
                body.writeImmutableBuffer(note.body)
                self.lanes[note.lane] = body
            case .blob:
                body.writeImmutableBuffer(note.body)
                return Note(kind: .blob, lane: note.lane, body: body)
            case .beat, .text, .bye:
                if body.readableBytes > 0 { self.lanes[note.lane] = body }
                return note
            }
        }
        return nil
    }

    private mutating func nextPart() throws(LinkError) -> Note? {
        if let failure = self.failure { throw failure }
        let start = self.input.readerIndex
        guard let kind = self.input.getInteger(at: start, as: UInt8.self),
            let lane = self.input.getInteger(at: start + 1, as: UInt8.self),
            let length = self.input.getInteger(at: start + 2, as: UInt32.self)
        else { return nil }
        guard let kind = Note.Kind(rawValue: kind) else { throw self.fail("there are no notes of kind \(kind)") }
        guard length <= Self.maximumLength else { throw self.fail("a note of \(length) bytes is too long") }
        guard self.input.readableBytes >= Self.headerLength + Int(length) else { return nil }
        self.input.moveReaderIndex(forwardBy: Self.headerLength)
        let body = self.input.readSlice(length: Int(length)) ?? ByteBuffer()
        self.input.discardReadBytes()
        return Note(kind: kind, lane: lane, body: body)
    }

    private mutating func fail(_ reason: String) -> LinkError {
        let error = LinkError(reason)
        self.failure = error
        return error
    }

    var unfinishedBytes: Int { self.input.readableBytes }

    var heldBytes: Int { self.unfinishedBytes }

    mutating func releaseRest() {}

    static func payload(of note: Note) -> ByteBuffer { note.body }

    static func detach(_ note: inout Note) { note.body = note.body.detached }

    func cost(of note: Note) -> Int { Self.headerLength + note.body.readableBytes }

    mutating func begin(_ note: consuming Note, into bytes: inout SendBytes) -> Outgoing<Note>? {
        if note.kind == .blob, note.body.readableBytes > self.partLength { return Outgoing(unit: note) }
        self.write(note, into: &bytes)
        return nil
    }

    private func write(_ note: Note, into bytes: inout SendBytes) {
        bytes.prepare()
        bytes.gathered.writeInteger(note.kind.rawValue)
        bytes.gathered.writeInteger(note.lane)
        bytes.gathered.writeInteger(UInt32(note.body.readableBytes))
        bytes.gathered.writeImmutableBuffer(note.body)
    }

    mutating func nextPiece(of outgoing: inout Outgoing<Note>, limit: Int, into bytes: inout SendBytes) -> Piece {
        let body = outgoing.unit.body
        let length = min(self.partLength, limit, body.readableBytes - outgoing.sent)
        let isLast = outgoing.sent + length == body.readableBytes
        if let part = body.getSlice(at: body.readerIndex + outgoing.sent, length: length) {
            self.write(Note(kind: isLast ? .blob : .part, lane: outgoing.unit.lane, body: part), into: &bytes)
        }
        outgoing.sent += length
        return isLast ? .end : .boundary
    }

    mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing {
        self.write(Note(kind: .bye, body: ByteBuffer(string: "\(reason)")), into: &bytes)
        return .awaitPeer(self.patience)
    }
}
