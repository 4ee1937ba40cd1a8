// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The only handler of the pipeline until the proxy has connected to the server.
final class ProxyHandshake: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var negotiation: any ProxyNegotiation
    private let done: EventLoopPromise<Void>
    private var received = ByteBuffer()
    private var hasBegun = false
    private var isDone = false

    /// - Parameter done: Succeeds when the connection reaches the server, fails with ``ProxyFailure`` otherwise. Its
    ///   callbacks must add the following handlers before they return, because these receive the bytes that arrived
    ///   directly after the proxy's answer.
    init(_ negotiation: any ProxyNegotiation, done: EventLoopPromise<Void>) {
        self.negotiation = negotiation
        self.done = done
    }

    func handlerAdded(context: ChannelHandlerContext) {
        if context.channel.isActive { self.begin(context) }
    }

    func channelActive(context: ChannelHandlerContext) {
        self.begin(context)
        context.fireChannelActive()
    }

    private func begin(_ context: ChannelHandlerContext) {
        guard !self.hasBegun else { return }
        self.hasBegun = true
        context.writeAndFlush(self.wrapOutboundOut(self.negotiation.begin()), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isDone else { return }
        var bytes = self.unwrapInboundIn(data)
        self.received.writeBuffer(&bytes)
        do throws(ProxyFailure) {
            while true {
                switch try self.negotiation.receive(&self.received) {
                case .wait: return
                case .send(let answer): context.writeAndFlush(self.wrapOutboundOut(answer), promise: nil)
                case .connected: return self.succeed(context)
                }
            }
        } catch {
            self.fail(error)
            context.close(promise: nil)
        }
    }

    private func succeed(_ context: ChannelHandlerContext) {
        let pipeline = context.pipeline.syncOperations
        self.isDone = true
        pipeline.removeHandler(context: context, promise: nil)
        self.done.succeed()
        // From the beginning of the pipeline: if they were forwarded from here, they would bypass TLS, which is
        // inserted at the front, and an attacker on the path could impersonate the server.
        if self.received.readableBytes > 0 { pipeline.fireChannelRead(NIOAny(self.received)) }
    }

    private func fail(_ error: any Error) {
        guard !self.isDone else { return }
        self.isDone = true
        self.done.fail(error)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isDone else { return context.fireErrorCaught(error) }
        let reason = (error as? IOError)?.systemReason ?? "\(error)"
        self.fail(ProxyFailure(.closed, "the connection to the proxy was lost: \(reason)", underlying: error))
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.fail(self.negotiation.closed())
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.fail(self.negotiation.closed())
    }
}
