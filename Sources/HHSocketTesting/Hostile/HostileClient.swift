// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOConcurrencyHelpers
package import NIOCore
import NIOPosix

/// A client for testing servers, which sends what the test specifies, valid or not, and decodes the frames that it
/// receives.
///
/// ```swift
/// let client = try await HostileClient(to: endpoint)
/// await client.perform(.request(101, serial: 50, "hello").corrupted())
/// #expect(try await client.response().status == .lostPacket)
/// ```
///
/// Many clients that perform an ``Act`` each are an attack on a server; <doc:Testing> has examples.
///
/// If the server's address is the URL of a WebSocket, the client opens it, offers the subprotocol of its frames, and
/// sends them in binary messages:
///
/// ```swift
/// let client = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:7001/chat"))
/// await client.perform(.text("hello").then(.webSocketFrame(.ping().unmasked())))
/// #expect(try await client.message().text == "hello")
/// #expect(try await client.message().closeCode == 1002)
/// ```
///
/// It connects only once, sends no pings, and answers neither pings nor close frames. The connection is closed when the
/// last reference is released.
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
    /// The URL of the WebSocket, of which the host, the path and the query are used; nil for frames over plain TCP.
    private let target: WebSocketTarget?
    private let host: String

    /// Creates a client that is connected.
    ///
    /// - Parameters:
    ///   - endpoint: The server.
    ///   - opensWebSocket: Whether a WebSocket, if the endpoint is the URL of one, is open when this returns. Otherwise
    ///     ``Act/opening(_:headers:without:)`` is the test's. True by default.
    ///   - format: The layout of frames; the standard format by default.
    ///   - reads: Whether it reads from the start, or only after ``Act/startReading``. True by default.
    ///   - tls: TLS, whose handshake is over when this returns; nil, the default, for none, and for `wss` for
    ///     `ClientTLS()`.
    ///   - origin: The client's own IP address, one of this machine's. On Linux every address of 127.0.0.0/8 is one:
    ///     a server distinguishes clients with different addresses. Nil, the default, for the system's choice.
    ///   - receiveBuffer: The size of the system's receive buffer (`SO_RCVBUF`), in bytes. With a small one the server
    ///     soon notices that this client does not read. Nil, the default, for the system's choice.
    ///   - clock: The clock of delays; real time by default.
    /// - Throws: NIO's error if it cannot connect, or that of the handshake; ``NothingHappened`` if the server does not
    ///   open the WebSocket.
    public init(
        to endpoint: Endpoint,
        opensWebSocket: Bool = true,
        format: WireFormat = .standard,
        reads: Bool = true,
        tls: ClientTLS? = nil,
        from origin: String? = nil,
        receiveBuffer: Int? = nil,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let made = NIOLockedValueBox<(inbox: NIOLoopBound<Inbox>, handshake: EventLoopFuture<Void>?)?>(nil)
        self.forge = FrameForge(direction: .request, format: format)
        self.sleep = { try await clock.sleep(for: $0) }
        let target = endpoint.webSocketTarget
        self.target = target
        self.host = target?.hostField ?? "\(endpoint.host):\(endpoint.port)"
        let tls = tls ?? (target?.isSecure == true ? ClientTLS() : nil)
        let opens = opensWebSocket && target != nil
        var bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            // Its loop, which the other clients of an attack share, may be busy for longer than the default of 10 s.
            .connectTimeout(.seconds(60))
            .channelOption(.allowRemoteHalfClosure, value: true)
            // A handshake requires reading in any case.
            .channelOption(.autoRead, value: reads || tls != nil || opens)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let handshake = try tls?.start(on: channel, to: endpoint)
                    let inbox = Inbox(eventLoop: channel.eventLoop, format: format, isWebSocket: target != nil)
                    made.withLockedValue { $0 = (NIOLoopBound(inbox, eventLoop: channel.eventLoop), handshake) }
                    try channel.pipeline.syncOperations.addHandler(inbox)
                }
            }
        if let origin { bootstrap = bootstrap.bind(to: try SocketAddress(ipAddress: origin, port: 0)) }
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
        try await handshake?.get()
        if opens {
            await self.perform(.opening())
            let answer = try await self.opening()
            guard answer.status == 101 else {
                throw NothingHappened(description: "\(endpoint) answered the opening with \(answer.status)")
            }
        }
        if !reads, tls != nil || opens { try await self.channel.setOption(.autoRead, value: false).get() }
    }

    deinit {
        self.channel.close(promise: nil)
    }

    /// The client's own address.
    package var localAddress: SocketAddress? { self.channel.localAddress }

    // MARK: Sending

    /// Performs an act, one step after the other.
    ///
    /// - Parameters:
    ///   - act: The act.
    ///   - time: The time for which the server may read none of our bytes before the act is given up; 60 s by default.
    ///
    /// - Returns: The outcome. It is not an error if the server ends the connection of a hostile client.
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
        case .keepSending(let sendings, let interval):
            var bytes = ByteBuffer()
            for sending in sendings { self.append(sending, to: &bytes) }
            return await self.outcome(of: self.keepSending(bytes, every: interval), within: time)
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

    private func keepSending(_ bytes: ByteBuffer, every interval: Duration) -> EventLoopFuture<Void> {
        let (channel, inbox) = (self.channel, self.inbox)
        return channel.eventLoop.submit { inbox.value.keepSending(bytes, to: channel, every: TimeAmount(interval)) }
    }

    /// Discards everything that is received from now on: ``response(within:)``, ``message(within:)`` and similar
    /// functions return only what was received before.
    ///
    /// A client that floods a server needs no memory for the answers then.
    public func discardWhatComes() {
        let inbox = self.inbox
        self.channel.eventLoop.execute { inbox.value.isDiscarding = true }
    }

    /// Appends the bytes that an act sends.
    private func append(_ sending: Act.Sending, to buffer: inout ByteBuffer) {
        let (bytes, isCarried) = self.bytes(sending)
        buffer.writeImmutableBuffer(isCarried ? Self.carry(bytes) : bytes)
    }

    /// Returns bytes as binary messages.
    private static func carry(_ bytes: ByteBuffer) -> ByteBuffer {
        var out = ByteBuffer()
        // Masks that are the same each time.
        var encoder = WebSocketEncoder(role: .client, secret: Array(repeating: 7, count: 32))
        encoder.encodeStream(bytes, into: &out)
        return out
    }

    /// Returns the bytes that an act sends, and whether a WebSocket carries them in messages.
    private func bytes(_ sending: Act.Sending) -> (ByteBuffer, isCarried: Bool) {
        var buffer = ByteBuffer()
        switch sending.source {
        case .raw(let bytes):
            return (bytes.repeated(sending.copies), false)
        case .opening(let opening):
            let request = opening.encode(to: self.target, host: self.host, offering: self.forge.format.subprotocol)
            return (sending.flaws.cut(request).repeated(sending.copies), false)
        case .webSocket(let frames):
            for frame in frames {
                var bytes = ByteBuffer()
                frame.encode(masks: true, into: &bytes)
                buffer.writeImmutableBuffer(sending.flaws.cut(bytes))
            }
            return (buffer.repeated(sending.copies), false)
        case .frame, .cancel, .ping, .requests:
            for _ in 0..<sending.copies { self.append(sending.source, sending.flaws, to: &buffer) }
            return (buffer, self.target != nil)
        }
    }

    /// Appends HHSocket's own frames.
    private func append(_ source: Act.Source, _ flaws: Flaws, to buffer: inout ByteBuffer) {
        switch source {
        case .raw, .opening, .webSocket:
            break
        case .frame(let frame):
            self.forge.append(frame, flaws, to: &buffer)
        case .cancel(let serial):
            if let frame = self.forge.format.cancel(serial: serial) {
                self.forge.append(frame, flaws, to: &buffer)
            }
        case .ping(let serial):
            let heartbeat = self.forge.format.layout.heartbeat
            let frame = Frame(
                type: heartbeat?.type ?? FrameType.heartbeat,
                serial: serial ?? heartbeat?.clientSerial ?? FrameSerial.clientPing
            )
            self.forge.append(frame, flaws, to: &buffer)
        case .requests(var frame, let serials):
            for serial in serials {
                frame.serial = serial
                self.forge.append(frame, flaws, to: &buffer)
            }
        }
    }

    private func dribble(_ sending: Act.Sending, within time: Duration) async -> Outcome {
        guard let dribble = sending.dribble else { return .done }
        var (bytes, isCarried) = self.bytes(sending)
        var outcome = Outcome.done
        while outcome == .done, var chunk = bytes.readSlice(length: min(dribble.bytes, bytes.readableBytes)),
            chunk.readableBytes > 0
        {
            if isCarried { chunk = Self.carry(chunk) }
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
        let output = try await self.wait(\.waiting, "a frame", within: time)
        switch output {
        case .frame(let frame): return frame
        case .corrupt(let frame, let mismatch):
            throw NothingHappened(description: "\(frame) came with a wrong checksum: \(mismatch)")
        case .malformed(let error): throw NothingHappened(description: "waited for a frame, and got none: \(error)")
        case nil: throw NothingHappened(description: "waited for a frame, and the server ended the connection")
        }
    }

    /// Returns the next `count` frames of the server.
    ///
    /// - Throws: The errors of ``response(within:)``.
    package func responses(_ count: Int, within time: Duration = .seconds(60)) async throws -> [Frame] {
        var frames: [Frame] = []
        for _ in 0..<count { frames.append(try await self.response(within: time)) }
        return frames
    }

    /// Returns when the server has closed the connection, or its direction of it.
    ///
    /// - Throws: ``NothingHappened`` if that does not happen in time, 60 s by default.
    public func ended(within time: Duration = .seconds(60)) async throws {
        try await self.wait(\.waitingForEnd, "the end of the connection", within: time)
    }

    /// Returns the server's answer to the request to open a WebSocket.
    ///
    /// - Throws: ``NothingHappened`` if none comes in time (60 s by default), or if the server has ended the connection
    ///   without one.
    public func opening(within time: Duration = .seconds(60)) async throws -> OpeningAnswer {
        guard let answer = try await self.wait(\.waitingForOpening, "an answer to the opening", within: time) else {
            throw NothingHappened(
                description: "waited for an answer to the opening, and the server ended the connection"
            )
        }
        return answer
    }

    /// Returns the next message or control frame of a WebSocket. Binary messages are among them only if the server has
    /// not selected the subprotocol of frames; otherwise ``response(within:)`` reads them.
    ///
    /// - Throws: ``NothingHappened`` if none comes in time (60 s by default), or if the server has ended the connection
    ///   and all of them were returned.
    public func message(within time: Duration = .seconds(60)) async throws -> WebSocketContent {
        guard let content = try await self.wait(\.waitingForContent, "a message", within: time) else {
            throw NothingHappened(description: "waited for a message, and the server ended the connection")
        }
        return content
    }

    /// An answer to a request to open a WebSocket.
    public struct OpeningAnswer: Sendable {
        /// The status; 101 if the WebSocket is open.
        public let status: Int
        /// The header fields, in their order.
        package let headers: [(name: String, value: String)]

        /// The value of the first header field called `name`, ignoring case.
        public func header(_ name: String) -> String? {
            self.headers.first { $0.name.lowercased() == name.lowercased() }?.value
        }

        /// Reads an answer's head, with the empty line at its end.
        fileprivate init(_ head: String) {
            let lines = head.split(separator: "\r\n")
            self.status =
                lines.first.flatMap { line in
                    let words = line.split(separator: " ")
                    return words.count > 1 ? Int(words[1]) : nil
                } ?? 0
            self.headers = lines.dropFirst().compactMap { line in
                guard let colon = line.firstIndex(of: ":") else { return nil }
                return (String(line[..<colon]), String(line[colon...].dropFirst().drop { $0 == " " }))
            }
        }
    }

    private func wait<Value: Sendable>(
        _ line: any ReferenceWritableKeyPath<Inbox, [Inbox.Waiter<Value>]> & Sendable,
        _ what: String,
        within time: Duration
    ) async throws -> Value {
        let inbox = self.inbox
        return try await self.channel.eventLoop
            .flatSubmit { inbox.value.wait(line, what, within: TimeAmount(time)) }.get()
    }

    /// The first bytes received: all, or at least the first 64 KiB, up to the end of a read.
    package var receivedBytes: [UInt8] {
        get async throws {
            let inbox = self.inbox
            return try await self.channel.eventLoop.submit { Array(inbox.value.first.readableBytesView) }.get()
        }
    }

    // MARK: On the event loop

    fileprivate final class Inbox: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        struct Waiter<Value: Sendable> {
            var promise: EventLoopPromise<Value>
            var deadline: Scheduled<Void>
        }

        private let eventLoop: any EventLoop
        private let subprotocol: String?
        private var decoder: FrameDecoder
        private var outputs = CircularBuffer<FrameDecoder.Output>()
        private(set) var first = ByteBuffer()
        private var hasEnded = false
        private var slowReading: RepeatedTask?
        private var sending: RepeatedTask?
        var isDiscarding = false
        var waiting: [Waiter<FrameDecoder.Output?>] = []
        var waitingForEnd: [Waiter<Void>] = []
        var waitingForOpening: [Waiter<OpeningAnswer?>] = []
        var waitingForContent: [Waiter<WebSocketContent?>] = []

        private let isWebSocket: Bool
        /// The beginning of the answer to an opening, until it is complete.
        private var head = ByteBuffer()
        private var answer: OpeningAnswer?
        /// Nil until the WebSocket is open, and after a violation.
        private var webSocket: WebSocketDecoder?
        /// Whether binary messages carry frames.
        private var carriesFrames = false
        private var contents = CircularBuffer<WebSocketContent>()

        init(eventLoop: any EventLoop, format: WireFormat, isWebSocket: Bool) {
            self.eventLoop = eventLoop
            self.subprotocol = format.subprotocol
            self.isWebSocket = isWebSocket
            self.decoder = FrameDecoder(
                direction: .response,
                format: format,
                maximumPayloadLength: .max,
                maximumCorruptRun: .max
            )
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            guard !self.isDiscarding else { return }
            let bytes = self.unwrapInboundIn(data)
            if self.first.readableBytes < 64 << 10 { self.first.writeImmutableBuffer(bytes) }
            if self.isWebSocket { self.receive(bytes) } else { self.decode(bytes) }
            self.serve()
        }

        private func decode(_ bytes: ByteBuffer) {
            self.decoder.append(bytes)
            do throws(FrameError) {
                while let output = try self.decoder.next() { self.outputs.append(output) }
            } catch {
                self.end()
            }
        }

        private func receive(_ bytes: ByteBuffer) {
            if self.answer == nil {
                self.head.writeImmutableBuffer(bytes)
                self.readAnswer()
            } else {
                self.webSocket?.append(bytes)
            }
            do throws(WebSocketViolation) {
                while let input = try self.webSocket?.next() {
                    if case .message(.binary, let bytes) = input, self.carriesFrames {
                        self.decode(bytes)
                    } else {
                        self.contents.append(WebSocketContent(input))
                    }
                }
            } catch {
                self.webSocket = nil
                self.contents.append(.violation("\(error)"))
            }
        }

        private func readAnswer() {
            let end = Array("\r\n\r\n".utf8)
            let view = self.head.readableBytesView
            guard let index = view.indices.first(where: { view[$0...].starts(with: end) }),
                let text = self.head.readString(length: index - view.startIndex + end.count)
            else { return }
            let answer = OpeningAnswer(text)
            self.answer = answer
            guard answer.status == 101 else { return }
            self.carriesFrames = self.subprotocol != nil && answer.header("Sec-WebSocket-Protocol") == self.subprotocol
            // Without limits, and with the largest window, which is right for smaller ones too.
            var limits = WebSocketLimits()
            limits.maximumMessageLength = .max
            limits.maximumFragments = .max
            let isCompressed = answer.header("Sec-WebSocket-Extensions") != nil
            var decoder = WebSocketDecoder(
                role: .client,
                mode: .messages(limits),
                deflate: isCompressed ? DeflateAgreement() : nil,
                account: nil
            )
            decoder.append(self.head.slice())
            self.head = ByteBuffer()
            self.webSocket = decoder
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .inputClosed? = event as? ChannelEvent { self.end() }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.stopReadingSlowly()
            self.sending?.cancel()
            self.sending = nil
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

        /// Writes these bytes after each interval at which the system accepts some, until the channel is closed.
        func keepSending(_ bytes: ByteBuffer, to channel: any Channel, every interval: TimeAmount) {
            self.sending?.cancel()
            guard channel.isActive else { return }
            self.sending = self.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
                if channel.isWritable { channel.writeAndFlush(bytes, promise: nil) }
            }
        }

        func stopReadingSlowly() {
            self.slowReading?.cancel()
            self.slowReading = nil
        }

        private func serve() {
            while !self.waiting.isEmpty, self.hasEnded || !self.outputs.isEmpty {
                self.waiting.removeFirst().succeed(self.outputs.popFirst())
            }
            while !self.waitingForContent.isEmpty, self.hasEnded || !self.contents.isEmpty {
                self.waitingForContent.removeFirst().succeed(self.contents.popFirst())
            }
            while !self.waitingForOpening.isEmpty, self.hasEnded || self.answer != nil {
                self.waitingForOpening.removeFirst().succeed(self.answer)
            }
            guard self.hasEnded else { return }
            for waiter in self.waitingForEnd { waiter.succeed(()) }
            self.waitingForEnd = []
        }

        func wait<Value: Sendable>(
            _ line: ReferenceWritableKeyPath<Inbox, [Waiter<Value>]>,
            _ what: String,
            within time: TimeAmount
        ) -> EventLoopFuture<Value> {
            let promise = self.eventLoop.makePromise(of: Value.self)
            let deadline = self.eventLoop.assumeIsolated().scheduleTask(in: time) {
                // Any waiter may be the first to time out.
                self[keyPath: line].removeAll { $0.promise.futureResult === promise.futureResult }
                promise.fail(NothingHappened(description: "waited \(Duration(time)) for \(what)"))
            }
            self[keyPath: line].append(Waiter(promise: promise, deadline: deadline))
            self.serve()
            return promise.futureResult
        }
    }
}

extension HostileClient.Inbox.Waiter {
    fileprivate func succeed(_ value: Value) {
        self.deadline.cancel()
        self.promise.succeed(value)
    }
}
