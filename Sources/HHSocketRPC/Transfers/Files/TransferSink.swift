// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The place of a fetched file. Its methods may block, and are called one after the other.
protocol TransferSink: AnyObject, Sendable {
    /// Looks for what was begun before, and at a part of it, no more than a thread does in a moment.
    func prepare() throws(TransferError) -> Preparation
    /// Discards what was begun, and begins a file.
    func create(_ file: TransferFile) throws(TransferError)
    /// Appends content, in order.
    ///
    /// - Parameter contents: At least one.
    /// - Returns: The length of what has been written.
    func append(_ contents: [ByteBuffer]) throws(TransferError) -> UInt64
    /// Puts the file into its place.
    ///
    /// - Returns: False if its hash is another one.
    func finish() throws(TransferError) -> Bool
    /// Removes what was begun.
    func discard()
    /// Keeps what was begun for the next time.
    func close()
}

/// A step of looking for what was begun before.
enum Preparation: Hashable, Sendable {
    /// Another step follows.
    case goesOn
    /// All has been looked at. Nil if nothing is of use.
    case done(BegunFile?)
}

/// Bytes in memory.
final class MemorySink: TransferSink, @unchecked Sendable {
    // Proof of Sendable: the variables are touched by the methods alone, which are called one after the other by
    // ``FileWork``, and ``content`` is read after the last of them.
    private(set) var content = ByteBuffer()
    private var hash = SHA256()
    private var file: TransferFile?

    func prepare() throws(TransferError) -> Preparation { .done(nil) }

    func create(_ file: TransferFile) throws(TransferError) {
        self.content = ByteBuffer()
        self.hash = SHA256()
        self.file = file
    }

    func append(_ contents: [ByteBuffer]) throws(TransferError) -> UInt64 {
        for content in contents {
            content.withUnsafeReadableBytes { self.hash.update($0) }
            self.content.writeImmutableBuffer(content)
        }
        return UInt64(self.content.readableBytes)
    }

    func finish() throws(TransferError) -> Bool { self.file?.sha256 == TransferDigest(self.hash) }
    func discard() { self.content = ByteBuffer() }
    func close() {}
}
