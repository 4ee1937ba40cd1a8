public import HHSocket
import NIOConcurrencyHelpers
public import NIOCore
import NIOPosix

/// A client for testing servers: it sends what the test says, right or wrong, and takes what comes apart into frames.
///
/// ```swift
/// let client = try await HostileClient(to: endpoint)
/// await client.perform(.request(101, serial: 50, "hello").corrupted())
/// #expect(try await client.response().status == .lostPacket)
/// ```
/// ``Attack`` has whole attacks, ready to be run against a server.
///
/// It connects once and never again, pings nobody and answers no ping. The connection is closed with the last
/// reference.
public final class HostileClient: Sendable {
    /// How an ``Act`` ended.
    public enum Outcome: Sendable, Hashable {
        /// Everything left.
        case done
        /// The server took nothing for too long; the rest is lost, and with it the place in the stream.
        case stalled
        /// The server had ended the connection, or did meanwhile.
        case ended
    }

    /// More bytes leave in several writes, so that a server which takes some of them is not taken for one that takes
    /// none.
    private static let largestWrite = 256 << 10

    private let channel: any Channel
    private let inbox: NIOLoopBound<Inbox>
    private let forge: FrameForge
    private let sleep: @Sendable (Duration) async throws -> Void

    /// A client that is connected.
    ///
    /// - Parameters:
    ///   - endpoint: The server.
    ///   - format: How frames are laid out; the standard format by default.
    ///   - reads: Whether it reads by itself; otherwise not before ``Act/startReading``. True by default.
    ///   - tls: TLS, whose handshake is over when this returns; nil, the default: none.
    ///   - receiveBuffer: The size of the system's buffer for what has come and is not read yet (`SO_RCVBUF`), in
    ///     bytes. With a small one the server soon notices that this client does not read. Nil, the default: the
    ///     system's choice.
    ///   - clock: What delays are measured with; the real time by default.
    /// - Throws: NIO's error when it cannot connect, or the handshake's.
    public init(
        to endpoint: Endpoint,
        format: WireFormat = .standard,
        reads: Bool = true,
        tls: ClientTLS? = nil,
        receiveBuffer: Int? = nil,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let made = NIOLockedValueBox<(inbox: NIOLoopBound<Inbox>, handshake: EventLoopFuture<Void>?)?>(nil)
        self.forge = FrameForge(direction: .request, format: format)
        self.sleep = { try await clock.sleep(for: $0) }
        var bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.allowRemoteHalfClosure, value: true)
            // A handshake must be read in any case.
            .channelOption(.autoRead, value: reads || tls != nil)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let handshake = try tls?.start(on: channel, to: endpoint)
                    let inbox = Inbox(eventLoop: channel.eventLoop, format: format)
                    made.withLockedValue { $0 = (NIOLoopBound(inbox, eventLoop: channel.eventLoop), handshake) }
                    try channel.pipeline.syncOperations.addHandler(inbox)
                }
            }
        if let receiveBuffer {
            let length = SocketOptionValue(clamping: receiveBuffer)
            bootstrap = bootstrap.channelOption(.socketOption(.so_rcvbuf), value: length)
        }
        if let path = endpoint.unixPath {
            self.channel = try await bootstrap.connect(unixDomainSocketPath: path).get()
        } else {
            self.channel =
                try await bootstrap
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .connect(host: endpoint.host, port: endpoint.port)
                .get()
        }
        guard let (inbox, handshake) = made.withLockedValue({ $0 }) else { throw ChannelError.ioOnClosedChannel }
        self.inbox = inbox
        guard let handshake else { return }
        try await handshake.get()
        if !reads { try await self.channel.setOption(.autoRead, value: false).get() }
    }

    deinit {
        self.channel.close(promise: nil)
    }

    /// The client's own address.
    public var localAddress: SocketAddress? { self.channel.localAddress }

    // MARK: Sending

    /// Does this, one step after the other.
    ///
    /// - Parameters:
    ///   - act: What to do.
    ///   - time: How long the server may take none of our bytes before the act is given up; 60 s by default.
    /// - Returns: How it ended. That a server ends the connection of a hostile client is no error here.
    @discardableResult
    public func perform(_ act: Act, within time: Duration = .seconds(60)) async -> Outcome {
        var gathered = ByteBuffer()
        var outcome = Outcome.done
        for step in act.steps where outcome == .done {
            if case .send(let sending) = step, sending.dribble == nil {
                self.append(sending, to: &gathered)
                // More would not leave in one write anyway.
                if gathered.readableBytes >= Self.largestWrite {
                    outcome = await self.write(&gathered, within: time)
                }
                continue
            }
            outcome = await self.write(&gathered, within: time)
            guard outcome == .done else { break }
            outcome = await self.perform(step, within: time)
        }
        return outcome == .done ? await self.write(&gathered, within: time) : outcome
    }

    private func perform(_ step: Act.Step, within time: Duration) async -> Outcome {
        switch step {
        case .send(let sending):
            return await self.dribble(sending, within: time)
        case .wait(let duration):
            return (try? await self.sleep(duration)) == nil ? .stalled : .done
        case .stopReading:
            return await self.outcome(of: self.setReading(false), within: time)
        case .startReading:
            return await self.outcome(of: self.setReading(true), within: time)
        case .readSlowly(let bytes, let interval):
            return await self.outcome(of: self.readSlowly(bytes, every: interval), within: time)
        case .halfClose:
            return await self.outcome(of: self.channel.close(mode: .output), within: time)
        case .close:
            return await self.outcome(of: self.channel.close(), within: time)
        case .reset:
            self.channel.resetAndClose()
            return await self.outcome(of: self.channel.closeFuture, within: time)
        }
    }

    /// Ends slow reading too.
    private func setReading(_ reads: Bool) -> EventLoopFuture<Void> {
        let (channel, inbox) = (self.channel, self.inbox)
        return channel.eventLoop.flatSubmit {
            inbox.value.stopReadingSlowly()
            return channel.setOption(.autoRead, value: reads)
        }
    }

    private func readSlowly(_ bytes: Int, every interval: Duration) -> EventLoopFuture<Void> {
        let (channel, inbox) = (self.channel, self.inbox)
        return channel.eventLoop.flatSubmit {
            inbox.value.stopReadingSlowly()
            return channel.setOption(.autoRead, value: false)
                .and(channel.setOption(.maxMessagesPerRead, value: 1))
                .and(channel.setOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: bytes)))
                .map { _ in inbox.value.readSlowly(from: channel, every: TimeAmount(interval)) }
        }
    }

    private func append(_ sending: Act.Sending, to buffer: inout ByteBuffer) {
        for _ in 0..<sending.copies {
            switch sending.source {
            case .raw(let bytes):
                buffer.writeImmutableBuffer(bytes)
            case .frame(let frame):
                self.forge.append(frame, sending.flaws, to: &buffer)
            case .cancel(let serial):
                if let frame = self.forge.format.cancel(serial: serial) {
                    self.forge.append(frame, sending.flaws, to: &buffer)
                }
            case .ping(let serial):
                let heartbeat = self.forge.format.layout.heartbeat
                let frame = Frame(
                    type: heartbeat?.type ?? FrameType.heartbeat,
                    serial: serial ?? heartbeat?.clientSerial ?? FrameSerial.clientPing
                )
                self.forge.append(frame, sending.flaws, to: &buffer)
            case .requests(var frame, let serials):
                for serial in serials {
                    frame.serial = serial
                    self.forge.append(frame, sending.flaws, to: &buffer)
                }
            }
        }
    }

    private func dribble(_ sending: Act.Sending, within time: Duration) async -> Outcome {
        guard let dribble = sending.dribble else { return .done }
        var bytes = ByteBuffer()
        self.append(sending, to: &bytes)
        var outcome = Outcome.done
        while outcome == .done, var chunk = bytes.readSlice(length: min(dribble.bytes, bytes.readableBytes)),
            chunk.readableBytes > 0
        {
            outcome = await self.write(&chunk, within: time)
            if outcome == .done, dribble.interval > .zero, bytes.readableBytes > 0,
                (try? await self.sleep(dribble.interval)) == nil
            {
                outcome = .stalled
            }
        }
        return outcome
    }

    private func write(_ bytes: inout ByteBuffer, within time: Duration) async -> Outcome {
        while bytes.readableBytes > 0, let piece = bytes.readSlice(length: min(Self.largestWrite, bytes.readableBytes))
        {
            let outcome = await self.outcome(of: self.channel.writeAndFlush(piece), within: time)
            guard outcome == .done else { return outcome }
        }
        return .done
    }

    private func outcome(of future: EventLoopFuture<Void>, within time: Duration) async -> Outcome {
        let promise = self.channel.eventLoop.makePromise(of: Outcome.self)
        let deadline = self.channel.eventLoop.scheduleTask(in: TimeAmount(time)) { promise.succeed(.stalled) }
        future.whenComplete { result in
            // Of the two the first counts.
            deadline.cancel()
            switch result {
            case .success: promise.succeed(.done)
            case .failure: promise.succeed(.ended)
            }
        }
        return (try? await promise.futureResult.get()) ?? .ended
    }

    // MARK: Receiving

    /// The next frame of the server.
    ///
    /// - Throws: ``NothingHappened`` when none comes in time (60 s by default), when the server has ended the
    ///   connection and all it sent was taken, or when the frame's checksum is wrong.
    public func response(within time: Duration = .seconds(60)) async throws -> Frame {
        let inbox = self.inbox
        let output = try await self.channel.eventLoop.flatSubmit { inbox.value.next(within: TimeAmount(time)) }.get()
        switch output {
        case .frame(let frame): return frame
        case .corrupt(let frame, let mismatch):
            throw NothingHappened(
                description: "\(frame) came with checksum \(mismatch.received) instead of \(mismatch.computed)"
            )
        case nil: throw NothingHappened(description: "waited for a frame, and the server ended the connection")
        }
    }

    /// The next `count` frames of the server.
    ///
    /// - Throws: As ``response(within:)``.
    public func responses(_ count: Int, within time: Duration = .seconds(60)) async throws -> [Frame] {
        var frames: [Frame] = []
        for _ in 0..<count { frames.append(try await self.response(within: time)) }
        return frames
    }

    /// Returns when the server has ended the connection, or its direction of it.
    ///
    /// - Throws: ``NothingHappened`` when that does not happen in time, 60 s by default.
    public func ended(within time: Duration = .seconds(60)) async throws {
        let inbox = self.inbox
        try await self.channel.eventLoop.flatSubmit { inbox.value.ended(within: TimeAmount(time)) }.get()
    }

    /// The first bytes received: all, or the first 64 KiB and what came with the last of them.
    public var receivedBytes: [UInt8] {
        get async throws {
            let inbox = self.inbox
            return try await self.channel.eventLoop.submit { Array(inbox.value.first.readableBytesView) }.get()
        }
    }

    // MARK: On the event loop

    private final class Inbox: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private struct Waiter<Value: Sendable> {
            var promise: EventLoopPromise<Value>
            var deadline: Scheduled<Void>
        }

        private let eventLoop: any EventLoop
        private var decoder: FrameDecoder
        private var outputs = CircularBuffer<FrameDecoder.Output>()
        private(set) var first = ByteBuffer()
        private var hasEnded = false
        private var slowReading: RepeatedTask?
        private var waiting: [Waiter<FrameDecoder.Output?>] = []
        private var waitingForEnd: [Waiter<Void>] = []

        init(eventLoop: any EventLoop, format: WireFormat) {
            self.eventLoop = eventLoop
            self.decoder = FrameDecoder(
                direction: .response,
                format: format,
                maximumPayloadLength: .max,
                maximumCorruptRun: .max
            )
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            if self.first.readableBytes < 64 << 10 { self.first.writeImmutableBuffer(bytes) }
            self.decoder.append(bytes)
            do throws(FrameError) {
                while let output = try self.decoder.next() { self.outputs.append(output) }
            } catch {
                self.end()
            }
            self.serve()
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .inputClosed? = event as? ChannelEvent { self.end() }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.stopReadingSlowly()
            self.end()
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { self.end() }

        private func end() {
            self.hasEnded = true
            self.serve()
        }

        /// Asks the channel for one read after each interval, until that is stopped or the channel is closed.
        func readSlowly(from channel: any Channel, every interval: TimeAmount) {
            guard channel.isActive else { return }
            self.slowReading = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
                channel.read()
            }
        }

        func stopReadingSlowly() {
            self.slowReading?.cancel()
            self.slowReading = nil
        }

        private func serve() {
            while !self.waiting.isEmpty, self.hasEnded || !self.outputs.isEmpty {
                let waiter = self.waiting.removeFirst()
                waiter.deadline.cancel()
                waiter.promise.succeed(self.outputs.popFirst())
            }
            guard self.hasEnded else { return }
            for waiter in self.waitingForEnd {
                waiter.deadline.cancel()
                waiter.promise.succeed()
            }
            self.waitingForEnd = []
        }

        func next(within time: TimeAmount) -> EventLoopFuture<FrameDecoder.Output?> {
            let promise = self.eventLoop.makePromise(of: FrameDecoder.Output?.self)
            let deadline = self.eventLoop.assumeIsolated().scheduleTask(in: time) {
                // The oldest waits longest, and all wait equally long: it is the first.
                if let index = self.waiting.firstIndex(where: { $0.promise.futureResult === promise.futureResult }) {
                    self.waiting.remove(at: index)
                }
                promise.fail(NothingHappened(description: "waited \(Duration(time)) for a frame"))
            }
            self.waiting.append(Waiter(promise: promise, deadline: deadline))
            self.serve()
            return promise.futureResult
        }

        func ended(within time: TimeAmount) -> EventLoopFuture<Void> {
            let promise = self.eventLoop.makePromise(of: Void.self)
            let deadline = self.eventLoop.assumeIsolated().scheduleTask(in: time) {
                self.waitingForEnd.removeAll { $0.promise.futureResult === promise.futureResult }
                promise.fail(NothingHappened(description: "waited \(Duration(time)) for the end of the connection"))
            }
            self.waitingForEnd.append(Waiter(promise: promise, deadline: deadline))
            self.serve()
            return promise.futureResult
        }
    }
}
