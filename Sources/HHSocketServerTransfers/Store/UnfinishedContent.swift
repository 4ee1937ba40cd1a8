// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem
import HHSocketTransferValues
import NIOCore

/// The hash of the beginning of a file.
struct PartialHash: Sendable {
    /// The number of bytes that are read at a time.
    private static let pieceLength = 256 << 10

    private(set) var hash = SHA256()
    /// The number of bytes that are in it.
    private(set) var position: UInt64 = 0

    var digest: TransferDigest { TransferDigest(self.hash) }

    /// Adds bytes that follow.
    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        self.hash.update(bytes)
        self.position += UInt64(bytes.count)
    }

    /// Reads on in the file, up to `end`, but not more than `limit` bytes. Stops where the file is shorter.
    mutating func read(
        _ descriptor: CInt,
        upTo end: UInt64,
        limit: UInt64,
        _ fileSystem: any StoreFileSystem
    ) throws(SystemError) {
        guard self.position < end else { return }
        let end = min(end, self.position + limit)
        let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.pieceLength, alignment: 16)
        defer { memory.deallocate() }
        while self.position < end {
            let count = Int(min(UInt64(memory.count), end - self.position))
            let piece = UnsafeMutableRawBufferPointer(rebasing: memory[..<count])
            let read = try fileSystem.read(descriptor, into: piece, at: self.position)
            guard read > 0 else { return }
            self.add(UnsafeRawBufferPointer(rebasing: piece[..<read]))
        }
    }
}

/// The content of an unfinished file, open for appending.
///
/// The hash of content that existed already is computed along with new content, so that the writer need not wait for
/// it: with each part, eight times its length of the existing content.
struct UnfinishedContent: Sendable {
    let descriptor: OpenDescriptor
    /// The slot of its descriptor among those of the process.
    let slot: OpenFiles.Slot
    /// Its name in the folder of unfinished files.
    let name: String
    var file: TransferFile
    /// The number of bytes that have been written.
    private(set) var offset: UInt64
    private(set) var hash: PartialHash
    /// The offset at which the disk was last asked to write.
    private var flushed: UInt64

    init(
        _ descriptor: OpenDescriptor,
        at slot: OpenFiles.Slot,
        name: String,
        file: TransferFile,
        offset: UInt64 = 0,
        hash: PartialHash = PartialHash()
    ) {
        self.descriptor = descriptor
        self.slot = slot
        self.name = name
        self.file = file
        self.offset = offset
        self.hash = hash.position <= offset ? hash : PartialHash()
        self.flushed = offset
    }

    /// Whether all that has been written is in the hash.
    var isHashed: Bool { self.hash.position == self.offset }

    mutating func append(_ parts: [ByteBuffer], _ fileSystem: any StoreFileSystem) throws {
        self.slot.use(parts.reduce(0) { $0 + $1.readableBytes })
        for part in parts {
            guard UInt64(part.readableBytes) <= self.file.size - self.offset else {
                throw TransferError(
                    .invalidRequest,
                    "content arrived beyond the file's size of \(self.file.size) bytes"
                )
            }
            try part.withUnsafeReadableBytes { bytes in
                try fileSystem.writeAll(self.descriptor.number, bytes, at: self.offset)
                let isHashed = self.isHashed
                self.offset += UInt64(bytes.count)
                if isHashed {
                    self.hash.add(bytes)
                } else {
                    let limit = max(1 << 20, 8 * UInt64(bytes.count))
                    try self.hash.read(self.descriptor.number, upTo: self.offset, limit: limit, fileSystem)
                }
            }
        }
    }

    /// Hashes on.
    mutating func catchUp(limit: UInt64, _ fileSystem: any StoreFileSystem) throws(SystemError) {
        let start = self.hash.position
        try self.hash.read(self.descriptor.number, upTo: self.offset, limit: limit, fileSystem)
        guard self.isHashed || self.hash.position > start else {
            throw SystemError("read", EIO, of: "an unfinished file, which has become shorter")
        }
    }

    /// Returns whether the content has grown beyond a multiple of `length` since this was last asked: then the disk
    /// begins to write, so that not everything is written at the end.
    mutating func takeFlush(every length: UInt64) -> Bool {
        guard self.offset / length > self.flushed / length else { return false }
        self.flushed = self.offset
        return true
    }
}
