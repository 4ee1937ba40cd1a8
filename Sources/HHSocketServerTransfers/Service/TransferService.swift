// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
public import HHSocketServer
import HHSocketTransferValues
import NIOCore

/// Receives and sends the files of a store: the server's side of `TransferClient`.
///
/// ```swift
/// let store = try FolderTransferStore(path: "/srv/photographs")
/// router.register(TransferService(store: store) { request, context in
///     guard let identity = context.session.identity else { throw TransferError(.denied, "sign in first") }
///     guard request.id.description.hasPrefix("\(identity).") else { throw TransferError(.denied, "not yours") }
/// })
/// ```
///
/// Files may be of any size, and a transfer resumes where it was interrupted, also after a restart of either process. A
/// client needs streams (``/HHSocketServer/ServerConfiguration/streams``).
public struct TransferService: Sendable {
    /// Decides whether a client may perform a request; returns if it may.
    ///
    /// A ``/HHSocketTransfers/TransferError`` that it throws, such as `TransferError(.denied, "why")`, is sent to the
    /// client, which does not try again. A ``/HHSocketServer/StatusError`` is sent as the answer, and 409 and 503 ask
    /// the client to try again. Any other error is treated like one that a handler throws
    /// (``/HHSocketServer/Router/mapErrors(_:)``).
    public typealias Authorization = @Sendable (TransferRequest, ServerContext) async throws -> Void

    let store: any TransferStore
    let types: TransferTypes
    let authorize: Authorization
    /// The time between two signs of life of a store that is at work. Clients wait for 20 s by default.
    var busyInterval = Duration.seconds(5)

    /// - Parameters:
    ///   - store: The store of the files.
    ///   - types: The type numbers of the four methods, which clients must use too.
    ///   - authorize: Decides on every request; for a file that is sent, on each attempt, and once more when the client
    ///     knows the file's SHA-256 only after an attempt has begun. It runs where handlers run.
    public init(
        store: any TransferStore,
        types: TransferTypes = TransferTypes(),
        authorize: @escaping Authorization
    ) {
        self.store = store
        self.types = types
        self.authorize = authorize
    }
}

extension Router {
    /// Registers the four methods of transfers.
    ///
    /// - Parameters:
    ///   - transfers: The service.
    ///   - executor: Where its tasks run; nil, the default: on ``/HHSocketServer/Router/handlerExecutor``.
    ///     None blocks there.
    ///   - limits: The limits on each method. Streams take as long as files need: the server's timeout for handlers
    ///     does not apply to them, but a timeout here does.
    public mutating func register(
        _ transfers: TransferService,
        on executor: HandlerExecutor? = nil,
        limits: RouteLimits = RouteLimits()
    ) {
        var streamLimits = limits
        streamLimits.timeout = limits.timeout ?? .seconds(365 * 86_400)
        self.stream(transfers.types.put, kind: .bidirectional, on: executor, limits: streamLimits) { stream, context in
            try await StoreOwner.of(context) { try await transfers.put(stream, context) }
            return ByteBuffer()
        }
        self.stream(
            transfers.types.get,
            kind: .serverStreaming,
            on: executor,
            limits: streamLimits
        ) { stream, context in
            try await StoreOwner.of(context) { try await transfers.get(stream, context) }
            return ByteBuffer()
        }
        self.handle(transfers.types.find, on: executor, limits: limits) { request, context in
            try await StoreOwner.of(context) { try await transfers.find(request, context) }
        }
        self.handle(transfers.types.discard, on: executor, limits: limits) { request, context in
            try await StoreOwner.of(context) { try await transfers.discard(request, context) }
        }
    }
}

extension StoreOwner {
    /// Runs `body`, whose work in a store is done for this client.
    fileprivate static func of<Result: Sendable>(
        _ context: ServerContext,
        _ body: () async throws -> Result
    ) async throws -> Result {
        try await self.$account.withValue(context.session.account) {
            try await self.$current.withValue(context.session.principalID, operation: body)
        }
    }
}

// MARK: Calls

extension TransferService {
    fileprivate func find(_ request: ServerRequest, _ context: ServerContext) async throws -> ByteBuffer {
        let message: Hhsocket_FindRequest = try request.message()
        var reply = Hhsocket_FindReply()
        do {
            let id = try await self.admit(.find, id: message.id, context: context)
            let stored = try await self.fromStore { try await self.store.find(id) }
            guard let stored else { throw FolderTransferStore.notFound(id) }
            reply.file = stored.file.message
            reply.modified = stored.modifiedNanoseconds
        } catch {
            reply.failure = try self.failure(for: error, method: .find, context: context)
        }
        return try ByteBuffer(message: reply)
    }

    fileprivate func discard(_ request: ServerRequest, _ context: ServerContext) async throws -> ByteBuffer {
        let message: Hhsocket_DiscardRequest = try request.message()
        var reply = Hhsocket_DiscardReply()
        do {
            let id = try await self.admit(.discard, id: message.id, context: context)
            reply.discarded = try await self.fromStore { try await self.store.discard(id, writer: message.writer) }
        } catch {
            reply.failure = try self.failure(for: error, method: .discard, context: context)
        }
        return try ByteBuffer(message: reply)
    }

    private func failure(
        for error: any Error,
        method: TransferRequest.Method,
        context: ServerContext
    ) throws -> Hhsocket_TransferFailure {
        let ending = TransferEnding(error)
        self.log(ending, method: method, context: context)
        guard let reported = ending.reported else { throw ending.thrown }
        return reported.failure
    }
}

// MARK: What all methods share

extension TransferService {
    /// Checks an id, and asks the application.
    func admit(
        _ method: TransferRequest.Method,
        id: String,
        context: ServerContext
    ) async throws -> TransferID {
        guard let id = TransferID(id) else { throw TransferError.invalidID(id) }
        try await self.ask(TransferRequest(method: method, id: id), context)
        return id
    }

    /// Asks the application.
    func ask(_ request: TransferRequest, _ context: ServerContext) async throws {
        do {
            try await self.authorize(request, context)
        } catch {
            throw TransferEnding.Refusal(error: error)
        }
    }

    /// Marks errors of the store, so that only the log has their text.
    func fromStore<Result>(_ body: () async throws -> Result) async throws -> Result {
        do {
            return try await body()
        } catch {
            throw TransferEnding.storeFailure(error)
        }
    }

    /// Runs an operation of the store that may take long, such as hashing a file, and sends `sign` periodically until
    /// it is done.
    func fromStore<Result: Sendable>(
        _ stream: ServerStream,
        sign: ByteBuffer,
        _ body: () async throws -> Result
    ) async throws -> Result {
        async let _ = self.repeating(sign, on: stream)
        return try await self.fromStore(body)
    }

    /// Sends `sign` periodically; returns when the task is cancelled, or the stream is over.
    private func repeating(_ sign: ByteBuffer, on stream: ServerStream) async {
        while (try? await Task.sleep(for: self.busyInterval)) != nil, (try? await stream.send(sign)) != nil {}
    }

    func log(_ ending: TransferEnding, method: TransferRequest.Method, context: ServerContext) {
        guard let line = ending.logged else { return }
        let metadata: Logger.Metadata = ["method": "\(method)", "error": "\(line)"]
        context.session.peerLog.write(.warning, "a transfer has failed", metadata: metadata, by: context.logger)
    }

    /// Reports to the client of a stream how it ends.
    ///
    /// - Parameter item: The item that carries a failure.
    /// - Returns: The error that the handler throws.
    func end(
        _ stream: ServerStream,
        because error: any Error,
        method: TransferRequest.Method,
        context: ServerContext,
        item: (Hhsocket_TransferFailure) throws -> ByteBuffer
    ) async -> any Error {
        let ending = TransferEnding(error)
        self.log(ending, method: method, context: context)
        if let reported = ending.reported, let item = try? item(reported.failure) { try? await stream.send(item) }
        return ending.thrown
    }
}
