// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketMessage
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// A put in progress: performs the decisions of ``PutMachine``.
final class PutRun: TransferRun<PutMachine<SystemRandomNumberGenerator>>, @unchecked Sendable {
    // Proof of Sendable: as for TransferRun. Only ``FileWork`` accesses the source.
    typealias Machine = PutMachine<SystemRandomNumberGenerator>

    private let source: any TransferSource
    private var id: TransferID?
    private var file: TransferFile?
    /// The state of the source, if content may be sent before it is hashed.
    private var state: TransferSourceState?
    /// The number of the writer, which all attempts send.
    private let writer = UInt64.random(in: 1...UInt64.max)
    /// The piece that was read last, as items.
    private var items: (number: UInt64, bytes: [ByteBuffer])?
    private var share = AcknowledgedShare()
    /// Whether enough has moved on the connection.
    private var isProved = false

    /// - Parameter id: Nil for the hash of the content.
    init(_ source: any TransferSource, what: String, id: TransferID?, _ setting: TransferSetting) {
        var settings = Machine.Settings()
        settings.attempts.timeout = setting.options.timeout
        settings.pieceLength = UInt64(setting.options.pieceLength)
        self.source = source
        self.id = id
        super.init(Machine(what, settings: settings, generator: SystemRandomNumberGenerator()), setting)
    }

    // MARK: Events

    override func streamOpened(in turn: inout Turn) {
        self.share = AcknowledgedShare()
        self.isProved = false
        // Bytes that were acknowledged before do not belong to the stream.
        self.checkTraffic(in: &turn)
    }

    override func receivedItem(_ item: ByteBuffer, in turn: inout Turn) {
        guard let message = try? Hhsocket_PutReport(serializedBytes: item.readableBytesView) else {
            let error = TransferError(.invalidRequest, "the server sent an invalid report")
            return self.failed(error, in: &turn)
        }
        let report = Machine.Report(
            offset: message.offset,
            changed: message.changed,
            complete: message.complete,
            busy: message.busy,
            needsHash: message.needsSha256,
            failure: message.hasFailure ? TransferError(message.failure) : nil
        )
        self.decide(in: &turn) { $0.receivedReport(report, now: $1) }
    }

    override func checkTraffic(in turn: inout Turn) {
        guard let traffic = self.traffic(asksSystem: true) else { return }
        let bytes = self.share.update(sent: traffic.sent, acknowledged: traffic.acknowledgedOnConnection)
        if bytes > 0 { self.decide(in: &turn) { $0.acknowledged(bytes, now: $1) } }
    }

    override func cancelled(discarding: Bool, in turn: inout Turn) {
        self.decide(in: &turn) { machine, _ in machine.cancel() }
        if discarding, let id = self.id { self.discard(id) }
    }

    override func closeFiles() { self.source.close() }

    // MARK: Actions

    override func perform(_ action: Machine.Action, in turn: inout Turn) {
        switch action {
        case .prepare: self.prepare()
        case .rehash: self.describe(step: HashedPart.step) { $0.rehashed($1, now: $2) }
        case .open: self.open()
        case .announce(let sha256): self.announce(sha256)
        case .read(let piece): self.read(piece)
        case .send(let piece): self.send(piece, in: &turn)
        case .finish: self.stream?.finish()
        case .abandon:
            self.items = nil
            self.abandonStream()
        case .replaceConnection: self.replaceConnection(in: &turn)
        case .prove:
            self.isProved = true
            self.proveConnection(in: &turn)
        case .report(let progress): self.setting.state.report(progress)
        case .end(let result):
            let (id, moved, source) = (self.id, self.bytesMoved, self.source)
            let outcome = result.map { TransferResult(id: id ?? TransferID($0.sha256), file: $0, bytesMoved: moved) }
            self.end(outcome) { source.close() }
        }
    }

    private func prepare() {
        // Without an id there is nothing to begin before the content is hashed, which gives it one.
        guard self.id != nil else { return self.describe(step: HashedPart.step) { $0.prepared($1, now: $2) } }
        let source = self.source
        self.setting.work.submit {
            // If it fails, so does hashing, which reports the error.
            let state = (try? source.state()) ?? nil
            if let state {
                self.post { turn in
                    self.state = state
                    self.decide(in: &turn) { $0.found(size: state.size, now: $1) }
                }
            }
            let step = state == nil ? HashedPart.step : HashedPart.stepBesideContent
            self.describe(step: step) { $0.prepared($1, now: $2) }
        }
    }

    /// Hashes the source.
    ///
    /// - Parameter step: The number of bytes after which other work on the file has its turn.
    private func describe(
        step: UInt64,
        _ event: @escaping @Sendable (inout Machine, TransferFile, NIODeadline) -> [Machine.Action]
    ) {
        let source = self.source
        self.setting.work.submit {
            guard !self.isUnwanted.load(ordering: .relaxed) else { return }
            let result = Result { () throws(TransferError) in try source.describe(step: step) }
            // The files of others have their turn before the next part.
            if case .success(nil) = result { return self.describe(step: step, event) }
            self.post { turn in
                switch result {
                case .success(nil): break
                case .success(let file?):
                    if self.file == nil { self.file = file }
                    if self.id == nil { self.id = TransferID(file.sha256) }
                    self.decide(in: &turn) { event(&$0, file, $1) }
                case .failure(let error):
                    self.failed(error, in: &turn)
                }
            }
        }
    }

    private func open() {
        guard let id = self.id else { return }
        var begin = Hhsocket_PutBegin()
        begin.id = id.description
        if let state = self.state {
            begin.file.size = state.size
            begin.source = state.digest.data
        }
        if let file = self.file { begin.file = file.message }
        begin.writer = self.writer
        var message = Hhsocket_PutRequest()
        message.begin = begin
        self.items = nil
        self.openStream(self.setting.types.put, .bidirectional)
        // A message without required fields, of this size, can always be encoded.
        guard let bytes = try? message.serializedBytes() else { return }
        _ = try? self.stream?.send(ByteBuffer(bytes: bytes))
    }

    private func announce(_ sha256: TransferDigest) {
        var message = Hhsocket_PutRequest()
        message.sha256 = sha256.data
        guard let bytes = try? message.serializedBytes() else { return }
        // It is short, and need not wait for room.
        _ = try? self.stream?.send(ByteBuffer(bytes: bytes))
    }

    private func read(_ piece: Machine.Piece) {
        let source = self.source
        self.setting.work.submit {
            let result = Result { () throws(TransferError) in
                try source.items(offset: piece.offset, length: piece.length)
            }
            self.post { turn in
                switch result {
                case .success(let bytes):
                    self.items = (piece.number, bytes)
                    self.decide(in: &turn) { $0.wasRead(piece, now: $1) }
                case .failure(let error):
                    self.failed(error, in: &turn)
                }
            }
        }
    }

    private func send(_ piece: Machine.Piece, in turn: inout Turn) {
        guard let items = self.items.take(), items.number == piece.number, let stream = self.stream else { return }
        var waits = false
        for item in items.bytes {
            // Otherwise the stream has ended, and its end is about to be reported.
            guard let mustWait = try? stream.send(item) else { return }
            waits = mustWait
        }
        if waits {
            let isRegistered = stream.awaitRoom { error in
                guard error == nil else { return }
                self.post { turn in
                    if self.stream === stream { self.hasRoom(in: &turn) }
                }
            }
            if isRegistered { return }
        }
        self.hasRoom(in: &turn)
    }

    private func hasRoom(in turn: inout Turn) {
        // A connection may break before the next periodic check.
        if !self.isProved { self.checkTraffic(in: &turn) }
        self.decide(in: &turn) { $0.hasRoom(now: $1) }
    }

    /// Asks the server to remove the unfinished file, as soon as it can be reached. The outcome is ignored.
    private func discard(_ id: TransferID) {
        var message = Hhsocket_DiscardRequest()
        message.id = id.description
        message.writer = self.writer
        guard let bytes = try? message.serializedBytes() else { return }
        var options = self.setting.options.call
        options.waitsForConnectivity = true
        // The writer's number identifies the file, even if this is repeated. A link that breaks may lose several
        // requests.
        options.isIdempotent = true
        options.retryPolicy = RetryPolicy(maximumAttempts: 10)
        self.setting.client.dispatch(
            SocketRequest(type: self.setting.types.discard, body: ByteBuffer(bytes: bytes), options: options)
        )
    }
}
