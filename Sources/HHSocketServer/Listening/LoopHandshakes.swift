// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import NIOCore

/// The TLS handshakes of one event loop, which begin in turn.
final class LoopHandshakes: Sendable {
    private struct State {
        var queue: HandshakeQueue<HandshakeWait>
        var timer: (deadline: NIODeadline, id: SocketLoop.TimerID)?
        /// Whether the server shuts down, so that no turns follow.
        var isOver = false
    }

    private let socketLoop: SocketLoop
    private let state: NIOLoopBoundBox<State>
    private let waiting = ManagedAtomic(0)

    init(_ socketLoop: SocketLoop, maximum: Int) {
        self.socketLoop = socketLoop
        self.state = .makeBoxSendingValue(
            State(queue: HandshakeQueue(maximum: maximum)),
            eventLoop: socketLoop.eventLoop
        )
    }

    /// The connections that wait for their turn. Any thread.
    var waitingCount: Int { self.waiting.load(ordering: .relaxed) }

    // MARK: On the event loop

    /// - Returns: The number of a handshake that may begin at once; nil: the connection has to wait.
    func enter() -> UInt64? { self.state.value.queue.enter(now: .now()) }

    func wait(_ wait: HandshakeWait) -> UInt64 {
        let number = self.state.value.queue.wait(wait)
        self.changed()
        return number
    }

    /// A handshake has ended, or a waiting connection has gone.
    func leave(_ number: UInt64) {
        self.state.value.queue.leave(number)
        self.beginNext()
    }

    private func beginNext() {
        while !self.state.value.isOver, let next = self.state.value.queue.next(now: .now()) {
            next.element.turnHasCome(next.number)
        }
        self.changed()
    }

    private func changed() {
        self.waiting.store(self.state.value.queue.waitingCount, ordering: .relaxed)
        let deadline = self.state.value.isOver ? nil : self.state.value.queue.wakesAt
        // One that rings too early sets another.
        if let timer = self.state.value.timer, let deadline, timer.deadline <= deadline { return }
        if let timer = self.state.value.timer {
            self.socketLoop.removeTimer(timer.id)
            self.state.value.timer = nil
        }
        guard let deadline else { return }
        let id = self.socketLoop.setTimer(deadline) { turn in
            self.state.value.timer = nil
            self.state.value.queue.woke(for: deadline, now: turn.now)
            self.beginNext()
        }
        self.state.value.timer = (deadline, id)
    }

    /// Closes the connections that wait.
    func closeWaiting() {
        self.state.value.isOver = true
        for wait in self.state.value.queue.allWaiting { wait.close() }
    }
}

/// The handler of a connection that waits for the turn of its TLS handshake. Nothing is read meanwhile, except bytes
/// that arrived with a proxy's header: a client that leaves before has cost no handshake.
final class HandshakeWait: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    /// The largest number of bytes that may have arrived with a PROXY header: those read in one turn of the event loop,
    /// and more than a client sends before it has an answer.
    private static let maximumHeld = 64 << 10

    private let handshakes: LoopHandshakes
    /// The bytes that have arrived after a PROXY header; nil if there is none.
    private var held: ByteBuffer?
    private let begin: (ChannelPipeline.SynchronousOperations, HandshakeWait, UInt64) throws -> Void
    private var number: UInt64?
    private var context: ChannelHandlerContext?

    /// - Parameters:
    ///   - followsHeader: Whether it is added by the read of a PROXY header, after which more may have been read.
    ///   - begin: Adds the handlers of the handshake with this number after this one.
    init(
        _ handshakes: LoopHandshakes,
        followsHeader: Bool,
        begin: @escaping (ChannelPipeline.SynchronousOperations, HandshakeWait, UInt64) throws -> Void
    ) {
        self.handshakes = handshakes
        self.held = followsHeader ? ByteBuffer() : nil
        self.begin = begin
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        _ = context.channel.setOption(.autoRead, value: false)
        self.number = self.handshakes.wait(self)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        guard let number = self.number.take() else { return }
        self.handshakes.leave(number)
    }

    func turnHasCome(_ number: UInt64) {
        self.number = nil
        guard let context = self.context else { return self.handshakes.leave(number) }
        do {
            try self.begin(context.pipeline.syncOperations, self, number)
            if let held = self.held.take(), held.readableBytes > 0 {
                context.fireChannelRead(NIOAny(held))
                context.fireChannelReadComplete()
            }
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
            _ = context.channel.setOption(.autoRead, value: true)
        } catch {
            self.handshakes.leave(number)
            context.close(promise: nil)
        }
    }

    func close() {
        self.context?.close(promise: nil)
    }

    /// Although nothing is read, the system reports that a client has gone, after everything that it had sent.
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = self.unwrapInboundIn(data)
        guard self.held != nil, (self.held?.readableBytes ?? 0) + bytes.readableBytes <= Self.maximumHeld else {
            return context.close(promise: nil)
        }
        // Copied, as the memory of a read is larger.
        self.held?.writeImmutableBuffer(bytes)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent else { return context.fireUserInboundEventTriggered(event) }
        context.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
