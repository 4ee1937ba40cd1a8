// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The handler of a connection whose TLS handshake has not begun: it waits for the client's first bytes, and then for
/// its turn. A client that sends nothing takes no turn, and one that leaves before its turn has cost no handshake.
final class HandshakeWait: ChannelInboundHandler, RemovableChannelHandler, WaitingHandshake {
    typealias InboundIn = ByteBuffer

    private enum Stage {
        /// The client has sent nothing yet.
        case silent
        case waiting(UInt64)
        case over
    }

    /// The largest number of bytes that may have arrived: those read in one turn of the event loop, and more than a
    /// client sends before it has an answer.
    private static let maximumHeld = 64 << 10

    private let peer: ServerPeer
    private let address: SocketAddress?
    private let timeout: TimeAmount
    private let log: (String) -> Void
    private let begin: (ChannelPipeline.SynchronousOperations, HandshakeWait, UInt64) throws -> Void
    private var held = OwnedBytes()
    private var hold: Hold
    private var stage = Stage.silent
    private var context: ChannelHandlerContext?

    /// - Parameters:
    ///   - address: The client's, if it is known.
    ///   - timeout: The time within which the client must send its first bytes.
    ///   - log: Logs why a handshake has failed before it has begun.
    ///   - begin: Adds the handlers of the handshake with this number after this one.
    init(
        _ peer: ServerPeer,
        _ address: SocketAddress?,
        timeout: TimeAmount,
        log: @escaping (String) -> Void,
        begin: @escaping (ChannelPipeline.SynchronousOperations, HandshakeWait, UInt64) throws -> Void
    ) {
        self.peer = peer
        self.hold = Hold(.memory(0), of: peer.account)
        self.address = address
        self.timeout = timeout
        self.log = log
        self.begin = begin
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        let channel = context.channel
        self.peer.enter(.handshakeWait, from: self.address, within: self.timeout) {
            self.failed("nothing has come within \(Duration(self.timeout))")
            channel.close(promise: nil)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        self.hold.change(to: 0)
        self.failed("the client has closed the connection")
        if case .waiting(let number) = self.endWait() { self.peer.loop.handshakes.remove(number) }
    }

    /// Ends the wait.
    ///
    /// - Returns: What it was in.
    private func endWait() -> Stage {
        defer { self.stage = .over }
        if case .silent = self.stage { self.peer.endStage() }
        return self.stage
    }

    /// The client is to blame: it did not even begin.
    private func failed(_ reason: String) {
        guard case .silent = self.stage else { return }
        self.peer.loop.counters.count(.tlsFailures)
        self.log(reason)
    }

    private func firstBytesCame(_ context: ChannelHandlerContext) {
        guard case .silent = self.stage else { return }
        // Its turn comes without its doing.
        self.peer.endStage()
        let handshakes = self.peer.loop.handshakes
        if let number = handshakes.enter() {
            self.stage = .waiting(number)
            return self.admitted(number)
        }
        _ = context.channel.setOption(.autoRead, value: false)
        self.stage = .waiting(handshakes.wait(self, of: ClientAddress(self.address)))
    }

    func admitted(_ number: UInt64) {
        guard let context = self.context else { return self.peer.loop.handshakes.remove(number) }
        _ = self.endWait()
        do {
            try self.begin(context.pipeline.syncOperations, self, number)
            let held = self.held.buffer
            self.held = OwnedBytes()
            self.hold.change(to: 0)
            context.fireChannelRead(NIOAny(held))
            context.fireChannelReadComplete()
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
            _ = context.channel.setOption(.autoRead, value: true)
        } catch {
            self.peer.loop.handshakes.remove(number)
            context.close(promise: nil)
        }
    }

    func close() {
        self.context?.close(promise: nil)
    }

    /// Although nothing is read while it waits for its turn, the system reports that a client has gone, after
    /// everything that it had sent.
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = LentBytes(self.unwrapInboundIn(data))
        guard self.held.count + bytes.count <= Self.maximumHeld else { return context.close(promise: nil) }
        self.held.append(bytes)
        self.hold.change(to: self.held.charge)
        self.firstBytesCame(context)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent else { return context.fireUserInboundEventTriggered(event) }
        context.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
