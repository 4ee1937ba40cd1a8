public import HHSocket
import NIOConcurrencyHelpers
public import NIOCore
import NIOPosix

/// A client for testing servers, which sends what the test says, right or wrong, and decodes the frames that come.
///
/// ```swift
/// let client = try await HostileClient(to: endpoint)
/// await client.perform(.request(101, serial: 50, "hello").corrupted())
/// #expect(try await client.response().status == .lostPacket)
/// ```
/// ``Attack`` has complete attacks, ready to run against a server.
///
/// It connects only once, sends no pings and answers none. The connection is closed with the last reference.
public final class HostileClient: Sendable {
    /// The outcome of an ``Act``.
    public enum Outcome: Sendable, Hashable {
        /// Everything was sent.
        case done
        /// The server read nothing for too long, or the Swift task was cancelled. The rest is lost, and with it the
        /// place in the stream.
        case stalled
        /// The server ended the connection, before the act or during it.
        case ended
    }

    /// The largest write, in bytes. More bytes are sent in several writes, so that a server which reads some of them
    /// does not look stalled.
    private static let largestWrite = 256 << 10

    private let channel: any Channel
    private let inbox: NIOLoopBound<Inbox>
    private let forge: FrameForge
    private let sleep: @Sendable (Duration) async throws -> Void

    /// Creates a client that is connected.
    ///
    /// - Parameters:
    ///   - endpoint: The server.
    ///   - format: The layout of frames; the standard format by default.
    ///   - reads: Whether it reads from the start, or only after ``Act/startReading``. True by default.
    ///   - tls: TLS, whose handshake is over when this returns; nil, the default, for none.
    ///   - receiveBuffer: The size of the system's receive buffer (`SO_RCVBUF`), in bytes. With a small one the server
    ///     soon notices that this client does not read. Nil, the default, for the system's choice.
    ///   - clock: The clock of delays; real time by default.
    /// - Throws: NIO's error if it cannot connect, or that of the handshake.
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
            // A handshake requires reading in any case.
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

    /// Performs an act, one step after the other.
    ///
    /// - Parameters:
    ///   - act: The act.
    ///   - time: The time for which the server may read none of our bytes before the act is given up; 60 s by default.
    /// - Returns: The outcome. A server that ends the connection of a hostile client is not an error.
    @discardableResult
    public func perform(_ act: Act, within time: Duration = .seconds(60)) async -> Outcome {
        var gathered = ByteBuffer()
        var outcome = Outcome.done
        for step in act.steps where outcome == .done {
            if case .send(let sending) = step, sending.dribble == nil {
                self.append(sending, to: &gathered)
                // More would not be sent in one write anyway.
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
            // The first of the two counts.
            deadline.cancel()
            switch result {
            case .success: promise.succeed(.done)
            case .failure: promise.succeed(.ended)
            }
        }
        return (try? await promise.futureResult.get()) ?? .ended
    }

    // MARK: Receiving

    /// Returns the next frame of the server.
    ///
    /// - Throws: ``NothingHappened`` if none comes in time (60 s by default), if the server has ended the connection
    ///   and all its frames were returned, or if the frame's checksum is wrong.
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

    /// Returns the next `count` frames of the server.
    ///
    /// - Throws: The errors of ``response(within:)``.
    public func responses(_ count: Int, within time: Duration = .seconds(60)) async throws -> [Frame] {
        var frames: [Frame] = []
        for _ in 0..<count { frames.append(try await self.response(within: time)) }
        return frames
    }

    /// Returns when the server has closed the connection, or its direction.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    public func ended(within time: Duration = .seconds(60)) async throws {
        let inbox = self.inbox
        try await self.channel.eventLoop.flatSubmit { inbox.value.ended(within: TimeAmount(time)) }.get()
    }

    /// The first bytes received: all, or at least the first 64 KiB, up to the end of a read.
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

        /// Makes the channel read once after each interval, until ``stopReadingSlowly()`` or the channel's end.
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
                // Any waiter may be the first to time out.
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
