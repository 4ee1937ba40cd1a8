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

/// A client that gets the file, with the local one, which outlives its process.
final class GetRival {
    typealias Machine = GetMachine<SeededGenerator>

    private enum Work {
        case prepare, open(BegunFile?), wrote(UInt64), finish, reconnect
    }

    private var machine: Machine
    private var work: [Work] = []
    private(set) var stream: GetRivalStream?
    private(set) var outcomes: [Result<TransferFile, TransferError>] = []
    /// The local file.
    private var file: TransferFile?
    private(set) var bytes: [UInt8] = []
    private var arriving: ByteBuffer?
    private let comparesHashes: Bool

    init(comparesHashes: Bool = true) {
        self.comparesHashes = comparesHashes
        self.machine = Self.machine()
        self.perform(self.machine.start())
    }

    private static func machine() -> Machine {
        var settings = Machine.Settings()
        settings.attempts.timeout = TransferRivals.timeout
        return Machine("get", settings: settings, generator: SeededGenerator(seed: 5))
    }

    var isOver: Bool { !self.outcomes.isEmpty }
    var hasWork: Bool { !self.work.isEmpty }
    var nextDeadline: NIODeadline? { self.machine.nextDeadline }

    // MARK: Events

    func doWork(_ now: NIODeadline) {
        // Work on the local file is done in order.
        switch self.work.removeFirst() {
        case .prepare:
            let begun = self.file.map { BegunFile(file: $0, length: UInt64(self.bytes.count)) }
            self.perform(self.machine.prepared(begun, now: now))
        case .open(let begun):
            self.stream = GetRivalStream(begun)
            self.machine.opened(now: now)
        case .wrote(let length): self.perform(self.machine.wrote(length))
        case .finish:
            let isRight = !self.comparesHashes || self.file == TransferFile(of: self.bytes)
            self.perform(self.machine.finished(isRight ? .done : .wrongHash, now: now))
        case .reconnect: self.perform(self.machine.connectionChanged(now: now))
        }
    }

    func receive(_ now: NIODeadline) {
        guard let stream = self.stream else { return }
        switch stream.down.removeFirst() {
        case .begin(let file, let offset):
            self.perform(self.machine.receivedFile(file, from: offset, now: now))
        case .content(let part):
            let count = part.bytes.readableBytes
            self.perform(self.machine.moved(UInt64(count), now: now))
            self.arriving = part.bytes
            self.perform(self.machine.receivedContent(at: part.offset, count: count, now: now))
            self.arriving = nil
        case .failure(let error): self.perform(self.machine.receivedFailure(error))
        case .end(let error):
            self.stream = nil
            self.perform(self.machine.streamEnded(error, now: now))
        }
    }

    func lose(_ now: NIODeadline) {
        guard self.stream.take() != nil else { return }
        self.perform(self.machine.streamEnded(TransferRivals.lost, now: now))
    }

    func timePassed(_ now: NIODeadline) {
        if let deadline = self.machine.nextDeadline, deadline <= now { self.perform(self.machine.timePassed(now: now)) }
    }

    /// The process is killed, and another one begins the same get.
    func die() {
        self.stream = nil
        self.work = []
        self.machine = Self.machine()
        self.perform(self.machine.start())
    }

    // MARK: Actions

    private func perform(_ actions: [Machine.Action]) {
        for action in actions { self.perform(action) }
    }

    private func perform(_ action: Machine.Action) {
        switch action {
        case .prepare: self.work.append(.prepare)
        case .open(let begun): self.work.append(.open(begun))
        case .create(let file): (self.file, self.bytes) = (file, [])
        case .write:
            self.bytes += Array(buffer: self.arriving ?? ByteBuffer())
            self.work.append(.wrote(UInt64(self.bytes.count)))
        case .discard: (self.file, self.bytes) = (nil, [])
        case .finish: self.work.append(.finish)
        case .abandon:
            self.stream = nil
            self.work.removeAll { if case .open = $0 { true } else { false } }
        case .replaceConnection: self.work.append(.reconnect)
        case .prove, .report: break
        case .end(let result, _): self.outcomes.append(result)
        }
    }
}

/// A stream of a get, and the server's end of it, which acts like ``TransferService``.
final class GetRivalStream {
    enum Down {
        case begin(TransferFile, offset: UInt64)
        case content(TransferPart)
        case failure(TransferError)
        case end(SocketError?)
    }

    var down: [Down] = []
    private let begun: BegunFile?
    private var reader: (any TransferReader)?
    private var first: UInt64 = 0
    private var offset: UInt64 = 0
    private var isOver = false

    init(_ begun: BegunFile?) {
        self.begun = begun
    }

    /// Whether the server has work on this stream: a client takes some parts before it asks for more.
    var isDue: Bool { !self.isOver && self.down.count < 4 }

    /// The server sends an item.
    func serve(_ store: FolderTransferStore, fault: TransferRivals.Fault?) async {
        do {
            try await self.give(store, fault)
        } catch {
            self.isOver = true
            let ending = TransferEnding(TransferEnding.storeFailure(error))
            if let reported = ending.reported { self.down.append(.failure(reported)) }
            let status = (ending.thrown as? StatusError)?.status ?? .unknown
            self.down.append(.end(SocketError(SocketError.Code(status), message: "\(error)", delivery: .answered)))
        }
    }

    private func give(_ store: FolderTransferStore, _ fault: TransferRivals.Fault?) async throws {
        guard let reader = self.reader else {
            let reader = try await store.open(TransferRivals.id)
            self.reader = reader
            if let begun = self.begun, begun.file == reader.stored.file { self.first = begun.length }
            self.offset = self.first
            return self.down.append(.begin(reader.stored.file, offset: self.first))
        }
        let size = reader.stored.file.size
        guard self.offset < size else {
            self.isOver = true
            return self.down.append(.end(nil))
        }
        let count = TransferService.pieceLength(sent: self.offset - self.first, left: size - self.offset)
        // The visible file may be another one now.
        let source = fault == .mixesFiles ? try await store.open(TransferRivals.id) : reader
        let isThere = source.stored.file.size >= self.offset + UInt64(count)
        let bytes = try await (isThere ? source : reader).read(at: self.offset, count: count)
        self.down.append(.content(TransferPart(offset: self.offset, bytes: bytes)))
        self.offset += UInt64(count)
    }
}
