// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
public import HHSocketTransferValues
public import NIOCore

/// The store of the files that a ``TransferService`` receives and sends.
///
/// ``FolderTransferStore`` keeps them in a folder. An application can use another store, such as a database or a cloud
/// service: for each id it keeps the complete file, and beside it the received part of an unfinished one.
///
/// Every function may be called by many tasks at the same time. A ``/HHSocketTransfers/TransferError`` that a store
/// throws is sent to the client, whose transfer is over, except for `wrongHash`: that put begins once more. A
/// ``/HHSocketServer/StatusError`` is sent as the answer; 409 and 503 (``/HHSocket/Status/overloaded``) ask the client
/// to try again soon. Any other error is answered as `storeFailed`, and its text appears only in the server's log.
public protocol TransferStore: Sendable {
    /// Finds the complete file.
    ///
    /// - Returns: Nil if there is none.
    func find(_ id: TransferID) async throws -> StoredFile?

    /// Opens the complete file.
    ///
    /// - Throws: ``/HHSocketTransfers/TransferError`` with the code `notFound` if there is none.
    func open(_ id: TransferID) async throws -> any TransferReader

    /// Begins to receive a file, or continues an earlier attempt.
    ///
    /// A store has at most one unfinished file for an id, which has one writer. A new number ends the writer before it:
    /// from then on the old number is refused with the code `superseded`, at least for as long as the file is
    /// unfinished. The same number is the same writer reconnecting; its previous connection is probably lost, and
    /// content sent on it is no longer accepted. If size and hash match the unfinished file, the new writer continues
    /// where the old one stopped; otherwise at 0.
    ///
    /// - Parameters:
    ///   - put: The file to receive, and its sender.
    ///   - onEnd: To be called, at most once, if the result becomes useless before ``TransferWriter/close()``: with
    ///     `TransferError(.superseded)` for another writer, with `StatusError(.cancelledByServer)` if the same writer
    ///     reconnected. A store that cannot detect this throws it at the next ``TransferWriter/append(_:)``.
    /// - Returns: ``TransferBeginning/complete`` if the complete file has this size and hash.
    func begin(_ put: TransferPut, onEnd: @escaping @Sendable (any Error) -> Void) async throws -> TransferBeginning

    /// Removes the received part of an unfinished file, if its writer has this number.
    ///
    /// - Returns: Whether there was one.
    func discard(_ id: TransferID, writer: UInt64) async throws -> Bool
}

/// The file that a client is about to send.
public struct TransferPut: Hashable, Sendable {
    /// The name that it will have.
    public var id: TransferID
    /// Its size and hash.
    public var file: TransferFile
    /// A random number, not 0; the same in each attempt of one put.
    public var writer: UInt64
    /// The owner whose limits apply: the identity of the client, or its network if it has none.
    public var owner: String
    /// The state of the client's file, if the client has sent one.
    var source: TransferDigest?

    public init(id: TransferID, file: TransferFile, writer: UInt64, owner: String) {
        self.id = id
        self.file = file
        self.writer = writer
        self.owner = owner
    }
}

/// The result of ``TransferStore/begin(_:onEnd:)``.
public enum TransferBeginning: Sendable {
    /// The store has this content under this id, complete and durable.
    case complete
    /// The rest must be sent.
    ///
    /// - changed: Whether the store had begun to receive other content under this id, and has discarded it.
    case unfinished(any TransferWriter, changed: Bool)
}

/// A complete file, open for reading.
///
/// Its content stays the same, even if another file replaces it in the store meanwhile. It is closed when the last
/// reference is released.
public protocol TransferReader: Sendable {
    var stored: StoredFile { get }

    /// Reads a part.
    ///
    /// - Parameters:
    ///   - offset: Where it begins.
    ///   - count: The number of bytes, 1 MiB at most; all of them are in the file.
    /// - Returns: Exactly `count` bytes.
    /// - Throws: `StatusError(.cancelledByServer)` if the content has changed, so that the client begins again.
    func read(at offset: UInt64, count: Int) async throws -> ByteBuffer
}

/// An unfinished file, open for appending. One task uses it, and calls ``close()`` at the end.
public protocol TransferWriter: Sendable {
    /// The number of bytes that the store had at the beginning.
    var offset: UInt64 { get }

    /// Writes the next parts. Returns when the bytes would survive the end of this process.
    ///
    /// - Parameter parts: Together 2 MiB at most, and no more than the rest of the file's size.
    /// - Throws: ``/HHSocketTransfers/TransferError`` with the codes `superseded`, `noRoom` (nothing of the file is
    ///   kept), `readOnly`, `quota`, `storeFailed`.
    func append(_ parts: [ByteBuffer]) async throws

    /// Makes the file visible under its id, replacing an existing one, once its hash is verified and its content is
    /// durable.
    ///
    /// - Throws: ``/HHSocketTransfers/TransferError`` with the code `wrongHash`, after which nothing of it is kept;
    ///   otherwise as ``append(_:)``.
    func finish() async throws

    /// Ends the work on the file. The received part is kept for the next attempt, unless the file is complete or was
    /// discarded.
    func close() async
}

/// A store that takes content before the hash of the whole file is known.
protocol EarlyTransferStore: TransferStore {
    /// Begins to receive a file, or continues an earlier attempt, like ``TransferStore/begin(_:onEnd:)``.
    ///
    /// - Parameter put: The file, whose hash is that of ``TransferPut/early``.
    /// - Returns: Nil if the hash is required: there is a complete file of this size, or an unfinished one of this size
    ///   with another source.
    func beginEarly(
        _ put: TransferPut,
        onEnd: @escaping @Sendable (any Error) -> Void
    ) async throws -> (any EarlyTransferWriter, isChanged: Bool)?
}

protocol EarlyTransferWriter: TransferWriter {
    /// Records the hash of the whole file. ``finish()`` comes later.
    func identify(as sha256: TransferDigest) async throws
}

extension TransferPut {
    /// The put with a hash of its source instead of that of its content, which no content has; nil without a source.
    var early: Self? {
        guard let source = self.source else { return nil }
        var hash = SHA256()
        Array("HHSocket source".utf8).withUnsafeBytes { hash.update($0) }
        withUnsafeBytes(of: self.file.size.littleEndian) { hash.update($0) }
        source.bytes.withUnsafeBytes { hash.update($0) }
        var put = self
        put.file.sha256 = TransferDigest(hash)
        return put
    }
}

/// Reads content right into the items that carry it.
protocol TransferItemReader: TransferReader {
    func items(at offset: UInt64, count: Int) async throws -> [ByteBuffer]
}

/// A writer on whose store's threads the task may run that uses it.
protocol ThreadedTransferWriter: TransferWriter {
    /// The store's threads. What runs there may block.
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    var executor: any TaskExecutor { get }

    /// Does on the calling thread, which is one of ``executor``, what ``append(_:)`` does; and lets others have the
    /// thread before it returns, if they wait for one.
    func appendHere(_ parts: [ByteBuffer]) async throws
}
