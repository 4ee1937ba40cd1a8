import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

@testable import HHSocketServer

/// A client that sends the bytes it is told to, and takes what comes apart into frames. Every wait has a deadline.
final class RawClient: Sendable {
    struct TimedOut: Error {}
    struct Ended: Error {}

    private final class Inbox: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        let eventLoop: any EventLoop
        var decoder = FrameDecoder(direction: .response)
        var frames = CircularBuffer<FrameDecoder.Output>()
        var rawBytes = ByteBuffer()
        var hasEnded = false
        var waiting: (promise: EventLoopPromise<FrameDecoder.Output?>, deadline: Scheduled<Void>)?
        var waitingForEnd: (promise: EventLoopPromise<Void>, deadline: Scheduled<Void>)?

        init(eventLoop: any EventLoop) { self.eventLoop = eventLoop }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let bytes = self.unwrapInboundIn(data)
            if self.rawBytes.readableBytes < 4096 { self.rawBytes.writeImmutableBuffer(bytes) }
            self.decoder.append(bytes)
            do {
                while let frame = try self.decoder.next() { self.frames.append(frame) }
            } catch {
                context.fireErrorCaught(error)
            }
            self.serve()
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .inputClosed? = event as? ChannelEvent { self.end() }
        }

        func channelInactive(context: ChannelHandlerContext) { self.end() }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { self.end() }

        func end() {
            self.hasEnded = true
            self.serve()
        }

        func serve() {
            if let waiting = self.waiting, self.hasEnded || !self.frames.isEmpty {
                self.waiting = nil
                waiting.deadline.cancel()
                waiting.promise.succeed(self.frames.popFirst())
            }
            if let waiting = self.waitingForEnd, self.hasEnded {
                self.waitingForEnd = nil
                waiting.deadline.cancel()
                waiting.promise.succeed()
            }
        }

        func next(within time: TimeAmount) -> EventLoopFuture<FrameDecoder.Output?> {
            let promise = self.eventLoop.makePromise(of: FrameDecoder.Output?.self)
            let deadline = self.eventLoop.assumeIsolated().scheduleTask(in: time) {
                self.waiting = nil
                promise.fail(TimedOut())
            }
            self.waiting = (promise, deadline)
            self.serve()
            return promise.futureResult
        }

        func ended(within time: TimeAmount) -> EventLoopFuture<Void> {
            let promise = self.eventLoop.makePromise(of: Void.self)
            let deadline = self.eventLoop.assumeIsolated().scheduleTask(in: time) {
                self.waitingForEnd = nil
                promise.fail(TimedOut())
            }
            self.waitingForEnd = (promise, deadline)
            self.serve()
            return promise.futureResult
        }
    }

    let channel: any Channel
    private let inbox: NIOLoopBound<Inbox>

    private init(channel: any Channel, inbox: NIOLoopBound<Inbox>) {
        self.channel = channel
        self.inbox = inbox
    }

    /// - Parameter reads: Whether it reads by itself; otherwise not before ``startReading()``.
    static func connect(to address: Endpoint?, reads: Bool = true) async throws -> RawClient {
        guard let address else { throw Ended() }
        let made = NIOLockedValueBox<NIOLoopBound<Inbox>?>(nil)
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.autoRead, value: reads)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let inbox = Inbox(eventLoop: channel.eventLoop)
                    made.withLockedValue { $0 = NIOLoopBound(inbox, eventLoop: channel.eventLoop) }
                    try channel.pipeline.syncOperations.addHandler(inbox)
                }
            }
            .connect(host: address.host, port: address.port)
            .get()
        guard let inbox = made.withLockedValue({ $0 }) else { throw Ended() }
        return RawClient(channel: channel, inbox: inbox)
    }

    func send(_ bytes: ByteBuffer) async throws {
        try await self.channel.writeAndFlush(bytes).get()
    }

    func send(_ bytes: [UInt8]) async throws {
        try await self.send(ByteBuffer(bytes: bytes))
    }

    func startReading() async throws {
        try await self.channel.setOption(.autoRead, value: true).get()
    }

    func output(within time: TimeAmount = .seconds(120)) async throws -> FrameDecoder.Output {
        let inbox = self.inbox
        guard let output = try await self.channel.eventLoop.flatSubmit({ inbox.value.next(within: time) }).get() else {
            throw Ended()
        }
        return output
    }

    /// The next frame; its checksum was right.
    func frame(within time: TimeAmount = .seconds(120)) async throws -> Frame {
        guard case .frame(let frame) = try await self.output(within: time) else { throw Ended() }
        return frame
    }

    func frames(_ count: Int) async throws -> [Frame] {
        var frames: [Frame] = []
        for _ in 0..<count { frames.append(try await self.frame()) }
        return frames
    }

    /// Returns when the server has closed its direction.
    func ended(within time: TimeAmount = .seconds(120)) async throws {
        let inbox = self.inbox
        try await self.channel.eventLoop.flatSubmit { inbox.value.ended(within: time) }.get()
    }

    /// The first bytes received, at least 4096 if there were so many.
    func rawBytes() async throws -> [UInt8] {
        let inbox = self.inbox
        return try await self.channel.eventLoop.submit { Array(inbox.value.rawBytes.readableBytesView) }.get()
    }

    func halfClose() async throws {
        try await self.channel.close(mode: .output).get()
    }

    func close() {
        self.channel.close(promise: nil)
    }
}

/// A request's bytes.
func request(_ type: UInt32, _ serial: UInt32, _ body: ByteBuffer, checksum: UInt32? = nil) -> ByteBuffer {
    var bytes = ByteBuffer()
    bytes.writeInteger(type)
    bytes.writeInteger(serial)
    bytes.writeInteger(UInt32(body.readableBytes))
    bytes.writeImmutableBuffer(body)
    bytes.writeInteger(checksum ?? Adler32.checksum(body))
    return bytes
}

func request(_ type: UInt32, _ serial: UInt32, _ body: String = "", checksum: UInt32? = nil) -> ByteBuffer {
    request(type, serial, ByteBuffer(string: body), checksum: checksum)
}

/// Something that happens once, and that tests wait for.
final class Signal: Sendable {
    private let stream: AsyncStream<Void>
    private let continuation: AsyncStream<Void>.Continuation

    init() {
        (self.stream, self.continuation) = AsyncStream.makeStream()
    }

    func fire() { self.continuation.finish() }

    func wait(within time: Duration = .seconds(120)) async throws {
        try await withThrowingTaskGroup { group in
            group.addTask { for await _ in self.stream {} }
            group.addTask {
                try await Task.sleep(for: time)
                throw RawClient.TimedOut()
            }
            try await group.next()
            group.cancelAll()
        }
        try Task.checkCancellation()
    }
}

/// Counts from any thread.
final class Counter: Sendable {
    private let box = NIOLockedValueBox(0)
    var value: Int { self.box.withLockedValue { $0 } }

    @discardableResult
    func increment() -> Int {
        self.box.withLockedValue {
            $0 += 1
            return $0
        }
    }
}

/// Returns once `condition` holds.
func until(within time: Duration = .seconds(120), _ condition: @Sendable () async throws -> Bool) async throws {
    let deadline = ContinuousClock.now + time
    while try await !condition() {
        guard ContinuousClock.now < deadline else { throw RawClient.TimedOut() }
        await Task.yield()
    }
}

/// Runs `body` with a server that listens, and closes it at the end.
func withServer<Result: Sendable>(
    _ configuration: SocketServer.Configuration = .init(),
    _ router: Router,
    _ body: (SocketServer) async throws -> Result
) async throws -> Result {
    let server = SocketServer(configuration: configuration, router: router)
    try await server.start()
    do {
        let result = try await body(server)
        await server.shutdown(gracePeriod: .zero)
        return result
    } catch {
        await server.shutdown(gracePeriod: .zero)
        throw error
    }
}
