import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// Clients that do nothing wrong: each pings and calls in turn, one at a time, and measures how long the answers take.
///
/// They have a thread of their own, so that the attackers in the same process do not delay them more than the server
/// does.
final class HonestClients: Sendable {
    /// What a client asks for, and what it must be answered.
    fileprivate enum Request: CaseIterable {
        case ping
        /// Answered on the server's event loop.
        case synchronousCall
        /// Answered by a task.
        case asynchronousCall
    }

    /// What has happened to all of them.
    struct Record: Sendable, CustomStringConvertible {
        /// The number of answers.
        var answers = 0
        /// The longest time that a request has waited for its answer, or waits still.
        var longestRoundTrip = Duration.zero
        /// The number of answers that were wrong or refusals, by what they were, and of connections that the server
        /// ended.
        var faults: [String: Int] = [:]

        var description: String {
            "\(self.answers) answers, the longest after \(self.longestRoundTrip); faults: \(self.faults)"
        }
    }

    fileprivate struct State {
        var record = Record()
        /// When the request that waits for its answer was sent.
        var begun: ContinuousClock.Instant?
        /// The number of answers since the beginning.
        var answers = 0
    }

    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let channels: [any Channel]
    private let states: [NIOLockedValueBox<State>]

    /// - Parameters:
    ///   - types: Those with a synchronous and an asynchronous handler, each of which answers what it was asked.
    init(to address: Endpoint, count: Int, types: (synchronous: UInt32, asynchronous: UInt32)) async throws {
        let states = (0..<count).map { _ in NIOLockedValueBox(State()) }
        var channels: [any Channel] = []
        for state in states {
            let channel = try await ClientBootstrap(group: self.group)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(HonestClientHandler(state, types))
                    }
                }
                .connect(host: address.host, port: address.port)
                .get()
            channels.append(channel)
        }
        (self.channels, self.states) = (channels, states)
    }

    var count: Int { self.states.count }

    /// What has happened since this was last asked.
    func takeRecord() -> Record {
        let now = ContinuousClock.now
        return self.states.reduce(into: Record()) { total, state in
            let (record, begun) = state.withLockedValue { state in
                defer { state.record = Record() }
                return (state.record, state.begun)
            }
            total.answers += record.answers
            let waiting = begun.map { now - $0 } ?? .zero
            total.longestRoundTrip = max(total.longestRoundTrip, record.longestRoundTrip, waiting)
            total.faults.merge(record.faults, uniquingKeysWith: +)
        }
    }

    /// Waits until each of them has been answered so many times, from now on.
    ///
    /// - Throws: ``TimedOut`` if a server answers nothing any more.
    func areAnswered(times: Int = 3) async throws {
        let before = self.states.map { $0.withLockedValue { $0.answers } }
        let states = self.states
        try await eventually("\(times) answers for each honest client") {
            zip(states, before).allSatisfy { state, before in state.withLockedValue { $0.answers } >= before + times }
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

    private let state: NIOLockedValueBox<HonestClients.State>
    private let types: (synchronous: UInt32, asynchronous: UInt32)
    private let encoder = FrameEncoder(direction: .request)
    private var decoder = FrameDecoder(direction: .response)
    private var serial: UInt32 = 49
    private var expected = Frame(type: 0, serial: 0)

    init(
        _ state: NIOLockedValueBox<HonestClients.State>,
        _ types: (synchronous: UInt32, asynchronous: UInt32)
    ) {
        self.state = state
        self.types = types
    }

    func channelActive(context: ChannelHandlerContext) { self.send(context) }

    private func send(_ context: ChannelHandlerContext) {
        self.serial += 1
        let requests = HonestClients.Request.allCases
        let body = ByteBuffer(string: "honest \(self.serial)")
        switch requests[Int(self.serial) % requests.count] {
        case .ping: self.expected = Frame(type: FrameType.heartbeat, serial: FrameSerial.clientPing)
        case .synchronousCall:
            self.expected = Frame(type: self.types.synchronous, serial: self.serial, payload: body)
        case .asynchronousCall:
            self.expected = Frame(type: self.types.asynchronous, serial: self.serial, payload: body)
        }
        var bytes = context.channel.allocator.buffer(capacity: 64)
        self.encoder.encode(self.expected, into: &bytes)
        self.state.withLockedValue { $0.begun = ContinuousClock.now }
        context.writeAndFlush(self.wrapOutboundOut(bytes), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.decoder.append(self.unwrapInboundIn(data))
        do throws(FrameError) {
            while let output = try self.decoder.next() { self.received(output, context) }
        } catch {
            self.note("\(error)")
        }
    }

    private func received(_ output: FrameDecoder.Output, _ context: ChannelHandlerContext) {
        let expected = self.expected
        self.state.withLockedValue { state in
            if let begun = state.begun {
                state.record.longestRoundTrip = max(state.record.longestRoundTrip, ContinuousClock.now - begun)
            }
            state.begun = nil
            state.answers += 1
            state.record.answers += 1
        }
        switch output {
        case .frame(let frame) where (frame.type, frame.serial) != (expected.type, expected.serial):
            self.note("type \(frame.type), serial \(frame.serial)")
        case .frame(let frame) where frame.status != .ok:
            self.note("type \(frame.type): status \(frame.status)")
        case .frame(let frame) where frame.payload != expected.payload:
            self.note("another body")
        case .frame:
            break
        case .corrupt:
            self.note("a wrong checksum")
        case .malformed:
            self.note("no frame")
        }
        let loopBound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: .milliseconds(2)) {
            let (handler, context) = loopBound.value
            if context.channel.isActive { handler.send(context) }
        }
    }

    private func note(_ fault: String) {
        self.state.withLockedValue { $0.record.faults[fault, default: 0] += 1 }
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.note("the server has ended the connection")
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.note("\(error)")
        context.close(promise: nil)
    }
}
