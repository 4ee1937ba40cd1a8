import DequeModule
import HHSocket
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#elseif canImport(Android)
import Android
#endif

/// One connection of a ``MockServer``. Confined to the server's event loop.
final class MockSession: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    typealias Reaction = MockServer.Reaction

    /// An item of the outbox, which is written in order.
    private enum Output {
        case bytes(ByteBuffer)
        case dribble(ByteBuffer, Reaction.Dribble)
        case halfClose
        case close
        case reset
    }

    /// The server; nil once the connection is gone, so that a reference to a connection does not keep the server.
    private var core: MockServerCore?
    private(set) var number = -1
    private let format: WireFormat
    private let forge: FrameForge
    private var decoder: FrameDecoder
    private var context: ChannelHandlerContext?
    private var outbox: Deque<Output> = []
    private var isDribbling = false
    private var isSilent = false
    /// Whether frames are decoded. Bytes that arrive all the same, such as when the client closes, stay in the decoder.
    private var isReading = true
    private var hasEnded = false
    /// The result of hello on this connection.
    private var agreement: Agreement?
    private var outstandingPings: [UInt32: Int] = [:]
    /// The steps that wait for the cancel of a request, by serial.
    private var untilCancelled: [UInt32: [(request: MockServer.Received, rest: ArraySlice<Reaction.Step>)]] = [:]

    init(core: MockServerCore) {
        self.core = core
        self.format = core.format
        self.forge = FrameForge(direction: .response, format: core.format)
        // Without limits, so that everything that can be decoded is recorded.
        self.decoder = FrameDecoder(
            direction: .request,
            format: core.format,
            maximumPayloadLength: .max,
            maximumCorruptRun: .max
        )
    }

    // MARK: The connection's life

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if context.channel.isActive { self.begin() }
    }

    func channelActive(context: ChannelHandlerContext) {
        self.begin()
    }

    private func begin() {
        guard self.number < 0, let (number, reaction) = self.core?.add(self) else { return }
        self.number = number
        self.perform(reaction, for: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.end()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end()
        self.context = nil
        self.outbox = []
        self.untilCancelled = [:]
        self.core?.remove(number: self.number)
        self.core = nil
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent else { return }
        self.end()
        if !self.isSilent { self.enqueue(.close) }
    }

    private func end() {
        guard !self.hasEnded, self.number >= 0 else { return }
        self.hasEnded = true
        self.core?.ended.append(self.number)
    }

    func closeNow() -> EventLoopFuture<Void>? {
        self.context?.channel.close()
    }

    // MARK: Reading

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.decoder.append(self.unwrapInboundIn(data))
        self.decodeFrames(context)
    }

    private func decodeFrames(_ context: ChannelHandlerContext) {
        do throws(FrameError) {
            while self.isReading, let output = try self.decoder.next() {
                switch output {
                case .frame(let frame): self.received(.init(connection: self.number, frame: frame, isCorrupt: false))
                case .corrupt(let frame, _):
                    self.received(.init(connection: self.number, frame: frame, isCorrupt: true))
                }
            }
        } catch {
            context.close(promise: nil)
        }
    }

    private func received(_ frame: MockServer.Received) {
        let request = self.opened(frame)
        self.core?.received.append(request)
        if let reaction = self.core?.reaction(to: request.type) {
            self.perform(reaction, for: request)
        } else if self.format.isHeartbeatRequest(type: request.type, serial: request.serial) {
            self.receivedHeartbeat(request)
        } else if request.type == FrameType.hello, request.serial == FrameSerial.hello, self.format.supportsHello {
            self.receivedHello(request)
        }
        if request.type == self.format.layout.cancel?.type,
            let waiting = self.untilCancelled.removeValue(forKey: request.serial)
        {
            for (request, rest) in waiting { self.proceed(rest, for: request) }
            self.flush()
        }
    }

    private func receivedHello(_ request: MockServer.Received) {
        guard let answer = self.core?.answer(toHello: request.body) else { return }
        self.agreement = answer.agreement
        self.decoder.agreedFlags = answer.agreement?.flags ?? 0
        self.perform(.answer(answer.payload, status: answer.status), for: request)
    }

    /// Opens the envelope of a frame with flags; returns the frame as it came if that fails.
    private func opened(_ received: MockServer.Received) -> MockServer.Received {
        guard let agreement = self.agreement, !received.isCorrupt, received.type & FrameType.allFlags != 0,
            let (frame, metadata) = try? Envelope.open(
                received.frame,
                agreedFlags: agreement.flags,
                maximumBodyLength: Frame.defaultMaximumPayloadLength
            )
        else { return received }
        var opened = received
        opened.isCompressed = received.type & FrameType.compressionFlag != 0
        opened.frame = frame
        guard let metadata else { return opened }
        opened.metadata = metadata.values
        opened.deadline = metadata.hasDeadline ? .milliseconds(Int64(clamping: metadata.deadline)) : nil
        opened.idempotencyKey = metadata.idempotencyKey.isEmpty ? nil : metadata.idempotencyKey
        return opened
    }

    private func receivedHeartbeat(_ request: MockServer.Received) {
        if let count = self.outstandingPings[request.serial] {
            self.outstandingPings[request.serial] = count > 1 ? count - 1 : nil
        } else if self.format.layout.heartbeat?.pingedBy != .server {
            self.perform(.status(.ok), for: request)
        }
    }

    // MARK: Reacting

    func perform(_ reaction: Reaction, for request: MockServer.Received?) {
        self.proceed(reaction.steps[...], for: request)
        self.flush()
    }

    /// Performs the steps up to one that waits. Output is gathered for ``flush()``.
    func proceed(_ steps: ArraySlice<Reaction.Step>, for request: MockServer.Received?) {
        guard let context = self.context, let core = self.core else { return }
        var rest = steps
        while let step = rest.popFirst() {
            switch step {
            case .send(let sending):
                self.send(sending, for: request)
            case .wait(let duration):
                let session = NIOLoopBound(self, eventLoop: context.eventLoop)
                core.after(duration) { [rest] in
                    session.value.proceed(rest, for: request)
                    session.value.flush()
                }
                return
            case .waitForCancel:
                guard let request else { return }
                self.untilCancelled[request.serial, default: []].append((request, rest))
                return
            case .hold(let gate):
                return core.hold(.init(session: self, request: request, rest: rest), at: gate)
            case .decide(let decide):
                if let request { rest = (decide(request).steps + rest)[...] }
            case .choose(let reactions):
                if let choice = core.choose(from: reactions) { rest = (choice.steps + rest)[...] }
            case .goSilent:
                self.isSilent = true
                self.setReading(false, context)
            case .stopReading:
                self.setReading(false, context)
            case .wakeUp:
                self.isSilent = false
                self.setReading(true, context)
            case .halfClose:
                self.append(.halfClose)
            case .close:
                self.append(.close)
            case .reset:
                self.append(.reset)
            }
        }
    }

    private func setReading(_ reads: Bool, _ context: ChannelHandlerContext) {
        let isWoken = reads && !self.isReading
        self.isReading = reads
        if isWoken { self.decodeFrames(context) }
        try? context.channel.syncOptions?.setOption(.autoRead, value: reads)
    }

    private func send(_ sending: Reaction.Sending, for request: MockServer.Received?) {
        guard let bytes = self.bytes(sending, for: request), !self.isSilent else { return }
        if let dribble = sending.dribble {
            self.append(.dribble(bytes, dribble))
        } else {
            self.append(.bytes(bytes))
        }
    }

    private func bytes(_ sending: Reaction.Sending, for request: MockServer.Received?) -> ByteBuffer? {
        var frame: Frame
        switch sending.source {
        case .raw(let bytes):
            var all = ByteBuffer()
            for _ in 0..<sending.copies { all.writeImmutableBuffer(bytes) }
            return all
        case .frame(let given):
            frame = given
        case .ping(let serial):
            let heartbeat = self.format.layout.heartbeat
            frame =
                self.format.serverPing
                ?? Frame(
                    type: heartbeat?.type ?? FrameType.heartbeat,
                    serial: heartbeat?.serverSerial ?? 0,
                    status: .ping
                )
            if let serial { frame.serial = serial }
            // If only clients ping, they do not treat this frame as a ping.
            if heartbeat?.pingedBy != .client { self.outstandingPings[frame.serial, default: 0] += sending.copies }
        case .push(let type, let body):
            let serial = self.format.layout.push?.serial ?? FrameSerial.push
            frame = Frame(type: type, serial: serial, payload: body)
        case .echo:
            guard let request else { return nil }
            frame = self.frame(answering: request, .ok, request.body)
        case .answer(let status, let body):
            guard let request, status == .ok || self.format.hasStatus else { return nil }
            frame = self.frame(answering: request, status, body)
        }
        if let serial = sending.serial { frame.serial = serial }
        if let sealed = sending.sealed(frame) { frame = sealed }
        var bytes = ByteBuffer()
        for _ in 0..<sending.copies { self.forge.append(frame, sending.flaws, to: &bytes) }
        return bytes
    }

    private func frame(answering request: MockServer.Received, _ status: Status, _ body: ByteBuffer) -> Frame {
        var frame = Frame(type: request.type, serial: request.serial, status: status, payload: body)
        frame.customFields = self.format.responseFields(answering: request.frame.customFields)
        return frame
    }

    // MARK: Writing

    private func enqueue(_ output: Output) {
        self.append(output)
        self.flush()
    }

    /// Appends to the outbox; consecutive bytes are joined.
    private func append(_ output: Output) {
        if case .bytes(let more) = output, case .bytes(var bytes)? = self.outbox.last {
            self.outbox.removeLast()
            bytes.writeImmutableBuffer(more)
            self.outbox.append(.bytes(bytes))
        } else {
            self.outbox.append(output)
        }
    }

    /// Writes the outbox, up to an item that takes time.
    func flush() {
        guard let context = self.context, !self.isDribbling else { return }
        while let output = self.outbox.popFirst() {
            switch output {
            case .bytes(let bytes):
                context.writeAndFlush(self.wrapOutboundOut(bytes), promise: nil)
            case .dribble(let bytes, let dribble):
                self.isDribbling = true
                return self.dribble(bytes, dribble)
            case .halfClose:
                context.close(mode: .output, promise: nil)
            case .close:
                self.close(context)
            case .reset:
                self.reset(context)
            }
        }
    }

    /// Closes after all writes: an empty write completes when all before it have.
    private func close(_ context: ChannelHandlerContext) {
        let channel = context.channel
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer())).whenComplete { _ in channel.close(promise: nil) }
    }

    private func reset(_ context: ChannelHandlerContext) {
        let channel = context.channel
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer())).whenComplete { _ in channel.resetAndClose() }
    }

    private func dribble(_ bytes: ByteBuffer, _ dribble: Reaction.Dribble) {
        guard let context = self.context else { return }
        var rest = bytes
        guard let chunk = rest.readSlice(length: min(dribble.bytes, rest.readableBytes)), chunk.readableBytes > 0,
            !self.isSilent
        else {
            self.isDribbling = false
            return self.flush()
        }
        let session = NIOLoopBound(self, eventLoop: context.eventLoop)
        context.writeAndFlush(self.wrapOutboundOut(chunk)).assumeIsolated().whenComplete { [rest] _ in
            if dribble.interval > .zero, rest.readableBytes > 0 {
                self.core?.after(dribble.interval) { session.value.dribble(rest, dribble) }
            } else {
                // In another turn, which avoids recursion: a write that succeeds at once completes at once.
                session.eventLoop.execute { session.value.dribble(rest, dribble) }
            }
        }
    }
}

extension MockServer.Reaction.Sending {
    /// Returns the frame in its envelope; nil if it needs none, or cannot have it.
    fileprivate func sealed(_ frame: Frame) -> Frame? {
        guard self.metadata != nil || self.isCompressed else { return nil }
        return try? Envelope.seal(
            frame,
            metadata: self.metadata.map { WireMetadata(values: $0) },
            compression: self.isCompressed ? CompressionPolicy(minimumLength: 0) : nil
        )
    }
}

extension Channel {
    /// Ends the connection with RST instead of FIN.
    func resetAndClose() {
        let lingers = (self as? any SocketOptionProvider)?.setSoLinger(linger(l_onoff: 1, l_linger: 0))
        guard let lingers else { return self.close(promise: nil) }
        lingers.whenComplete { _ in self.close(promise: nil) }
    }
}
