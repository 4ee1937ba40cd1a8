// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// The place of a fetched file. Its methods may block, and are called one after the other.
protocol TransferSink: AnyObject, Sendable {
    /// Searches for an unfinished file, and examines a part of it, in the time that a thread may take.
    func prepare() throws(TransferError) -> Preparation
    /// Discards the unfinished file, and begins a new one.
    func create(_ file: TransferFile) throws(TransferError)
    /// Appends content, in order.
    ///
    /// - Parameter contents: At least one.
    /// - Returns: The number of bytes written so far.
    func append(_ contents: [ByteBuffer]) throws(TransferError) -> UInt64
    /// Puts the file into its place.
    ///
    /// - Returns: False if its hash is another one.
    func finish() throws(TransferError) -> Bool
    /// Removes the unfinished file.
    func discard()
    /// Keeps the unfinished file for the next time.
    func close()
}

/// A step of the search for an unfinished file.
enum Preparation: Hashable, Sendable {
    /// Another step follows.
    case continues
    /// Everything has been examined. Nil if there is no usable file.
    case done(BegunFile?)
}

/// Bytes in memory.
final class MemorySink: TransferSink, @unchecked Sendable {
    // Proof of Sendable: the variables are accessed only by the methods, which ``FileWork`` calls one after the other,
    // and ``content`` is read after the last of them.
    private var bytes = ByteBuffer()
    private var hash = SHA256()
    private var file: TransferFile?

    /// The content that has arrived.
    var content: ByteBuffer { self.bytes }

    func prepare() throws(TransferError) -> Preparation { .done(nil) }

    func create(_ file: TransferFile) throws(TransferError) {
        self.bytes = ByteBuffer()
        self.hash = SHA256()
        self.file = file
    }

    func append(_ contents: [ByteBuffer]) throws(TransferError) -> UInt64 {
        for content in contents {
            content.withUnsafeReadableBytes { self.hash.update($0) }
            self.bytes.writeImmutableBuffer(content)
        }
        return UInt64(self.bytes.readableBytes)
    }

    func finish() throws(TransferError) -> Bool { self.file?.sha256 == TransferDigest(self.hash) }
    func discard() { self.bytes = ByteBuffer() }
    func close() {}
}
