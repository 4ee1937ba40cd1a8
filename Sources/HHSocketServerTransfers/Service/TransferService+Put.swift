// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketServer
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore

/// The receiving of files.
extension TransferService {
    func put(_ stream: ServerStream, _ context: ServerContext) async throws {
        let end = PutEnd()
        do {
            // Another writer may begin while this one waits for its client.
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await self.receive(stream, context, end: end) }
                group.addTask { try await end.wait() }
                defer { group.cancelAll() }
                try await group.next()
            }
        } catch {
            throw await self.end(stream, because: end.error ?? error, method: .put, context: context) { failure in
                var report = Hhsocket_PutReport()
                report.failure = failure
                return try ByteBuffer(message: report)
            }
        }
    }

    private func receive(_ stream: ServerStream, _ context: ServerContext, end: PutEnd) async throws {
        var session = PutSession()
        var items = stream.items.makeAsyncIterator()
        guard let first = try await items.next() else { throw session.endedEarly() }
        let beginning: PutSession.Beginning
        switch session.receivedItem(first) {
        case .begin(let begun): beginning = begun
        case .fail(let error): throw error
        case .ignore, .take, .report, .identify: throw session.endedEarly()
        }
        try await self.ask(TransferRequest(beginning), context)
        switch try await self.beginPut(
            TransferPut(beginning, owner: context.session.transferOwner),
            beginning: beginning,
            stream: stream,
            end: end
        ) {
        case .complete: break
        case .needsHash: return try await stream.send(PutSession.hashNeededItem())
        case .unfinished(let writer, let isChanged):
            if writer.offset < beginning.size, beginning.size - writer.offset >= TransferPart.window {
                stream.carryContent(window: TransferPart.window)
            }
            do {
                try await stream.send(session.begun(at: writer.offset, isChanged: isChanged).item)
                try await self.receiveContent(in: &session, from: &items, of: stream, into: writer) { sha256 in
                    try await self.identify(beginning, writer: writer, as: sha256, context: context)
                }
            } catch {
                await writer.close()
                throw error
            }
            await writer.close()
        }
        try await stream.send(session.complete().item)
    }

    private enum Begun {
        case complete
        case needsHash
        case unfinished(any TransferWriter, isChanged: Bool)
    }

    private func beginPut(
        _ put: TransferPut,
        beginning: PutSession.Beginning,
        stream: ServerStream,
        end: PutEnd
    ) async throws -> Begun {
        let onEnd: @Sendable (any Error) -> Void = { end.resume(throwing: $0) }
        return try await self.fromStore(stream, sign: PutSession.busyItem()) {
            guard beginning.sha256 == nil else {
                switch try await self.store.begin(put, onEnd: onEnd) {
                case .complete: return .complete
                case .unfinished(let writer, let isChanged): return .unfinished(writer, isChanged: isChanged)
                }
            }
            guard let store = self.store as? any EarlyTransferStore,
                let (writer, isChanged) = try await store.beginEarly(put, onEnd: onEnd)
            else { return .needsHash }
            return .unfinished(writer, isChanged: isChanged)
        }
    }

    /// The hash of the file, which was not known at the beginning, has arrived.
    private func identify(
        _ beginning: PutSession.Beginning,
        writer: any TransferWriter,
        as sha256: TransferDigest,
        context: ServerContext
    ) async throws {
        var beginning = beginning
        beginning.sha256 = sha256
        do {
            try await self.ask(TransferRequest(beginning), context)
        } catch {
            // Otherwise it would count towards the limits of a client that may not send it.
            await writer.close()
            _ = try? await self.store.discard(beginning.id, writer: beginning.writer)
            throw error
        }
        try await self.fromStore { try await (writer as? any EarlyTransferWriter)?.identify(as: sha256) }
    }

    private func receiveContent(
        in session: inout PutSession,
        from items: inout ServerStream.Items.Iterator,
        of stream: ServerStream,
        into writer: any TransferWriter,
        identify: (TransferDigest) async throws -> Void
    ) async throws {
        if let writer = writer as? any ThreadedTransferWriter,
            #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
        {
            // Nothing changes threads between the connection's and the one that writes.
            try await withTaskExecutorPreference(writer.executor) {
                try await self.receiveContent(in: &session, from: &items, of: stream, identify: identify) {
                    try await writer.appendHere($0)
                }
            }
        } else {
            try await self.receiveContent(in: &session, from: &items, of: stream, identify: identify) {
                try await writer.append($0)
            }
        }
        try await self.fromStore(stream, sign: PutSession.busyItem()) { try await writer.finish() }
    }

    /// Receives all that is still to come, and has `append` write it.
    private func receiveContent(
        in session: inout PutSession,
        from items: inout ServerStream.Items.Iterator,
        of stream: ServerStream,
        identify: (TransferDigest) async throws -> Void,
        append: ([ByteBuffer]) async throws -> Void
    ) async throws {
        while !session.isWhole {
            guard let item = try await items.next() else { throw session.endedEarly() }
            var step = session.receivedItem(item)
            var parts: [ByteBuffer] = []
            // Parts that have arrived already are written together, as far as one report may cover them.
            while case .take(let bytes) = step {
                parts.append(bytes)
                step = .ignore
                guard !session.mustReport, !session.isWhole, items.hasItem,
                    // If the stream is over, the next item says so; the parts taken are written nonetheless.
                    let item = (try? await items.next()) ?? nil
                else { break }
                step = session.receivedItem(item)
            }
            if !parts.isEmpty {
                try await self.fromStore { [parts] in try await append(parts) }
                if let report = session.wrote() { try await stream.send(report.item) }
            }
            switch step {
            case .report(let report): try await stream.send(report.item)
            case .identify(let sha256): try await identify(sha256)
            case .fail(let error): throw error
            case .ignore, .take, .begin: break
            }
        }
    }
}

extension PutSession {
    static func busyItem() throws -> ByteBuffer {
        var report = Hhsocket_PutReport()
        report.busy = true
        return try ByteBuffer(message: report)
    }

    static func hashNeededItem() throws -> ByteBuffer {
        var report = Hhsocket_PutReport()
        report.needsSha256 = true
        return try ByteBuffer(message: report)
    }
}

extension TransferRequest {
    fileprivate init(_ beginning: PutSession.Beginning) {
        self.init(method: .put, id: beginning.id, size: beginning.size, sha256: beginning.sha256)
    }
}

extension TransferPut {
    /// The put that a client announces. Without its hash it has that of its source.
    init(_ beginning: PutSession.Beginning, owner: String) {
        let digest = beginning.sha256 ?? beginning.source ?? TransferDigest(SHA256())
        self.init(
            id: beginning.id,
            file: TransferFile(size: beginning.size, sha256: digest),
            writer: beginning.writer,
            owner: owner
        )
        self.source = beginning.source
        if beginning.sha256 == nil, let early = self.early { self = early }
    }
}

extension PutSession.Report {
    var item: ByteBuffer {
        get throws {
            var report = Hhsocket_PutReport()
            report.offset = self.offset
            report.changed = self.isChanged
            report.complete = self.isComplete
            return try ByteBuffer(message: report)
        }
    }
}

extension ServerSession {
    /// The owner whose limits of a store apply: the client's identity, or its network if it has none.
    var transferOwner: String {
        if let identity = self.identity { return "identity \(identity)" }
        return ClientAddress(self.remoteAddress).map { "address \($0.text)" } ?? "local"
    }
}

/// The end of a put that is caused elsewhere.
final class PutEnd: Sendable {
    private struct State {
        var error: (any Error)?
        var waiter: CheckedContinuation<Void, any Error>?
        var isCancelled = false
    }

    private let state = NIOLockedValueBox(State())

    var error: (any Error)? { self.state.withLockedValue { $0.error } }

    func resume(throwing error: any Error) {
        let waiter = self.state.withLockedValue { state in
            if state.error == nil { state.error = error }
            return state.waiter.take()
        }
        waiter?.resume(throwing: error)
    }

    /// Throws when there is an error, or when the task is cancelled.
    func wait() async throws {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (waiter: CheckedContinuation<Void, any Error>) in
                let error: (any Error)? = self.state.withLockedValue { state in
                    if let error = state.error { return error }
                    if state.isCancelled { return CancellationError() }
                    state.waiter = waiter
                    return nil
                }
                if let error { waiter.resume(throwing: error) }
            }
        } onCancel: {
            let waiter = self.state.withLockedValue { state in
                state.isCancelled = true
                return state.waiter.take()
            }
            waiter?.resume(throwing: CancellationError())
        }
    }
}
