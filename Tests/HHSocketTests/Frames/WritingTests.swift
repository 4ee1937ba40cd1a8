// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import Metrics
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The outcomes of frames without room or without a connection, over real sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WritingTests {
    /// More than the kernels of both ends take while the peer does not read, and the maximum length of a frame.
    private static let tooMuch = 16 << 20

    private func socket(
        _ server: MockServer,
        _ policy: WritePolicy,
        _ change: (inout SocketConfiguration) -> Void = { _ in }
    ) -> Socket {
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.backoff.base = .milliseconds(10)
        configuration.heartbeat = nil
        configuration.writePolicy = policy
        change(&configuration)
        return Socket(configuration: configuration)
    }

    private func connect(_ socket: Socket) async throws {
        socket.connect()
        try await eventually("ready") { if case .ready = socket.state { true } else { false } }
    }

    /// Starts a server that reads nothing before it is woken.
    private func sleepingServer() async throws -> MockServer {
        let server = try await MockServer(.drop)
        server.onOpen(.stopReading)
        return server
    }

    private func frame(_ serial: UInt32, _ count: Int = 10) -> Frame {
        Frame(type: 16, serial: serial, payload: ByteBuffer(repeating: UInt8(truncatingIfNeeded: serial), count: count))
    }

    /// Sends frames in the background, and records their outcomes by serial.
    private final class Writers: Sendable {
        let ends = NIOLockedValueBox<[UInt32: Result<Void, SocketError>]>([:])

        func send(_ frame: Frame, _ priority: FramePriority = .default, on socket: Socket) -> Task<Void, Never> {
            Task {
                let end: Result<Void, SocketError>
                do throws(SocketError) {
                    try await socket.send(frame, priority: priority)
                    end = .success(())
                } catch {
                    end = .failure(error)
                }
                self.ends.withLockedValue { $0[frame.serial] = end }
            }
        }

        func count() -> Int { self.ends.withLockedValue { $0.count } }

        func error(_ serial: UInt32) -> SocketError? {
            if case .failure(let error) = self.ends.withLockedValue({ $0[serial] }) { error } else { nil }
        }

        func isSent(_ serial: UInt32) -> Bool {
            if case .success = self.ends.withLockedValue({ $0[serial] }) { true } else { false }
        }
    }

    // MARK: Priority

    @Test func waitingFramesAreSentByPriorityAndAnswersToPingsFirst() async throws {
        let server = try await self.sleepingServer()
        // Everything is taken at once, so that only the queue determines the order.
        let socket = self.socket(server, WritePolicy(highWaterMark: .max))
        try await self.connect(socket)
        let connection = try await server.connection(0)
        try await socket.send(self.frame(50, Self.tooMuch))
        for (serial, priority) in [
            (51, 0.5), (52, 0.25), (53, 0.75), (54, 0.5), (55, 1), (56, 0.75), (57, 0),
        ] as [(UInt32, Float)] {
            try await socket.send(self.frame(serial), priority: FramePriority(rawValue: priority))
        }
        await connection.perform(.ping(serial: 5))
        // The push follows the ping: once it has arrived, the ping was handled.
        let recorder = FrameRecorder()
        socket.delegate = recorder
        await connection.perform(.push(2001, "after the ping"))
        try await eventually("the push") { recorder.count == 1 }
        await connection.perform(.wakeUp)
        let serials = try await server.received(9).map(\.serial)
        #expect(serials == [50, 5, 55, 53, 56, 51, 54, 52, 57])
    }

    private final class FrameRecorder: SocketDelegate {
        private let frames = NIOLockedValueBox(0)
        var count: Int { self.frames.withLockedValue { $0 } }
        func socket(_ socket: Socket, didReceive frame: Frame) { self.frames.withLockedValue { $0 += 1 } }
    }

    // MARK: No room

    @Test func writersWaitForRoomAndAreSentInOrder() async throws {
        let server = try await self.sleepingServer()
        let socket = self.socket(server, WritePolicy(highWaterMark: 100_000))
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        let writers = Writers()
        var tasks: [Task<Void, Never>] = []
        for serial in 51...60 as ClosedRange<UInt32> { tasks.append(writers.send(self.frame(serial), on: socket)) }
        // If they did not have to wait, they would precede this one, which must fail.
        let large = await #expect(throws: SocketError.self) {
            try await socket.send(
                Frame(type: 16, serial: 99, payload: ByteBuffer(repeating: 0, count: Self.tooMuch + 1))
            )
        }
        #expect(large?.code == .frameTooLarge)
        #expect(writers.count() == 0)
        try await server.connection(0).perform(.wakeUp)
        for task in tasks { await task.value }
        #expect((51...60).allSatisfy { writers.isSent($0) })
        let serials = try await server.received(11).map(\.serial)
        #expect(serials.first == 50)
        #expect(Set(serials) == Set(50...60))
    }

    @Test func writersThatShallNotWaitFailAtOnceAndTheErrorSaysWhichMark() async throws {
        let server = try await self.sleepingServer()
        let socket = self.socket(server, WritePolicy(highWaterMark: 100_000, whenFull: .fail))
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        let error = await #expect(throws: SocketError.self) { try await socket.send(self.frame(51)) }
        #expect(error?.code == .queueFull)
        #expect(error?.serial == 51)
        #expect(error?.endpoint == server.endpoint)
        #expect(error?.delivery == .notSent)
        #expect(error?.message.contains("WritePolicy.highWaterMark") == true)
        #expect(error?.message.contains("100000") == true)
        // The rejected frame has no effect.
        try await server.connection(0).perform(.wakeUp)
        try await server.received(1)
        try await eventually("room again") { (try? await socket.send(self.frame(52))) != nil }
        #expect(try await server.received(2).map(\.serial) == [50, 52])
    }

    @Test func waitingWritersAreBoundedToo() async throws {
        let server = try await self.sleepingServer()
        let socket = self.socket(server, WritePolicy(highWaterMark: 1_000)) { $0.maximumQueuedBytes = 2_000 }
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        let writers = Writers()
        // 516 bytes each on the wire: there is room for the first three to wait.
        let tasks = (51...56 as ClosedRange<UInt32>).map { writers.send(self.frame($0, 500), on: socket) }
        try await eventually("three refusals") { writers.count() == 3 }
        let refused = writers.ends.withLockedValue { Array($0.keys) }
        #expect(refused.allSatisfy { writers.error($0)?.code == .queueFull })
        try await server.connection(0).perform(.wakeUp)
        for task in tasks { await task.value }
        #expect((51...56).filter { writers.isSent($0) }.count == 3)
    }

    @Test func writerCancelledWhileItWaitsSendsNothing() async throws {
        let server = try await self.sleepingServer()
        let socket = self.socket(server, WritePolicy(highWaterMark: 1_000))
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        let writers = Writers()
        let first = writers.send(self.frame(51), on: socket)
        let second = writers.send(self.frame(52), on: socket)
        first.cancel()
        await first.value
        #expect(writers.error(51)?.code == .cancelled)
        try await server.connection(0).perform(.wakeUp)
        await second.value
        #expect(writers.isSent(52))
        #expect(try await server.received(2).map(\.serial) == [50, 52])
    }

    @Test func writerWaitingForRoomFailsWithTheConnection() async throws {
        let server = try await self.sleepingServer()
        let socket = self.socket(server, WritePolicy(highWaterMark: 1_000)) {
            $0.writeStallTimeout = .milliseconds(300)
        }
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        let writers = Writers()
        await writers.send(self.frame(51), on: socket).value
        #expect(writers.error(51)?.code == .connectionLost)
        #expect(writers.error(51)?.delivery == .notSent)
        #expect(writers.error(51)?.serial == 51)
    }

    @Test func writerWaitingForRoomContinuesOnTheNextConnectionIfAllowed() async throws {
        let server = try await self.sleepingServer()
        server.onOpen(number: 1, .drop)
        let socket = self.socket(server, WritePolicy(highWaterMark: 1_000, whenNotReady: .wait)) {
            $0.writeStallTimeout = .milliseconds(300)
        }
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        try await socket.send(self.frame(51))
        let received = try await server.received(1, onConnection: 1)
        #expect(received.map(\.serial) == [51])
    }

    /// Reads a little from time to time, like a peer at the other end of a slow link, while the test allows more bytes.
    private final class SlowReader: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let count: Watched<Int>
        private let allowed: Watched<Int>
        private var reads: RepeatedTask?

        init(_ count: Watched<Int>, allowed: Watched<Int>) {
            self.count = count
            self.allowed = allowed
        }

        func channelActive(context: ChannelHandlerContext) {
            let loopBound = NIOLoopBound(context, eventLoop: context.eventLoop)
            let (count, allowed) = (self.count, self.allowed)
            self.reads = context.eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(1)) { _ in
                if count.current < allowed.current { loopBound.value.read() }
            }
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let length = self.unwrapInboundIn(data).readableBytes
            self.count.withLockedValue { $0 += length }
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.reads?.cancel()
        }
    }

    /// The channel takes no more for far longer than the timeout, although bytes make progress: time passes only after
    /// some have.
    @Test func slowLinkIsNotAStall() async throws {
        let (count, allowed) = (Watched(0), Watched(0))
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64 << 10))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(SlowReader(count, allowed: allowed))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(server.localAddress?.port)
        var configuration = SocketConfiguration(servers: [Endpoint(host: "127.0.0.1", port: port)])
        let time = ManualTime()
        configuration.time = SocketTime(time)
        configuration.heartbeat = nil
        configuration.writeStallTimeout = .seconds(30)
        configuration.writePolicy = WritePolicy(highWaterMark: .max)
        let socket = Socket(configuration: configuration)
        try await self.connect(socket)
        // More than the kernels take.
        for serial in 50..<54 as Range<UInt32> { try await socket.send(self.frame(serial, 15 << 20)) }
        for number in 1...30 {
            // So much room in its buffer that the kernel of the server announces it.
            allowed.withLockedValue { $0 = number << 20 }
            try await count.wait("another MiB") { $0 >= number << 20 }
            // A third of the timeout, since the last bytes may not have been acknowledged yet.
            await time.advance(by: .seconds(10))
        }
        #expect(socket.state.description.hasPrefix("ready"), "\(socket.history)")
        socket.disconnect()
        try await server.close()
    }

    // MARK: No connection

    @Test func framesWrittenBeforeTheConnectionIsReadyAreSentInOrderAfterTheGate() async throws {
        let server = try await MockServer(.echo)
        let gate = Gate()
        let socket = self.socket(server, WritePolicy(whenNotReady: .wait)) {
            $0.gate = HandshakeGate { handshake in
                _ = try await handshake.exchange(type: 17)
                try await gate.wait()
            }
        }
        let writers = Writers()
        var tasks: [Task<Void, Never>] = []
        // Frames of equal priority are sent in order of submission, which the test knows only if it has seen them wait.
        for (serial, priority) in [(50, 0.25), (51, 0.5), (52, 0.75)] as [(UInt32, Float)] {
            tasks.append(writers.send(self.frame(serial), FramePriority(rawValue: priority), on: socket))
        }
        socket.connect()
        try await server.received(1, ofType: 17)
        tasks.append(writers.send(self.frame(53, 1), .low, on: socket))
        // Rejected for its size when the others already wait, since submissions run in order.
        _ = await #expect(throws: SocketError.self) { try await socket.send(self.frame(99, Self.tooMuch + 1)) }
        #expect(writers.count() == 0)
        gate.open()
        for task in tasks { await task.value }
        let serials = try await server.received(4, ofType: 16).map(\.serial)
        #expect(serials.prefix(2) == [52, 51])
        #expect(Set(serials.suffix(2)) == [50, 53])
        #expect(server.received.first?.type == 17)
    }

    @Test func withoutAConnectionItFailsAtOnceByDefault() async throws {
        let server = try await MockServer(.drop)
        let socket = self.socket(server, WritePolicy())
        let error = await #expect(throws: SocketError.self) { try await socket.send(self.frame(50)) }
        #expect(error?.code == .notConnected)
    }

    @Test func writerWaitingForAConnectionReceivesTheReasonOfTheFailure() async throws {
        let server = try await MockServer(.drop)
        await server.shutdown()
        let socket = self.socket(server, WritePolicy(whenNotReady: .wait)) { $0.backoff.maximumRounds = 2 }
        let writers = Writers()
        let task = writers.send(self.frame(50), on: socket)
        socket.connect()
        await task.value
        let error = writers.error(50)
        #expect([.noServerReachable, .notConnected].contains(error?.code), "\(String(describing: error))")
        #expect(error?.delivery == .notSent)
        // A later frame does not wait for a connection that is never made.
        let late = await #expect(throws: SocketError.self) { try await socket.send(self.frame(51)) }
        #expect(late?.code == .notConnected)
    }

    @Test func disconnectEndsEveryWait() async throws {
        let server = try await self.sleepingServer()
        let socket = self.socket(server, WritePolicy(highWaterMark: 1_000, whenNotReady: .wait))
        let writers = Writers()
        let early = writers.send(self.frame(49), on: socket)
        // The frame waits in line, since submissions run in order.
        _ = await #expect(throws: SocketError.self) { try await socket.send(self.frame(99, Self.tooMuch + 1)) }
        socket.disconnect()
        await early.value
        #expect([.cancelled, .notConnected].contains(writers.error(49)?.code))
        try await self.connect(socket)
        try await socket.send(self.frame(50, Self.tooMuch))
        let late = writers.send(self.frame(51), on: socket)
        _ = await #expect(throws: SocketError.self) { try await socket.send(self.frame(99, Self.tooMuch + 1)) }
        socket.disconnect()
        await late.value
        #expect([.cancelled, .notConnected].contains(writers.error(51)?.code))
    }

    @Test func waitingWriterKeepsItsSocketAlive() async throws {
        let server = try await MockServer(.drop)
        var socket: Socket? = self.socket(server, WritePolicy(whenNotReady: .wait))
        let writers = Writers()
        let task = socket.map { writers.send(self.frame(50), on: $0) }
        socket?.connect()
        socket = nil
        await task?.value
        #expect(writers.isSent(50))
    }

    // MARK: Memory

    /// Keeps the highest value of the only meter.
    private final class PeakMeter: MetricsFactory, MeterHandler {
        private let value = NIOLockedValueBox((now: 0.0, peak: 0.0))

        var peak: Int { Int(self.value.withLockedValue { $0.peak }) }
        var now: Int { Int(self.value.withLockedValue { $0.now }) }

        func set(_ value: Int64) { self.set(Double(value)) }
        func set(_ value: Double) { self.value.withLockedValue { $0 = (value, max(value, $0.peak)) } }
        func increment(by amount: Double) { self.set(self.value.withLockedValue { $0.now } + amount) }
        func decrement(by amount: Double) { self.set(self.value.withLockedValue { $0.now } - amount) }

        func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
            #expect(label == "hhsocket.queued_bytes")
            return self
        }
        func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
            NOOPMetricsHandler.instance
        }
        func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
            NOOPMetricsHandler.instance
        }
        func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
            NOOPMetricsHandler.instance
        }
        func destroyMeter(_ handler: any MeterHandler) {}
        func destroyCounter(_ handler: any CounterHandler) {}
        func destroyRecorder(_ handler: any RecorderHandler) {}
        func destroyTimer(_ handler: any TimerHandler) {}
    }

    @Test func memoryOfAWriterFasterThanItsPeerStaysUnderTheMarkPlusOneReadBuffer() async throws {
        let server = try await self.sleepingServer()
        let meter = PeakMeter()
        let mark = 1 << 20
        let socket = self.socket(server, WritePolicy(highWaterMark: mark)) { $0.metricsFactory = meter }
        try await self.connect(socket)
        let sent = NIOLockedValueBox(0)
        let total = 1_024
        let writer = Task {
            for serial in 0..<total {
                try await socket.send(self.frame(UInt32(serial), 64 << 10))
                sent.withLockedValue { $0 += 1 }
            }
        }
        // The writer reaches the mark, and waits there.
        try await eventually("the mark") { meter.now > mark - (65 << 10) }
        #expect(sent.withLockedValue { $0 } < total)
        for _ in 0..<20 {
            try await server.connection(0).perform(.wakeUp)
            try await server.connection(0).perform(.stopReading)
        }
        try await server.connection(0).perform(.wakeUp)
        try await writer.value
        let received = try await server.received(total)
        #expect(received.map(\.serial) == (0..<UInt32(total)).map { $0 })
        // The channel holds at most one read.
        #expect(meter.peak <= mark + (256 << 10), "\(meter.peak)")
        try await eventually("the end of the queue") { meter.now == 0 }
    }
}
