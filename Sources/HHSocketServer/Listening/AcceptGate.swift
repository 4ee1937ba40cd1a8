// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketSystem
import NIOCore

/// The handler of a listening channel that stops accepting while the system has no resources for one more connection;
/// NIO would retry immediately again and again.
final class AcceptGate: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias OutboundIn = any Channel

    /// The time between two checks for resources.
    private static let pause = TimeAmount.milliseconds(100)
    /// The number of connections that are closed in such a time for others, at most.
    private static let maximumEvictions = 32

    private let outage: DescriptorOutage
    private let shortage: ConnectionShortage
    private var isClosed = false
    /// The number of connections accepted in this turn.
    private var accepted = 0
    /// Whether to accept when it opens again.
    private var hasRead = false

    init(_ outage: DescriptorOutage, _ shortage: ConnectionShortage) {
        self.outage = outage
        self.shortage = shortage
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // After other errors the listening channel ends, or a client has gone before it was accepted.
        if let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) {
            self.outage.begin("\(error)")
            self.close(context)
        }
        context.fireErrorCaught(error)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.accepted += 1
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        // Before the next connection takes a descriptor that the process needs.
        self.outage.accepted(self.accepted)
        self.accepted = 0
        context.fireChannelReadComplete()
    }

    func read(context: ChannelHandlerContext) {
        if self.outage.isUnderWay { self.close(context) }
        if self.isClosed { self.hasRead = true } else { context.read() }
    }

    private func close(_ context: ChannelHandlerContext) {
        guard !self.isClosed else { return }
        self.isClosed = true
        self.makeRoom()
        self.openSoon(context)
    }

    private func makeRoom() {
        for _ in 0..<Self.maximumEvictions {
            guard self.shortage.makeRoom() else { return }
        }
    }

    private func openSoon(_ context: ChannelHandlerContext) {
        context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) {
            guard context.channel.isActive else { return }
            guard self.outage.hasEnded() else {
                self.makeRoom()
                return self.openSoon(context)
            }
            self.isClosed = false
            guard self.hasRead else { return }
            self.hasRead = false
            context.read()
        }
    }
}
