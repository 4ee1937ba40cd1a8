// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketServer
import HHSocketTransferValues
import NIOCore
import TestSupport

@testable import HHSocketServerTransfers
@testable import HHSocketTransfers

/// A process of a client that puts a content: its machine, and the work that it has begun.
final class PutRival {
    typealias Machine = PutMachine<SeededGenerator>

    /// Work whose end is reported to the machine.
    private enum Work {
        case find, describe, rehash, open, reconnect, room
        case read(Machine.Piece)
    }

    let bytes: [UInt8]
    let file: TransferFile
    let writer: UInt64
    /// The state of the source; nil if content is not sent before the hash is known.
    let source: TransferDigest?
    private var isDescribed = false
    private(set) var machine: Machine
    private var work: [Work] = []
    private(set) var stream: PutRivalStream?
    /// The abandoned streams, of which the server was not notified yet.
    private(set) var abandoned: [PutRivalStream] = []
    private(set) var outcomes: [Result<TransferFile, TransferError>] = []
    private(set) var attempts = 0
    private var random: SeededGenerator

    init(_ bytes: [UInt8], source: TransferDigest?, writer: UInt64, window: UInt64) {
        self.bytes = bytes
        self.source = source
        self.file = TransferFile(of: bytes)
        self.writer = writer
        self.random = SeededGenerator(seed: writer)
        var settings = Machine.Settings()
        settings.pieceLength = 32 << 10
        settings.window = window
        settings.attempts.timeout = TransferRivals.timeout
        self.machine = Machine("put", settings: settings, generator: SeededGenerator(seed: writer ^ 7))
        self.perform(self.machine.start())
    }

    var isOver: Bool { !self.outcomes.isEmpty }
    var hasWork: Bool { !self.work.isEmpty }
    var hasMail: Bool { self.stream?.down.isEmpty == false }

    /// Returns the streams that were abandoned since the last call.
    func takeAbandoned() -> [PutRivalStream] {
        defer { self.abandoned = [] }
        return self.abandoned
    }

    // MARK: Events

    func doWork(_ now: NIODeadline) {
        switch self.work.remove(at: Int.random(in: 0..<self.work.count, using: &self.random)) {
        case .find:
            self.perform(self.machine.found(size: self.file.size, now: now))
            self.work.append(.describe)
        case .describe:
            // Hashing may take as long as sending.
            guard self.source == nil || Int.random(in: 0..<8, using: &self.random) == 0 else {
                return self.work.append(.describe)
            }
            self.isDescribed = true
            self.perform(self.machine.prepared(self.file, now: now))
        case .rehash: self.perform(self.machine.rehashed(self.file, now: now))
        case .reconnect: self.perform(self.machine.connectionChanged(now: now))
        case .room: self.perform(self.machine.hasRoom(now: now))
        case .read(let piece): self.perform(self.machine.wasRead(piece, now: now))
        case .open:
            self.attempts += 1
            var begin = Hhsocket_PutBegin()
            begin.id = TransferRivals.id.description
            begin.file.size = self.file.size
            if self.isDescribed { begin.file = self.file.message }
            if let source = self.source { begin.source = source.data }
            begin.writer = self.writer
            var message = Hhsocket_PutRequest()
            message.begin = begin
            self.stream = PutRivalStream(Self.item(message))
            self.machine.opened(now: now)
        }
    }

    private static func item(_ message: Hhsocket_PutRequest) -> ByteBuffer {
        let bytes: [UInt8]? = try? message.serializedBytes()
        return ByteBuffer(bytes: bytes ?? [])
    }

    func receive(_ now: NIODeadline) {
        guard let stream = self.stream else { return }
        switch stream.down.removeFirst() {
        case .item(let item):
            guard let message = try? Hhsocket_PutReport(serializedBytes: item.readableBytesView) else { return }
            let report = Machine.Report(
                offset: message.offset,
                changed: message.changed,
                complete: message.complete,
                needsHash: message.needsSha256,
                failure: message.hasFailure ? TransferError(message.failure) : nil
            )
            self.perform(self.machine.receivedReport(report, now: now))
        case .end(let error):
            self.stream = nil
            self.perform(self.machine.streamEnded(error, now: now))
        }
    }

    /// Loses the connection.
    func lose(_ now: NIODeadline) {
        guard self.stream != nil else { return }
        self.abandon()
        self.perform(self.machine.streamEnded(TransferRivals.lost, now: now))
    }

    func timePassed(_ now: NIODeadline) {
        if let deadline = self.machine.nextDeadline, deadline <= now { self.perform(self.machine.timePassed(now: now)) }
    }

    /// The process is killed.
    func die() { self.abandon() }

    // MARK: Actions

    private func abandon() {
        if let stream = self.stream.take() { self.abandoned.append(stream) }
        self.work.removeAll { work in
            switch work {
            case .open, .room: true
            case .find, .describe, .rehash, .reconnect, .read: false
            }
        }
    }

    private func perform(_ actions: [Machine.Action]) {
        for action in actions { self.perform(action) }
    }

    private func perform(_ action: Machine.Action) {
        switch action {
        case .prepare: self.work.append(self.source == nil ? .describe : .find)
        case .announce(let sha256):
            var message = Hhsocket_PutRequest()
            message.sha256 = sha256.data
            self.stream?.up.append(Self.item(message))
        case .rehash: self.work.append(.rehash)
        case .open: self.work.append(.open)
        case .replaceConnection: self.work.append(.reconnect)
        case .read(let piece): self.work.append(.read(piece))
        case .send(let piece):
            let content = ByteBuffer(bytes: self.bytes[Int(piece.offset)..<Int(piece.end)])
            self.stream?.up.append(TransferPart(offset: piece.offset, bytes: content).item)
            self.work.append(.room)
        case .finish: self.stream?.up.append(nil)
        case .abandon: self.abandon()
        case .prove, .report: break
        case .end(let result): self.outcomes.append(result)
        }
    }
}

/// A stream of a put, with the items in transit, and the server's end of it, which acts like ``TransferService``.
final class PutRivalStream {
    enum Down {
        case item(ByteBuffer)
        case end(SocketError?)
    }

    /// The items of the client; nil for their end.
    var up: [ByteBuffer?]
    var down: [Down] = []
    private var session = PutSession()
    private var writer: (any TransferWriter)?
    private let end = PutEnd()
    private(set) var isOver = false

    init(_ begin: ByteBuffer) {
        self.up = [begin]
    }

    /// Whether the server has work on this stream.
    var isDue: Bool { !self.isOver && (!self.up.isEmpty || self.end.error != nil) }

    /// Has the server take an item.
    ///
    /// - Parameter fault: A fault of the server.
    /// - Returns: The file that the server has published, or has found to be visible; nil if there is none.
    func serve(_ store: FolderTransferStore, fault: TransferRivals.Fault?) async -> TransferFile? {
        do {
            if let error = self.end.error { throw error }
            guard let file = try await self.take(store, fault) else {
                if self.needsHash { await self.close() }
                return nil
            }
            await self.close()
            self.down += [.item(try self.session.complete().item), .end(nil)]
            return file
        } catch {
            await self.fail(self.end.error ?? TransferEnding.storeFailure(error), reports: fault != .reportsNoFailure)
            return nil
        }
    }

    private var file: TransferFile?
    private var needsHash = false

    private func take(_ store: FolderTransferStore, _ fault: TransferRivals.Fault?) async throws -> TransferFile? {
        guard let item = self.up.removeFirst() else { throw self.session.endedEarly() }
        switch self.session.receivedItem(item) {
        case .ignore: return nil
        case .fail(let error): throw error
        case .report(let report): self.down.append(.item(try report.item))
        case .begin(let beginning):
            let put = TransferPut(beginning, owner: "somebody")
            self.file = put.file
            let onEnd: @Sendable (any Error) -> Void = { [end] error in end.resume(throwing: error) }
            guard beginning.sha256 != nil else {
                guard let (writer, isChanged) = try await store.beginEarly(put, onEnd: onEnd) else {
                    self.needsHash = true
                    self.down += [.item(try PutSession.hashNeededItem()), .end(nil)]
                    return nil
                }
                self.writer = writer
                self.down.append(.item(try self.session.begun(at: writer.offset, isChanged: isChanged).item))
                return nil
            }
            switch try await store.begin(put, onEnd: onEnd) {
            case .complete: return put.file
            case .unfinished(let writer, let isChanged):
                self.writer = writer
                self.down.append(.item(try self.session.begun(at: writer.offset, isChanged: isChanged).item))
            }
        case .identify(let sha256):
            self.file?.sha256 = sha256
            try await (self.writer as? any EarlyTransferWriter)?.identify(as: sha256)
        case .take(let bytes):
            var bytes = bytes
            if fault == .damagesContent { bytes.setInteger(UInt8(0), at: bytes.readerIndex) }
            try await self.writer?.append([bytes])
            if let report = self.session.wrote() { self.down.append(.item(try report.item)) }
        }
        guard self.session.isWhole else { return nil }
        try await self.writer?.finish()
        return self.file
    }

    private func fail(_ error: any Error, reports: Bool) async {
        await self.close()
        guard reports else { return }
        let ending = TransferEnding(error)
        if let reported = ending.reported {
            var report = Hhsocket_PutReport()
            report.failure = reported.failure
            let bytes: [UInt8]? = try? report.serializedBytes()
            self.down.append(.item(ByteBuffer(bytes: bytes ?? [])))
        }
        let status = (ending.thrown as? StatusError)?.status ?? .unknown
        self.down.append(.end(SocketError(SocketError.Code(status), message: "\(error)", delivery: .answered)))
    }

    /// Ends the server's work on the stream.
    func close() async {
        self.isOver = true
        await self.writer.take()?.close()
    }
}
