// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// Clients that follow the protocol: each sends pings and calls in turn, one at a time, and measures the time until the
/// answers.
///
/// They have their own thread, so that the attackers in the process do not delay them more than the server does.
final class HonestClients: Sendable {
    /// The transport of their frames or messages.
    enum Transport: Sendable {
        case tcp
        case tls(ClientTLS)
        case framesOverWebSocket(path: String)
        /// Messages of a WebSocket that echoes them, instead of calls.
        case messages(path: String)
    }

    /// The types that a server must have, each of which echoes its request.
    struct Types: Sendable {
        var synchronous: UInt32
        var asynchronous: UInt32
        var blocking: UInt32
        /// The type of pushes, which are ignored.
        var push: UInt32
    }

    /// The results of all clients.
    struct Record: Sendable, CustomStringConvertible {
        /// The times that requests waited for their answers.
        var roundTrips: [Duration] = []
        /// The times that the still unanswered requests have waited.
        var waiting: [Duration] = []
        /// The number of answers that were wrong or refusals, by description, and of connections that the server ended.
        var faults: [String: Int] = [:]

        var answers: Int { self.roundTrips.count }
        var longest: Duration { (self.roundTrips + self.waiting).max() ?? .zero }
        /// The time within which 99 of 100 requests were answered.
        var p99: Duration {
            let sorted = (self.roundTrips + self.waiting).sorted()
            return sorted.isEmpty ? .zero : sorted[min(sorted.count - 1, sorted.count * 99 / 100)]
        }

        var description: String {
            "\(self.answers) answers, p99 \(self.p99), the longest after \(self.longest); faults: \(self.faults)"
        }
    }

    fileprivate struct State {
        var record = Record()
        /// The time at which the unanswered request was sent.
        var begun: ContinuousClock.Instant?
        /// The number of answers since the beginning.
        var answers = 0
        /// Whether the server has ended the connection.
        var isLost = false
    }

    private let group: MultiThreadedEventLoopGroup
    private let channels: [any Channel]
    private let states: [NIOLockedValueBox<State>]

    /// - Parameters:
    ///   - transport: The transport of frames.
    ///   - token: The token of their hello; nil for no hello.
    init(
        to address: Endpoint,
        over transport: Transport = .tcp,
        count: Int,
        types: Types,
        token: String? = nil
    ) async throws {
        self.group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let states = (0..<count).map { _ in NIOLockedValueBox(State()) }
        var channels: [any Channel] = []
        do {
            for state in states {
                channels.append(
                    try await Self.connect(address, transport, self.group) { isMessages in
                        HonestClientHandler(state, types, token: token, isMessages: isMessages)
                    }
                )
            }
        } catch {
            try? await self.group.shutdownGracefully()
            throw error
        }
        (self.channels, self.states) = (channels, states)
    }

    private static func connect(
        _ address: Endpoint,
        _ transport: Transport,
        _ group: MultiThreadedEventLoopGroup,
        _ makeHandler: @escaping @Sendable (_ isMessages: Bool) -> HonestClientHandler
    ) async throws -> any Channel {
        try await ClientBootstrap(group: group)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    var isMessages = false
                    switch transport {
                    case .tcp: break
                    case .tls(let tls): _ = try tls.start(on: channel, to: address)
                    case .framesOverWebSocket(let path):
                        try pipeline.addHandler(HonestWebSocketHandler(path, WireFormat.standard.subprotocol))
                    case .messages(let path):
                        isMessages = true
                        try pipeline.addHandler(HonestWebSocketHandler(path, nil))
                    }
                    try pipeline.addHandler(makeHandler(isMessages))
                }
            }
            .connect(host: address.host, port: address.port)
            .get()
    }

    var count: Int { self.states.count }

    /// Returns the results since the last call.
    func takeRecord() -> Record {
        let now = ContinuousClock.now
        return self.states.reduce(into: Record()) { total, state in
            let (record, begun) = state.withLockedValue { state in
                defer { state.record = Record() }
                return (state.record, state.begun)
            }
            total.roundTrips += record.roundTrips
            if let begun { total.waiting.append(now - begun) }
            total.faults.merge(record.faults, uniquingKeysWith: +)
        }
    }

    /// Waits until each client has received a number of answers, from now on.
    ///
    /// - Throws: ``TimedOut`` if a server has stopped answering; ``Unexpected`` if no client has a connection.
    func areAnswered(times: Int = 3, within time: Duration = patience) async throws {
        let before = self.states.map { $0.withLockedValue { $0.answers } }
        let states = self.states
        try await eventually("\(times) answers for each honest client", within: time) {
            guard !states.allSatisfy({ state in state.withLockedValue { $0.isLost } }) else {
                throw Unexpected(description: "the server has ended every connection")
            }
            return zip(states, before).allSatisfy { state, before in
                state.withLockedValue { $0.answers } >= before + times
            }
        }
    }

    /// Closes the connections.
    func close() async {
        for channel in self.channels { try? await channel.close().get() }
        try? await self.group.shutdownGracefully()
    }
}

private final class HonestClientHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A request of a client, with the required answer.
    private enum Request: CaseIterable {
        case ping
        /// Answered on the server's event loop.
        case synchronousCall
        /// Answered by a task.
        case asynchronousCall
        /// Answered by a thread that may block.
        case blockingCall
    }

    /// The time between an answer and the next request.
    private static let pause = TimeAmount.milliseconds(10)

    private let state: NIOLockedValueBox<HonestClients.State>
    private let types: HonestClients.Types
    private let isMessages: Bool
    private var token: String?
    private let encoder = FrameEncoder(direction: .request)
    private var decoder = FrameDecoder(direction: .response)
    private var serial: UInt32 = 49
    private var expected = Frame(type: 0, serial: 0)

    init(
        _ state: NIOLockedValueBox<HonestClients.State>,
        _ types: HonestClients.Types,
        token: String?,
        isMessages: Bool
    ) {
        self.state = state
        self.types = types
        self.token = token
        self.isMessages = isMessages
    }

    func channelActive(context: ChannelHandlerContext) { self.send(context) }

    private func send(_ context: ChannelHandlerContext) {
        let request = self.nextRequest()
        self.expected = request
        if request.type == FrameType.hello { self.expected.payload = ByteBuffer() }
        self.state.withLockedValue { $0.begun = ContinuousClock.now }
        var bytes = context.channel.allocator.buffer(capacity: 64)
        if self.isMessages {
            bytes.writeImmutableBuffer(request.payload)
        } else {
            self.encoder.encode(request, into: &bytes)
        }
        context.writeAndFlush(self.wrapOutboundOut(bytes), promise: nil)
    }

    private func nextRequest() -> Frame {
        if let token = self.token {
            self.token = nil
            var hello = WireHello()
            hello.version = 1
            hello.sessionToken = .init(token.utf8)
            let payload = (try? ByteBuffer(message: hello)) ?? ByteBuffer()
            return Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: payload)
        }
        self.serial += 1
        let requests = Request.allCases
        let body = ByteBuffer(string: "honest \(self.serial)")
        switch self.isMessages ? .synchronousCall : requests[Int(self.serial) % requests.count] {
        case .ping: return Frame(type: FrameType.heartbeat, serial: FrameSerial.clientPing)
        case .synchronousCall: return Frame(type: self.types.synchronous, serial: self.serial, payload: body)
        case .asynchronousCall: return Frame(type: self.types.asynchronous, serial: self.serial, payload: body)
        case .blockingCall: return Frame(type: self.types.blocking, serial: self.serial, payload: body)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = self.unwrapInboundIn(data)
        guard !self.isMessages else {
            self.answered(context)
            if bytes != self.expected.payload { self.note("another message") }
            return
        }
        self.decoder.append(bytes)
        do throws(FrameError) {
            while let output = try self.decoder.next() { self.received(output, context) }
        } catch {
            self.note("\(error)")
        }
    }

    private func received(_ output: FrameDecoder.Output, _ context: ChannelHandlerContext) {
        if case .frame(let frame) = output, frame.type == self.types.push, frame.serial == FrameSerial.push { return }
        self.answered(context)
        let expected = self.expected
        switch output {
        case .frame(let frame) where (frame.type, frame.serial) != (expected.type, expected.serial):
            self.note("type \(frame.type), serial \(frame.serial)")
        case .frame(let frame) where frame.status != .ok:
            self.note("type \(frame.type): status \(frame.status)")
        case .frame(let frame) where frame.payload != expected.payload && frame.type != FrameType.hello:
            self.note("another body")
        case .frame:
            break
        case .corrupt:
            self.note("a wrong checksum")
        case .malformed:
            self.note("no frame")
        }
    }

    private func answered(_ context: ChannelHandlerContext) {
        self.state.withLockedValue { state in
            if let begun = state.begun { state.record.roundTrips.append(ContinuousClock.now - begun) }
            state.begun = nil
            state.answers += 1
        }
        let loopBound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: Self.pause) {
            let (handler, context) = loopBound.value
            if context.channel.isActive { handler.send(context) }
        }
    }

    private func note(_ fault: String) {
        self.state.withLockedValue { $0.record.faults[fault, default: 0] += 1 }
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.note("the server has ended the connection")
        self.state.withLockedValue { $0.isLost = true }
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.note("\(error)")
        context.close(promise: nil)
    }
}

/// Opens a WebSocket, and sends written bytes in binary messages.
private final class HonestWebSocketHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let path: String
    private let subprotocol: String?
    private var encoder = WebSocketEncoder(role: .client, account: nil)
    /// Nil until the WebSocket is open.
    private var decoder: WebSocketDecoder?
    /// The beginning of the server's answer, until it is complete.
    private var head = ByteBuffer()

    init(_ path: String, _ subprotocol: String?) {
        self.path = path
        self.subprotocol = subprotocol
    }

    func channelActive(context: ChannelHandlerContext) {
        var lines = [
            "GET \(self.path) HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
        ]
        if let subprotocol { lines.append("Sec-WebSocket-Protocol: \(subprotocol)") }
        let opening = lines.map { "\($0)\r\n" }.joined() + "\r\n"
        context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(string: opening)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = self.unwrapInboundIn(data)
        if self.decoder == nil {
            self.head.writeImmutableBuffer(bytes)
            self.open(context)
        } else {
            self.decoder?.append(bytes)
        }
        do throws(WebSocketViolation) {
            while let input = try self.decoder?.next() {
                if case .message(_, let message) = input { context.fireChannelRead(self.wrapInboundOut(message)) }
            }
        } catch {
            context.fireErrorCaught(error)
        }
    }

    private func open(_ context: ChannelHandlerContext) {
        let end = Array("\r\n\r\n".utf8)
        let view = self.head.readableBytesView
        guard let index = view.indices.first(where: { view[$0...].starts(with: end) }),
            let answer = self.head.readString(length: index - view.startIndex + end.count)
        else { return }
        guard answer.hasPrefix("HTTP/1.1 101") else {
            context.fireErrorCaught(Unexpected(description: answer))
            return
        }
        var decoder = WebSocketDecoder(role: .client, mode: .messages(WebSocketLimits()), account: nil)
        decoder.append(self.head.slice())
        self.decoder = decoder
        context.fireChannelActive()
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        var bytes = ByteBuffer()
        self.encoder.encode(.binary, self.unwrapOutboundIn(data), into: &bytes)
        context.write(self.wrapOutboundOut(bytes), promise: promise)
    }
}
