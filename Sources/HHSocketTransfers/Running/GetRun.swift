// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketMessage
import HHSocketRPC
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore

/// A get in progress: performs the decisions of ``GetMachine``.
final class GetRun: TransferRun<GetMachine<SystemRandomNumberGenerator>>, @unchecked Sendable {
    // Proof of Sendable: as for TransferRun. Only ``FileWork`` accesses the sink.
    typealias Machine = GetMachine<SystemRandomNumberGenerator>

    private let sink: any TransferSink
    private let id: TransferID
    /// The content that has just arrived.
    private var content: ByteBuffer?
    /// The content that waits for its turn to be written, to which more may be added.
    private var batch: ContentBatch?
    /// The number of received bytes that were not written.
    private var unwritten = 0
    private var isPaused = false
    /// The number of received bytes of the stream at the last check.
    private var receivedBytes: UInt64 = 0

    /// The numbers of unwritten bytes at which taking items stops and resumes.
    private static let marks = (high: 2 << 20, low: 1 << 20)

    init(_ id: TransferID, to sink: any TransferSink, maximumSize: UInt64? = nil, _ setting: TransferSetting) {
        var settings = Machine.Settings()
        settings.attempts.timeout = setting.options.timeout
        if let maximumSize { settings.maximumSize = maximumSize }
        self.sink = sink
        self.id = id
        super.init(Machine("get of \(id)", settings: settings, generator: SystemRandomNumberGenerator()), setting)
    }

    // MARK: Events

    override func streamOpened(in turn: inout Turn) {
        self.receivedBytes = 0
        self.widenWindow(in: &turn)
    }

    override func receivedItem(_ item: ByteBuffer, in turn: inout Turn) {
        self.checkTraffic(in: &turn)
        if let part = TransferPart(item: item) { return self.receivedContent(part.offset, part.bytes, in: &turn) }
        guard let message = try? Hhsocket_GetItem(serializedBytes: item.readableBytesView) else {
            return self.decide(in: &turn) { machine, _ in machine.receivedNonsense() }
        }
        switch message.kind {
        case .begin(let begin)?:
            guard let file = TransferFile(begin.file) else {
                return self.decide(in: &turn) { machine, _ in machine.receivedNonsense() }
            }
            self.decide(in: &turn) { $0.receivedFile(file, from: begin.offset, now: $1) }
        case .content(let content)?:
            self.receivedContent(content.offset, ByteBuffer(bytes: content.bytes), in: &turn)
        case .failure(let failure)?:
            self.decide(in: &turn) { machine, _ in machine.receivedFailure(TransferError(failure)) }
        // Its arrival was already reported.
        case nil where message.busy: break
        case nil:
            self.decide(in: &turn) { machine, _ in machine.receivedNonsense() }
        }
    }

    private func receivedContent(_ offset: UInt64, _ bytes: ByteBuffer, in turn: inout Turn) {
        self.content = bytes
        self.decide(in: &turn) { $0.receivedContent(at: offset, count: bytes.readableBytes, now: $1) }
        self.content = nil
    }

    override func checkTraffic(in turn: inout Turn) {
        guard let traffic = self.traffic(asksSystem: false), traffic.received > self.receivedBytes else { return }
        let bytes = traffic.received - self.receivedBytes
        self.receivedBytes = traffic.received
        self.decide(in: &turn) { $0.moved(bytes, now: $1) }
    }

    override func cancelled(discarding: Bool, in turn: inout Turn) {
        self.decide(in: &turn) { machine, _ in machine.cancel(discards: discarding) }
    }

    override func closeFiles() { self.sink.close() }

    // MARK: Actions

    override func perform(_ action: Machine.Action, in turn: inout Turn) {
        switch action {
        case .prepare: self.prepare()
        case .open(let begun): self.open(begun)
        case .create(let file): self.create(file)
        case .write: self.write()
        case .discard: self.submit { [sink] in sink.discard() }
        case .finish: self.finish()
        case .abandon: self.abandonStream()
        case .replaceConnection: self.replaceConnection(in: &turn)
        case .prove: self.proveConnection(in: &turn)
        case .report(let progress): self.setting.state.report(progress)
        case .end(let result, let keeps):
            let (id, moved, sink) = (self.id, self.bytesMoved, self.sink)
            let outcome = result.map { TransferResult(id: id, file: $0, bytesMoved: moved) }
            self.end(outcome) { if keeps { sink.close() } else { sink.discard() } }
        }
    }

    private func prepare() {
        let sink = self.sink
        self.setting.work.submit {
            guard !self.isUnwanted.load(ordering: .relaxed) else { return }
            let result = Result { () throws(TransferError) in try sink.prepare() }
            // The files of others have their turn before the next part.
            if case .success(.continues) = result { return self.prepare() }
            self.post { turn in
                switch result {
                case .success(.continues): break
                case .success(.done(let begun)): self.decide(in: &turn) { $0.prepared(begun, now: $1) }
                case .failure(let error): self.failed(error, in: &turn)
                }
            }
        }
    }

    private func open(_ begun: Machine.Begun?) {
        var message = Hhsocket_GetRequest()
        message.id = self.id.description
        if let begun {
            message.offset = begun.length
            message.begun = begun.file.message
        }
        // A message without required fields, of this size, can always be encoded.
        guard let bytes = try? message.serializedBytes() else { return }
        self.openStream(self.setting.types.get, .serverStreaming, body: ByteBuffer(bytes: bytes))
        self.isPaused = false
        self.pauseOrResume()
    }

    private func create(_ file: TransferFile) {
        let (sink, isUnwanted) = (self.sink, self.isUnwanted)
        self.submit {
            do throws(TransferError) {
                try sink.create(file)
            } catch {
                // The content that has arrived meanwhile is discarded.
                isUnwanted.store(true, ordering: .relaxed)
                self.post { turn in self.failed(error, in: &turn) }
            }
        }
    }

    private func write() {
        guard let content = self.content.take() else { return }
        self.unwritten += content.readableBytes
        self.pauseOrResume()
        if let batch = self.batch, batch.add(content) { return }
        let (sink, isUnwanted, batch) = (self.sink, self.isUnwanted, ContentBatch(content))
        self.batch = batch
        self.setting.work.submit {
            let contents = batch.take()
            // After a failure nothing more is written.
            guard !isUnwanted.load(ordering: .relaxed) else { return }
            let result = Result { () throws(TransferError) in try sink.append(contents) }
            if case .failure = result { isUnwanted.store(true, ordering: .relaxed) }
            let count = contents.reduce(0) { $0 + $1.readableBytes }
            self.post { turn in
                self.unwritten -= count
                self.pauseOrResume()
                switch result {
                case .success(let length): self.decide(in: &turn) { machine, _ in machine.wrote(length) }
                case .failure(let error): self.failed(error, in: &turn)
                }
            }
        }
    }

    /// Runs a job on the file's thread after all received content, and before later content.
    private func submit(_ job: @escaping FileWork.Job) {
        self.batch = nil
        self.setting.work.submit(job)
    }

    /// A server waits while the disk is slower than it.
    private func pauseOrResume() {
        if !self.isPaused, self.unwritten >= Self.marks.high {
            self.isPaused = true
            self.stream?.pause()
        } else if self.isPaused, self.unwritten <= Self.marks.low {
            self.isPaused = false
            self.stream?.resume()
        }
    }

    private func finish() {
        let (sink, isUnwanted) = (self.sink, self.isUnwanted)
        self.submit {
            guard !isUnwanted.load(ordering: .relaxed) else { return }
            let outcome: Machine.Finish
            do throws(TransferError) {
                outcome = try sink.finish() ? .done : .wrongHash
            } catch {
                outcome = .failed(error)
            }
            self.post { turn in self.decide(in: &turn) { $0.finished(outcome, now: $1) } }
        }
    }
}

/// Content that is written together, once the file's thread processes it.
private final class ContentBatch: Sendable {
    /// Nil once it has been taken.
    private let contents: NIOLockedValueBox<[ByteBuffer]?>

    init(_ first: ByteBuffer) {
        self.contents = NIOLockedValueBox([first])
    }

    /// Adds the next content.
    ///
    /// - Returns: False if the batch has been taken.
    func add(_ content: ByteBuffer) -> Bool { self.contents.withLockedValue { $0?.append(content) } != nil }

    func take() -> [ByteBuffer] { self.contents.withLockedValue { $0.take() } ?? [] }
}
