// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// Much deferred work on a real event loop, beside a channel with bytes to read. The loop's own pauses end even if the
/// time of deadlines stands still.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LeftWorkTests {
    /// Counts its reads.
    private final class Counter: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let count: NIOLockedValueBox<Int>

        init(_ count: NIOLockedValueBox<Int>) { self.count = count }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.count.withLockedValue { $0 += self.unwrapInboundIn(data).readableBytes }
        }
    }

    /// Work that never ends.
    private final class EndlessWork: @unchecked Sendable {
        // Proof of Sendable: the loop is Sendable, and the flag is locked.
        private let loop: SocketLoop
        private let isOver = NIOLockedValueBox(false)
        private let left = NIOLockedValueBox(0)

        /// The number of pieces that continue.
        var count: Int { self.left.withLockedValue { $0 } }

        init(_ loop: SocketLoop) { self.loop = loop }

        func begin(_ count: Int) {
            self.left.withLockedValue { $0 += count }
            self.loop.submit(.closure { turn in for _ in 0..<count { self.doSome(in: &turn) } })
        }

        func end() { self.isOver.withLockedValue { $0 = true } }

        private func doSome(in turn: inout Turn) {
            let end = NIODeadline.now() + .microseconds(300)
            while NIODeadline.now() < end {}
            guard !self.isOver.withLockedValue({ $0 }) else { return self.left.withLockedValue { $0 -= 1 } }
            self.loop.afterOtherChannels(in: &turn) { self.doSome(in: &$0) }
        }
    }

    private static let times = [SocketTime(), SocketTime(ManualTime())]

    @Test(arguments: times) func submissionOfARestRunsThoughTheLoopIsClosedMeanwhile(time: SocketTime) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let eventLoop = group.next()
        let loop = SocketLoop(eventLoop: eventLoop, time: time)
        let hasRun = NIOLockedValueBox(false)
        loop.submit(
            .closure { _ in
                _ = loop.setTimer(time.now()) { _ in
                    let end = NIODeadline.now() + .milliseconds(160)
                    while NIODeadline.now() < end {}
                    // In the pause of 10 ms after this turn.
                    eventLoop.execute {
                        loop.submit(.closure { _ in hasRun.withLockedValue { $0 = true } })
                        eventLoop.execute { loop.close {} }
                    }
                }
            }
        )
        try await eventually("the submission", within: .seconds(20)) { hasRun.withLockedValue { $0 } }
        try await group.shutdownGracefully()
    }

    @Test(arguments: times) func channelsAreReadBetweenPieces(time: SocketTime) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = SocketLoop(eventLoop: group.next(), time: time)
        let received = NIOLockedValueBox(0)
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Counter(received))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let client = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(to: try #require(server.localAddress)).get()
        let work = EndlessWork(loop)
        work.begin(200)
        // Each piece is due again long before the last one is done.
        for count in 1...10 {
            try await client.writeAndFlush(ByteBuffer(string: "!"))
            try await eventually("\(count) bytes") { received.withLockedValue { $0 } == count }
        }
        work.end()
        try await client.close()
        // The loop retains deferred work, which retains the loop.
        try await eventually("no work is left") { work.count == 0 }
        try await group.shutdownGracefully()
    }
}
