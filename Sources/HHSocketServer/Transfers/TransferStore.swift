// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

/// The files that a ``TransferService`` takes and gives.
///
/// ``FolderTransferStore`` keeps them in a folder. An application can have another one, such as a database's or that of
/// a service in the cloud: it keeps, for each id, the file that is whole, and beside it what has come of one that is
/// not.
///
/// Every function may be called by many tasks at the same time. What a store throws as ``/HHSocket/TransferError`` is
/// told to the client, whose transfer is over, except for `wrongHash`: that put begins once more. A ``StatusError`` is
/// the answer as it is; 409 and 503 (``/HHSocket/Status/overloaded``) ask the client to try again soon. Any other error
/// is answered as `storeFailed`; the text of that one is in the server's log alone.
public protocol TransferStore: Sendable {
    /// Finds the file that is whole.
    ///
    /// - Returns: Nil if there is none.
    func find(_ id: TransferID) async throws -> StoredFile?

    /// Opens the file that is whole.
    ///
    /// - Throws: ``/HHSocket/TransferError`` with the code `notFound` if there is none.
    func open(_ id: TransferID) async throws -> any TransferReader

    /// Begins to take a file, or goes on with what an earlier attempt has left.
    ///
    /// A store has at most one unfinished file for an id, and that has one writer. A new number ends the writer before
    /// it: from then on that one's number is refused with the code `superseded`, at least for as long as the file is
    /// unfinished. The same number is the same writer coming back; then the connection before it is probably lost, and
    /// what it sends is not taken any more. Where size and hash are those of the unfinished file, the new writer goes
    /// on where the old one stopped; otherwise at 0.
    ///
    /// - Parameters:
    ///   - put: The file to come, and who sends it.
    ///   - onEnd: To be called, at most once, if the result is of no use any more before ``TransferWriter/close()``:
    ///     with `TransferError(.superseded)` for another writer, with `StatusError(.cancelledByServer)` if the same
    ///     writer came back. A store that cannot tell throws this at the next ``TransferWriter/append(_:)``.
    /// - Returns: ``TransferBeginning/complete`` if the file that is whole has this size and hash.
    func begin(_ put: TransferPut, onEnd: @escaping @Sendable (any Error) -> Void) async throws -> TransferBeginning

    /// Removes what has come of a file that is not whole, if the writer is the one of this number.
    ///
    /// - Returns: Whether there was something.
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
    /// For whom limits count: the identity of the client, or its address where it has none.
    public var owner: String

    public init(id: TransferID, file: TransferFile, writer: UInt64, owner: String) {
        self.id = id
        self.file = file
        self.writer = writer
        self.owner = owner
    }
}

/// The result of ``TransferStore/begin(_:onEnd:)``.
public enum TransferBeginning: Sendable {
    /// The store has this content under this id, whole and durable.
    case complete
    /// The rest is to come.
    ///
    /// - changed: Whether the store had begun to take another content under this id, and has discarded it.
    case unfinished(any TransferWriter, changed: Bool)
}

/// A file that is whole, open to be read.
///
/// It is the same content from beginning to end, also where another one takes its place in the store meanwhile. It is
/// closed with the last reference to it.
public protocol TransferReader: Sendable {
    var stored: StoredFile { get }

    /// Reads a part.
    ///
    /// - Parameters:
    ///   - offset: Where it begins.
    ///   - count: The number of bytes, 1 MiB at most; all of them are in the file.
    /// - Returns: So many bytes.
    /// - Throws: `StatusError(.cancelledByServer)` if the content has changed, so that the client begins again.
    func read(at offset: UInt64, count: Int) async throws -> ByteBuffer
}

/// An unfinished file, open to be continued. One task uses it, and calls ``close()`` in the end.
public protocol TransferWriter: Sendable {
    /// The number of bytes that the store had at the beginning.
    var offset: UInt64 { get }

    /// Writes what comes next. Returns when the bytes would survive the end of this process.
    ///
    /// - Parameter parts: Together 2 MiB at most, and no more than the file's size leaves.
    /// - Throws: ``/HHSocket/TransferError`` with the codes `superseded`, `noRoom` (nothing of it is left), `readOnly`,
    ///   `quota`, `storeFailed`.
    func append(_ parts: [ByteBuffer]) async throws

    /// Makes the file visible under its id, in place of the one that may be there, once its hash was found to be right
    /// and all of it is durable.
    ///
    /// - Throws: ``/HHSocket/TransferError`` with the code `wrongHash`, and then nothing of it is left; otherwise as
    ///   ``append(_:)``.
    func finish() async throws

    /// Ends the work on it. What has come is kept for the next attempt, unless the file is whole or was discarded.
    func close() async
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
