// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
public import HHSocketTransferValues

/// A file that is being put into a store, or fetched from one: a handle, similar to `URLSessionTask`.
///
/// A transfer continues when its handle is released, as long as its ``/HHSocketRPC/SocketClient`` exists; the handle
/// retains that. It ends once: with a result, or with a ``TransferError``.
public final class Transfer: Sendable {
    private let client: SocketClient
    private let state: TransferState
    private let run: any TransferControl

    init(_ run: any TransferControl, state: TransferState, client: SocketClient) {
        self.run = run
        self.state = state
        self.client = client
    }

    /// The progress of the transfer.
    public var progress: TransferProgress { self.state.progress }

    /// The progress of the transfer, now and whenever it changes, until the end. Each access makes a separate sequence,
    /// which keeps only the latest value for its reader.
    public var progressUpdates: AsyncStream<TransferProgress> { self.state.makeReader() }

    /// Waits for the result. Cancelling the Swift task that waits cancels the transfer.
    ///
    /// - Throws: ``TransferError``; with the code `stalled` where nothing has moved for
    ///   ``TransferClient/Options/timeout``, and `cancelled` after ``cancel(discarding:)`` and when the client is
    ///   released.
    public var value: TransferResult {
        get async throws(TransferError) {
            let outcome = await withTaskCancellationHandler {
                await self.state.wait()
            } onCancel: {
                self.cancel()
            }
            return try outcome.get()
        }
    }

    /// The result; nil before the end.
    public var result: Result<TransferResult, TransferError>? { self.state.outcome }

    /// Cancels the transfer. Returns at once. No effect after the end.
    ///
    /// - Parameter discarding: Whether the transferred bytes are removed: by the server, as soon as it can be reached
    ///   within the client's timeout, or from the local folder. By default they stay for the next time.
    public func cancel(discarding: Bool = false) { self.run.cancel(discarding: discarding) }
}

/// The result of a transfer.
public struct TransferResult: Hashable, Sendable {
    /// The name of the file in the store.
    public let id: TransferID
    /// The file's size and hash.
    public let file: TransferFile
    /// The number of bytes of content that were sent or received: less than the file's size if some had been
    /// transferred before, and more if some were transferred twice.
    public let bytesMoved: UInt64
}
