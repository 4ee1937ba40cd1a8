// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
public import HHSocketRPC
public import HHSocketTransferValues
public import NIOCore
import NIOPosix

/// Puts files into the store of a server, and fetches them, over unreliable connections.
///
/// ```swift
/// let transfers = TransferClient(client)
/// let result = try await transfers.put("/tmp/photo.jpg").value
/// try await transfers.get(result.id, to: "/tmp/copy.jpg").value
/// ```
/// A transfer resumes after its connection was lost, and also if its process has ended and it is started again for the
/// same file. Files are read and written in pieces, so their size does not affect memory, and their SHA-256 is verified
/// at the end. Transfers are sent after other calls, and share the connection among themselves.
///
/// The client needs streams (``/HHSocketRPC/ClientConfiguration/streams``). It is connected if it is not.
public struct TransferClient: Sendable {
    /// The options of transfers.
    public struct Options: Sendable {
        /// The time without progress after which a transfer ends with `stalled`, including the time without a
        /// connection. Progress is a byte that the peer's TCP has acknowledged, a received byte, or an offset that the
        /// server reports. A connection without progress for a third of it is replaced. 60 s by default.
        public var timeout = Duration.seconds(60)
        /// The number of bytes that are read and sent at once; 4 KiB to 1 MiB, other values are clamped.
        package var pieceSize = 512 << 10
        /// The priority of content among what the client sends. ``/HHSocket/FramePriority/low`` by default.
        public var priority = FramePriority.low
        /// The options of the underlying calls, such as metadata that identify the sender. Their timeout, deadline,
        /// priority, compression and ``/HHSocketRPC/CallOptions/waitsForConnectivity`` have no effect.
        public var call = CallOptions()

        public init() {}

        var pieceLength: Int { min(max(self.pieceSize, 4 << 10), TransferPart.maximumLength) }
    }

    private let client: SocketClient
    private let types: TransferTypes
    private let options: Options
    private let files: any TransferFiles
    private let pool: NIOThreadPool

    /// - Parameters:
    ///   - client: The client whose connection is used.
    ///   - types: The type numbers of the server's service; those of `hhsocket/transfer.proto` by default.
    ///   - options: The settings; see ``Options``.
    public init(_ client: SocketClient, types: TransferTypes = TransferTypes(), options: Options = Options()) {
        self.init(client, types: types, options: options, files: SystemFiles(), pool: .singleton)
    }

    init(
        _ client: SocketClient,
        types: TransferTypes = TransferTypes(),
        options: Options = Options(),
        files: any TransferFiles,
        pool: NIOThreadPool = .singleton
    ) {
        self.client = client
        self.types = types
        self.options = options
        self.files = files
        self.pool = pool
    }

    /// Puts a plain file into the store. Returns at once.
    ///
    /// The file is read twice: to compute its hash, and to send it. If it has an id and more than 16 MiB, both happen
    /// at the same time, unless the server may already have the content. A file that changes meanwhile ends the
    /// transfer with `sourceChanged`, and never becomes a mixture. Another transfer of other content that is put under
    /// the same id ends this one with `superseded`.
    ///
    /// - Parameters:
    ///   - path: The path of the file.
    ///   - id: The name of the file in the store; nil, the default, for the SHA-256 of the content.
    ///   - completionHandler: Called once, on the client's callback queue, with the result.
    @discardableResult
    public func put(
        _ path: String,
        id: TransferID? = nil,
        completionHandler: (@Sendable (Result<TransferResult, TransferError>) -> Void)? = nil
    ) -> Transfer {
        let what = "put of \(path)"
        let source = FileSource(
            path,
            what: what,
            pieceLength: self.options.pieceLength,
            files: self.files,
            runsMeanwhile: { [pool] job in pool.submit { if $0 == .active { job() } } }
        )
        return self.begin(completionHandler) { PutRun(source, what: what, id: id, $0) }
    }

    /// Puts bytes into the store, like ``put(_:id:completionHandler:)-(String,_,_)`` for a file.
    @discardableResult
    public func put(
        _ content: ByteBuffer,
        id: TransferID? = nil,
        completionHandler: (@Sendable (Result<TransferResult, TransferError>) -> Void)? = nil
    ) -> Transfer {
        let what = "put of \(content.readableBytes) bytes"
        return self.begin(completionHandler) { PutRun(MemorySource(content), what: what, id: id, $0) }
    }

    /// Fetches a file. Returns at once.
    ///
    /// Received content is in a hidden file next to `path` until it is complete, and is reused when the same file is
    /// fetched to the same path again. An old file at `path` stays until it is replaced in one step; a link there is
    /// replaced itself. The folder must exist. If two transfers to one path run at a time, the second ends with
    /// `fileFailed`.
    ///
    /// - Parameters:
    ///   - id: The name of the file in the store.
    ///   - path: The path of the local file.
    ///   - completionHandler: Called once, on the client's callback queue, with the result.
    @discardableResult
    public func get(
        _ id: TransferID,
        to path: String,
        completionHandler: (@Sendable (Result<TransferResult, TransferError>) -> Void)? = nil
    ) -> Transfer {
        let sink = FileSink(path, what: "get of \(id)", pieceLength: self.options.pieceLength, files: self.files)
        return self.begin(completionHandler) { GetRun(id, to: sink, $0) }
    }

    /// Fetches a file into memory. Cancelling the Swift task cancels the transfer.
    ///
    /// - Parameters:
    ///   - id: The name of the file in the store.
    ///   - maximumSize: The size that is accepted, in bytes; a larger file fails with `noRoom`. 16 MiB by default.
    /// - Throws: ``TransferError``.
    public func data(_ id: TransferID, maximumSize: Int = 16 << 20) async throws(TransferError) -> ByteBuffer {
        let sink = MemorySink()
        let transfer = self.begin(nil) { GetRun(id, to: sink, maximumSize: UInt64(max(0, maximumSize)), $0) }
        _ = try await transfer.value
        return sink.content
    }

    func begin(
        _ completionHandler: (@Sendable (Result<TransferResult, TransferError>) -> Void)?,
        _ make: (TransferSetting) -> any TransferControl
    ) -> Transfer {
        let client = FollowedClient(self.client)
        let state = TransferState(loop: client.loop, completion: completionHandler)
        let run = make(
            TransferSetting(
                client: client,
                types: self.types,
                options: self.options,
                work: FileWork(self.pool),
                state: state
            )
        )
        self.connect()
        run.start()
        return Transfer(run, state: state, client: self.client)
    }

    /// Connects, unless that was requested before.
    private func connect() {
        switch self.client.state {
        case .idle, .closed: self.client.connect()
        default: break
        }
    }

    /// Describes a file of the store.
    ///
    /// - Throws: ``TransferError``; with the code `notFound` if there is no such file.
    public func find(_ id: TransferID) async throws(TransferError) -> StoredFile {
        var message = Hhsocket_FindRequest()
        message.id = id.description
        var options = self.options.call
        options.waitsForConnectivity = true
        options.isIdempotent = true
        let what = "find of \(id)"
        do {
            let body = ByteBuffer(bytes: try message.serializedBytes())
            self.connect()
            let response = try await self.client.data(
                for: SocketRequest(type: self.types.find, body: body, options: options)
            )
            let reply = try Hhsocket_FindReply(serializedBytes: response.body.readableBytesView)
            if reply.hasFailure { throw TransferError(reply.failure) }
            guard reply.hasFile, let file = TransferFile(reply.file) else {
                throw TransferError(.invalidRequest, "\(what): the server described no file")
            }
            return StoredFile(file: file, modified: .nanoseconds(Int64(clamping: reply.modified)))
        } catch let error as TransferError {
            throw error
        } catch let error as SocketError {
            if case .end(let error) = TransferVerdict(error, of: what) { throw error }
            throw TransferError(
                error.code == .cancelled ? .cancelled : .connectionFailed,
                "\(what): \(error.message)",
                underlying: error
            )
        } catch {
            throw TransferError(.invalidRequest, "\(what): the server's answer cannot be read: \(error)")
        }
    }
}
