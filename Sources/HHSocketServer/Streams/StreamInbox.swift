// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The complete items of a stream that its handler has not taken, in order.
///
/// Small items are copied together: each would otherwise keep the whole buffer of the read that brought it.
struct StreamInbox: Sendable {
    /// An item as its handler takes it.
    struct Item: Sendable {
        /// The body as received.
        var body: ByteBuffer
        var isCompressed: Bool
        var receipt: ItemReceipt
    }

    private enum Body: Sendable {
        case own(ByteBuffer)
        /// A part of the chunk with this number.
        case gathered(chunk: Int, start: Int, length: Int)
    }

    private struct Entry: Sendable {
        var body: Body
        var isCompressed: Bool
        var receipt: ItemReceipt
    }

    /// The size from which a chunk accepts no more items.
    private static var chunkSize: Int { 64 << 10 }

    private var entries: [Entry] = []
    /// The number of entries that were taken.
    private var taken = 0
    private var chunks: [ByteBuffer] = []
    /// The chunk of the item that was taken last.
    private var firstChunk = 0

    var isEmpty: Bool { self.taken == self.entries.count }

    mutating func append(_ item: StreamItem) {
        let entry = Entry(body: self.kept(item.payload), isCompressed: item.isCompressed, receipt: item.receipt)
        self.entries.append(entry)
    }

    private mutating func kept(_ body: ByteBuffer) -> Body {
        let length = body.readableBytes
        guard length > 0 else { return .own(ByteBuffer()) }
        guard 2 * length < body.storageCapacity, length < Self.chunkSize else { return .own(body.detached) }
        if self.chunks.last.map({ $0.writerIndex + length > Self.chunkSize }) ?? true {
            self.chunks.append(ByteBuffer())
        }
        let chunk = self.chunks.count - 1
        let start = self.chunks[chunk].writerIndex
        self.chunks[chunk].writeImmutableBuffer(body)
        return .gathered(chunk: chunk, start: start, length: length)
    }

    /// Takes the first item. Nothing may be appended afterwards, because the taken item shares the bytes.
    mutating func popFirst() -> Item? {
        guard self.taken < self.entries.count else { return nil }
        let entry = self.entries[self.taken]
        self.taken += 1
        let body: ByteBuffer =
            switch entry.body {
            case .own(let body): body
            case .gathered(let chunk, let start, let length):
                self.takeSlice(of: chunk, at: start, length)
            }
        if self.isEmpty {
            self = StreamInbox()
        } else {
            // Only the handler keeps it from now on.
            self.entries[self.taken - 1].body = .own(ByteBuffer())
        }
        return Item(body: body, isCompressed: entry.isCompressed, receipt: entry.receipt)
    }

    /// Takes an item of a chunk; the chunks before it have none that was not taken.
    private mutating func takeSlice(of chunk: Int, at start: Int, _ length: Int) -> ByteBuffer {
        while self.firstChunk < chunk {
            self.chunks[self.firstChunk] = ByteBuffer()
            self.firstChunk += 1
        }
        return self.chunks[chunk].getSlice(at: start, length: length) ?? ByteBuffer()
    }
}
