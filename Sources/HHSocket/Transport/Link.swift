import NIOCore
import NIOSSL

/// One established connection: bytes to frames, frames to bytes, and the heartbeat. Lives on the socket thread.
///
/// What a turn of the loop sends is gathered and leaves in one system call, by ``flush()``.
final class Link: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Whom the link tells. All on the socket thread.
    protocol Owner: AnyObject {
        /// Bytes have come, and what is in them comes next. Who takes frames of the connection that is ready; nil while
        /// it is not, when all go to the link's owner.
        func linkWillRead(_ link: Link) -> (any FrameConsumer)?
        /// What was in those bytes has been handed over. There may be more, or ``linkFinishedReading(_:)`` comes next, while
        /// the link is open.
        func linkDidRead(_ link: Link, isOpen: Bool)
        func linkReceived(_ frame: Frame, on link: Link)
        func linkReceived(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on link: Link)
        /// During the handshake a frame came that may be the answer to hello. False if nobody waits for that.
        func linkReceived(hello frame: Frame, on link: Link) -> Bool
        /// A read ended inside of this frame.
        func linkIsReceiving(_ arriving: FrameDecoder.Arriving, on link: Link)
        /// The frames of all that there was to read have been handed over.
        func linkFinishedReading(_ link: Link)
        /// Does what the channel or a timer asks for in a turn of the loop, with its time and its callbacks.
        func linkTurn(_ body: () -> Void)
        func linkReceivedGoAway(_ frame: Frame, on link: Link)
        func linkFrameWillLeave(type: UInt32, serial: UInt32, on link: Link) -> Bool
        func linkProgressed(type: UInt32, serial: UInt32, payloadBytes: Int)
        /// All that could leave has left for now. True if more was sent at once, by ``Link/send(_:_:)``.
        func linkFlushed(_ link: Link) -> Bool
        /// A byte has come after ``Link/probe(isUrgent:)``, whether or not it answers a ping.
        func linkIsAlive(_ link: Link)
        /// A ping of ours was answered, or will never be.
        func linkHeartbeat(_ outcome: HeartbeatMonitor.Outcome, on link: Link)
        /// The connection ended without our doing. Called once, and not after ``Link/close()``.
        func linkEnded(_ link: Link, _ error: SocketError)
    }

    /// So many pings that come during the handshake are answered after it.
    static let maximumHeldAnswers = 16
    /// What the channel buffers before it takes no more. With what was gathered already when that happens, two payloads that
    /// are not sliced at most, it is 256 KiB: no more than one read.
    static let channelWaterMarks = ChannelOptions.Types.WriteBufferWaterMark(low: 64 << 10, high: 128 << 10)
    /// How long a closing connection may take to send what is queued and to see the peer's end.
    static let lingerTime = TimeAmount.seconds(1)

    /// A payload that is leaving slice by slice.
    private struct Outgoing {
        var frame: Frame
        var sent = 0
    }

    private enum Phase { case open, closing, ended }

    let id: ConnectionID
    let endpoint: Endpoint
    private let configuration: SocketConfiguration
    /// Until the channel is gone.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var owner: (any Owner)?
    private let traffic: Traffic
    private let format: WireFormat
    private let encoder: FrameEncoder
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var decoder: FrameDecoder
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var context: ChannelHandlerContext?
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var phase = Phase.open
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var gathered = ByteBuffer()
    /// Whether `gathered` is the channel's by now.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var gatheredIsHandedOver = false
    /// How many frames begin in `gathered`.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var framesGathered = 0
    /// Whether anything was written to the channel since the last flush.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var needsFlush = false
    private var isFlushing = false
    /// Whether the channel takes more, as far as it has said.
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var isWritable = true
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var queue: FrameQueue
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var outgoing: Outgoing?
    /// Nothing but the handshake's frames leaves before ``start()``: our answers to pings wait for it.
    private var isHandshaking = true
    private var heldAnswers: [Frame] = []
    private var hasReceived = false
    /// Whether it was asked whether the server lives, and no byte has come since.
    private var isDoubted = false
    #if !DEBUG
    @exclusivity(unchecked)
    #endif
    private var heartbeat: HeartbeatMonitor?
    private let sleep = SleepMeter()
    private var timer: Scheduled<Void>?
    /// Whether the channel takes no more, and what it has gets anywhere.
    private var isBlocked = false
    private var stall = StallWatch()
    private var closedPromise: EventLoopPromise<Void>?

    init(
        id: ConnectionID,
        endpoint: Endpoint,
        configuration: SocketConfiguration,
        customFields: [UInt8]?,
        traffic: Traffic,
        owner: any Owner
    ) {
        self.id = id
        self.endpoint = endpoint
        self.configuration = configuration
        self.traffic = traffic
        self.owner = owner
        self.format = configuration.wireFormat
        self.encoder = FrameEncoder(direction: .request, format: self.format, customFields: customFields)
        self.queue = FrameQueue(self.encoder)
        self.decoder = FrameDecoder(
            direction: .response,
            format: self.format,
            maximumPayloadLength: configuration.maximumPayloadLength,
            maximumCorruptRun: configuration.maximumCorruptRun
        )
    }

    /// Which flags the types of frames may have that come from now on, where it is asked whether they make sense.
    func expectFlags(_ flags: UInt32) {
        self.decoder.agreedFlags = flags
    }

    // MARK: Sending

    /// What became of a frame that was given to ``send(_:_:)``.
    enum SendResult {
        /// It leaves with the next flush.
        case leaving
        /// It waits for the peer to read.
        case queued
        /// Too much waits already, or the connection is closing.
        case refused
    }

    func send(_ frame: Frame, _ priority: FramePriority = .default) -> SendResult {
        guard self.phase == .open, let context = self.context else { return .refused }
        if self.isWritable, self.outgoing == nil, self.queue.isEmpty {
            self.begin(frame, context)
            if self.gathered.readableBytes >= Frame.unslicedLength { self.writeGathered(context) }
            return .leaving
        }
        guard self.queue.append(frame, priority, limit: self.configuration.maximumQueuedBytes) else { return .refused }
        return .queued
    }

    /// Whether ``sendAtOnce(type:serial:_:)`` may be called with a payload of `length` bytes.
    func canSendAtOnce(length: Int) -> Bool {
        self.isWritable && self.phase == .open && self.outgoing == nil && length <= Frame.unslicedLength
            && self.queue.isEmpty && self.encoder.isStandard && self.context != nil
    }

    /// Sends a frame of the standard format with the next flush, without making one.
    func sendAtOnce(type: UInt32, serial: UInt32, _ payload: ByteBuffer) {
        self.prepareGathered()
        self.encoder.encode(type: type, serial: serial, payload, into: &self.gathered)
        self.framesGathered += 1
        if self.gathered.readableBytes >= Frame.unslicedLength, let context = self.context {
            self.writeGathered(context)
        }
    }

    /// Hands everything gathered to the kernel, as far as the peer's window goes.
    func flush() {
        // Writing and flushing change the channel's writability, which leads back here.
        guard let context = self.context, self.phase != .ended, !self.isFlushing else { return }
        self.isFlushing = true
        defer { self.isFlushing = false }
        repeat { self.drain(context) } while self.phase == .open && self.owner?.linkFlushed(self) ?? false
        self.noteBlocked(context)
    }

    /// Flushes if so much was gathered that it has been given to the channel, which takes little before it takes no more.
    @inline(__always)
    func flushIfFull() {
        if self.needsFlush { self.flush() }
    }

    private func drain(_ context: ChannelHandlerContext) {
        repeat {
            self.pump(context)
            self.writeGathered(context)
            guard self.needsFlush else { return }
            self.needsFlush = false
            self.heartbeat?.bytesSent(now: .now())
            context.flush()
        } while self.isWritable && !(self.queue.isEmpty && self.outgoing == nil)
    }

    /// What waits for the channel to take it, in bytes on the wire: what is measured by the water marks. The channel's own
    /// buffer comes on top, ``channelWaterMarks``.
    private var waitingBytes: Int {
        self.queue.bytes + (self.outgoing.map { $0.frame.payload.readableBytes - $0.sent } ?? 0)
    }

    /// Whether a frame of `length` bytes on the wire stays within the high-water mark.
    func hasRoom(for length: Int) -> Bool {
        let waiting = self.waitingBytes
        return waiting == 0 || length <= self.configuration.writePolicy.highWaterMark - waiting
    }

    /// Whether so little waits that those who wait for room may have it.
    var isBelowLowWaterMark: Bool { self.waitingBytes <= self.configuration.writePolicy.lowWaterMark }

    /// What was sent and has not been handed to the kernel yet, in bytes on the wire; zero where that is no more than what
    /// the channel takes without being asked.
    var queuedBytes: Int {
        guard let context = self.context, !self.isWritable || self.waitingBytes > 0 else { return 0 }
        let pending = try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
        let gathered = self.gatheredIsHandedOver ? 0 : self.gathered.readableBytes
        return self.waitingBytes + gathered + (pending ?? 0)
    }

    /// Moves waiting frames and slices into the channel while it takes them.
    private func pump(_ context: ChannelHandlerContext) {
        while self.isWritable {
            if self.outgoing != nil {
                self.writeSlice(context)
            } else if let frame = self.queue.popFirst() {
                guard self.owner?.linkFrameWillLeave(type: frame.type, serial: frame.serial, on: self) ?? true else {
                    continue
                }
                self.begin(frame, context)
                if self.gathered.readableBytes >= Frame.unslicedLength { self.writeGathered(context) }
            } else {
                return
            }
        }
    }

    /// Makes room for a frame among those gathered.
    private func prepareGathered() {
        guard self.gatheredIsHandedOver else { return }
        self.gatheredIsHandedOver = false
        // Used again, if the channel has let go of it; else there is another one now.
        self.gathered.clear()
    }

    private func begin(_ frame: Frame, _ context: ChannelHandlerContext) {
        self.framesGathered += 1
        self.prepareGathered()
        if frame.payload.readableBytes <= Frame.unslicedLength {
            self.encoder.encode(frame, into: &self.gathered)
        } else {
            self.encoder.encodeHeader(of: frame, into: &self.gathered)
            self.outgoing = Outgoing(frame: frame)
        }
    }

    private func writeSlice(_ context: ChannelHandlerContext) {
        guard var outgoing = self.outgoing else { return }
        let payload = outgoing.frame.payload
        let length = min(Frame.unslicedLength, payload.readableBytes - outgoing.sent)
        if let slice = payload.getSlice(at: payload.readerIndex + outgoing.sent, length: length), length > 0 {
            self.writeGathered(context)
            self.traffic.bytesSent += length
            context.write(self.wrapOutboundOut(slice), promise: nil)
            self.needsFlush = true
            outgoing.sent += length
        }
        if outgoing.sent == payload.readableBytes {
            self.prepareGathered()
            self.encoder.encodeTrailer(of: outgoing.frame, into: &self.gathered)
            self.outgoing = nil
        } else {
            self.outgoing = outgoing
        }
        self.owner?.linkProgressed(
            type: outgoing.frame.type,
            serial: outgoing.frame.serial,
            payloadBytes: outgoing.sent
        )
    }

    private func writeGathered(_ context: ChannelHandlerContext) {
        self.traffic.framesSent += self.framesGathered
        self.framesGathered = 0
        guard !self.gatheredIsHandedOver, self.gathered.readableBytes > 0 else { return }
        self.traffic.bytesSent += self.gathered.readableBytes
        context.write(self.wrapOutboundOut(self.gathered), promise: nil)
        self.gatheredIsHandedOver = true
        self.needsFlush = true
    }

    private func noteBlocked(_ context: ChannelHandlerContext) {
        if self.isWritable {
            self.unblock()
        } else if !self.isBlocked {
            self.isBlocked = true
            _ = self.isStalled(context, now: .now())
            self.armTimer(context)
        }
    }

    private func unblock() {
        guard self.isBlocked else { return }
        self.isBlocked = false
        self.stall.stop()
    }

    private var stallWindow: TimeAmount { TimeAmount(clamping: self.configuration.writeStallTimeout) }

    private func isStalled(_ context: ChannelHandlerContext, now: NIODeadline) -> Bool {
        self.stall.isStalled(
            isWaiting: self.isBlocked,
            passed: self.passedBytes(context),
            within: self.stallWindow,
            now: now
        )
    }

    /// What has reached the peer, as far as the system tells; else what the system has taken.
    private func passedBytes(_ context: ChannelHandlerContext) -> Int {
        if let acknowledged = AcknowledgedBytes.count(of: context.channel) { return acknowledged }
        let pending = try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
        return self.traffic.bytesSent - (pending ?? 0)
    }

    // MARK: Closing

    /// Ends the connection by choice: what is queued leaves first, for a second at most, and nothing more is read.
    /// The future completes when the channel is gone.
    @discardableResult
    func close() -> EventLoopFuture<Void>? {
        if let promise = self.closedPromise { return promise.futureResult }
        guard let context = self.context, self.phase != .ended else { return nil }
        let promise = context.eventLoop.makePromise(of: Void.self)
        self.closedPromise = promise
        self.phase = .closing
        self.timer?.cancel()
        // Its end is behind all that the peer has sent, which is thrown away from here on.
        self.setAutoRead(true, context)
        self.flush()
        // Half-closing lets the peer read everything before it sees the end; closing at once could reset the
        // connection and take back what it has not read yet. The peer's own end then closes the channel.
        let channel = context.channel
        if self.queue.isEmpty && self.outgoing == nil { context.close(mode: .output, promise: nil) }
        context.eventLoop.scheduleTask(in: Self.lingerTime) { channel.close(promise: nil) }
        return promise.futureResult
    }

    private func end(_ error: SocketError, _ context: ChannelHandlerContext) {
        let wasOpen = self.phase == .open
        if wasOpen { self.reportHeartbeatLost() }
        self.finish()
        context.close(promise: nil)
        if wasOpen { self.owner?.linkEnded(self, error) }
    }

    private func reportHeartbeatLost() {
        if let outcome = self.heartbeat?.connectionLost() { self.owner?.linkHeartbeat(outcome, on: self) }
    }

    private func finish() {
        self.phase = .ended
        self.timer?.cancel()
        self.timer = nil
        self.queue.removeAll()
        self.outgoing = nil
    }

    // MARK: Reading

    /// Takes no more bytes from the network than what this read still brings, so that the peer has to wait; the heartbeat's
    /// clock stands still. That the peer closes or resets the connection is noticed where the kernel tells it, and what had
    /// arrived by then is delivered.
    func suspendReading() {
        guard let context = self.context, self.phase == .open else { return }
        self.heartbeat?.suspendReading()
        self.setAutoRead(false, context)
        self.armTimer(context)
    }

    func resumeReading() {
        guard let context = self.context, self.phase == .open else { return }
        self.setAutoRead(true, context)
        guard self.perform(self.heartbeat?.resumeReading(now: .now()), context) else { return }
        self.armTimer(context)
    }

    /// Switched on it begins to read, in another turn of the loop.
    private func setAutoRead(_ isOn: Bool, _ context: ChannelHandlerContext) {
        // Fails only where the channel is closed already.
        _ = context.channel.setOption(.autoRead, value: isOn)
    }

    // MARK: Timer

    private func armTimer(_ context: ChannelHandlerContext) {
        guard self.phase == .open else { return }
        var deadline = NIODeadline.distantFuture
        if let heartbeat = self.heartbeat { deadline = heartbeat.nextTick(now: .now()) }
        if let look = self.stall.nextLook(within: self.stallWindow) { deadline = min(deadline, look) }
        self.timer?.cancel()
        guard deadline < .distantFuture else { return }
        self.timer = context.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) {
            self.owner?.linkTurn { self.timerFired() }
        }
    }

    private func timerFired() {
        guard let context = self.context, self.phase == .open else { return }
        let now = NIODeadline.now()
        if self.isBlocked {
            guard !self.isStalled(context, now: now) else {
                let window = self.configuration.writeStallTimeout
                let rate = "less than \(StallWatch.minimumRate) bytes a second"
                return self.end(self.lost("the server took \(rate) for \(window) (writeStallTimeout)"), context)
            }
            self.heartbeat?.writeIsBlocked(now: now)
        }
        guard self.perform(self.heartbeat?.tick(now: now, slept: self.sleep.total), context) else { return }
        self.armTimer(context)
    }

    /// False if the connection has ended.
    private func perform(_ action: HeartbeatMonitor.Action?, _ context: ChannelHandlerContext) -> Bool {
        switch action {
        case .ping:
            if var ping = self.format.clientPing {
                if let payload = self.configuration.heartbeat?.payload { ping.payload = payload }
                _ = self.send(ping, .control)
            }
            self.flush()
        case .peerIsDead(let silence):
            let verb = self.heartbeat?.pings == true ? "answered" : "sent"
            self.end(self.lost("the server \(verb) no heartbeat, silent for \(Duration(silence))"), context)
            return false
        case nil:
            break
        }
        return true
    }

    // MARK: Heartbeat

    /// Asks at once whether the server lives, where it can be asked. The owner is told by ``Owner/linkIsAlive(_:)``, and what
    /// became of the ping by ``Owner/linkHeartbeat(_:on:)``.
    ///
    /// - Parameter isUrgent: Whether one unanswered ping is enough to take it for dead.
    func probe(isUrgent: Bool) {
        guard let context = self.context, self.phase == .open else { return }
        self.isDoubted = true
        guard self.perform(self.heartbeat?.probe(now: .now(), misses: isUrgent ? 0 : nil), context) else { return }
        self.armTimer(context)
    }

    /// No pings, and no death for the lack of answers.
    func pauseHeartbeat() {
        self.heartbeat?.pause()
        if let context = self.context { self.armTimer(context) }
    }

    func resumeHeartbeat() {
        self.heartbeat?.resume(now: .now())
        if let context = self.context { self.armTimer(context) }
    }

    func setHeartbeatInterval(_ interval: Duration) {
        guard self.heartbeat != nil, let context = self.context else { return }
        self.heartbeat?.setInterval(interval)
        self.armTimer(context)
    }

    private func lost(
        _ reason: String,
        underlying: (any Error)? = nil,
        _ code: SocketError.Code = .connectionLost
    ) -> SocketError {
        SocketError(
            code,
            message: "the connection to \(self.endpoint) was lost: \(reason)",
            underlying: underlying,
            endpoint: self.endpoint,
            delivery: .sentUnknown
        )
    }

    // MARK: Channel events

    /// What may help to understand why the server closed the connection.
    private func circumstance(_ unfinished: Int) -> String {
        if unfinished > 0 { return " in the middle of a frame, after \(unfinished) bytes of it" }
        if self.configuration.tls != nil, !self.hasReceived {
            return " without a word; one that wants another client certificate (ClientTLS.identity) may do so"
        }
        return ""
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        self.owner = nil
        self.closedPromise?.succeed()
    }

    /// Called once the connection is ready: from now on time counts.
    ///
    /// - Parameter interval: The heartbeat's; nil where there is none.
    func start(heartbeatInterval interval: Duration?) {
        guard let context = self.context else { return }
        self.isHandshaking = false
        for answer in self.heldAnswers { _ = self.send(answer, .control) }
        self.heldAnswers = []
        // In a format without heartbeats nobody pings, and silence tells nothing.
        if let policy = self.configuration.heartbeat, let interval, self.format.layout.heartbeat != nil {
            self.heartbeat = HeartbeatMonitor(
                policy,
                interval: interval,
                canPing: self.format.clientPing != nil,
                now: .now()
            )
        }
        self.armTimer(context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard self.phase == .open, let owner = self.owner else { return }
        let consumer = owner.linkWillRead(self)
        if let outcome = self.heartbeat?.bytesReceived(now: .now()) { owner.linkHeartbeat(outcome, on: self) }
        self.hasReceived = true
        if self.isDoubted {
            self.isDoubted = false
            owner.linkIsAlive(self)
        }
        let bytes = self.unwrapInboundIn(data)
        self.traffic.bytesReceived += bytes.readableBytes
        self.decoder.append(bytes)
        var frames = 0
        do throws(FrameError) {
            var frame = Frame(type: 0, serial: 0)
            reading: while self.phase == .open {
                if let consumer {
                    frames += self.deliver(to: consumer)
                    guard self.phase == .open else { break reading }
                }
                switch try self.decoder.next(into: &frame) {
                case .nothing: break reading
                case .sound: self.received(frame)
                case .corrupt(let mismatch): self.owner?.linkReceived(corrupt: frame, mismatch, on: self)
                }
                frames += 1
            }
        } catch {
            self.end(self.lost("\(error)", underlying: error, .protocolViolation), context)
        }
        self.traffic.framesReceived += frames
        owner.linkDidRead(self, isOpen: self.phase == .open)
    }

    /// Hands over frames as long as they are what nearly all are: answers and pushes in the standard format, whole and
    /// sound. Returns how many.
    private func deliver(to consumer: any FrameConsumer) -> Int {
        var frames = 0
        while self.phase == .open, let header = self.decoder.soundHeader(), !self.format.isControlType(header.type) {
            consumer.received(header, self.decoder.takePayload(of: header), on: self.id)
            frames += 1
            self.flushIfFull()
        }
        return frames
    }

    private func received(_ frame: Frame) {
        guard self.format.isControlType(frame.type) else {
            self.owner?.linkReceived(frame, on: self)
            return
        }
        if self.isHandshaking, frame.type == FrameType.hello, frame.serial == FrameSerial.hello,
            self.owner?.linkReceived(hello: frame, on: self) ?? false
        {
            return
        }
        if self.format.isGoAway(frame) { self.owner?.linkReceivedGoAway(frame, on: self) }
        // A heartbeat that is no ping answers one of ours. A refused answer means that the server does not read: the
        // write-stall timeout deals with that.
        guard self.format.isServerPing(frame) else { return }
        let answer = Frame(type: frame.type, serial: frame.serial)
        guard self.isHandshaking else {
            _ = self.send(answer, .control)
            return
        }
        if self.heldAnswers.count < Self.maximumHeldAnswers { self.heldAnswers.append(answer) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if self.phase == .open {
            if let arriving = self.decoder.arriving(), !self.format.isControlType(arriving.type) {
                self.owner?.linkIsReceiving(arriving, on: self)
            }
            self.owner?.linkFinishedReading(self)
        }
        self.flush()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.isWritable = context.channel.isWritable
        guard self.isWritable else { return }
        self.unblock()
        // One that flushes goes on by itself.
        guard !self.isFlushing else { return }
        if let owner = self.owner { owner.linkTurn { self.flush() } } else { self.flush() }
        if self.phase == .closing, self.queue.isEmpty, self.outgoing == nil {
            context.close(mode: .output, promise: nil)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // Without a last word of TLS: frames have lengths, so nothing is taken for complete that is not. What follows is an
        // end like that of any other connection.
        if case NIOSSLError.uncleanShutdown = error { return }
        // In TLS 1.3 a server may reject our certificate when the handshake is over for us.
        if let failure = TLSFailure(error) {
            return self.end(self.lost(failure.description, underlying: failure, .tlsFailed), context)
        }
        let reason = (error as? IOError)?.systemReason ?? "\(error)"
        self.end(self.lost(reason, underlying: error), context)
    }

    func channelInactive(context: ChannelHandlerContext) {
        let wasOpen = self.phase == .open
        let unfinished = self.decoder.bufferedBytes
        if wasOpen { self.reportHeartbeatLost() }
        self.finish()
        if wasOpen {
            self.owner?.linkEnded(self, self.lost("the server closed it\(self.circumstance(unfinished))"))
        }
        context.fireChannelInactive()
    }
}
