// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import NIOCore

/// The TLS handshakes of one event loop, which begin in turn.
///
/// The queue divides the event loop's time and ends no connection, so its clock is the system's, also where clients are
/// judged by another one.
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

    /// - Parameter address: The client's, if it is known: addresses take turns.
    func wait(_ wait: HandshakeWait, of address: ClientAddress?) -> UInt64 {
        let origin = address.map { UInt64(bitPattern: Int64($0.hashValue)) } ?? 0
        let number = self.state.value.queue.wait(wait, of: origin)
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
        let id = self.socketLoop.pause(until: deadline) { _ in
            self.state.value.timer = nil
            self.state.value.queue.woke(for: deadline, now: .now())
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

/// The handler of a connection whose TLS handshake has not begun: it waits for the client's first bytes, and then for
/// its turn. A client that sends nothing takes no turn, and one that leaves before its turn has cost no handshake.
final class HandshakeWait: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private enum Stage {
        /// The client has sent nothing yet.
        case silent(SocketLoop.TimerID?)
        case waiting(UInt64)
        case over
    }

    /// The largest number of bytes that may have arrived: those read in one turn of the event loop, and more than a
    /// client sends before it has an answer.
    private static let maximumHeld = 64 << 10

    private let loop: ServerLoop
    private let core: ServerCore
    private let address: ClientAddress?
    private let timeout: TimeAmount
    private let log: (String) -> Void
    private let begin: (ChannelPipeline.SynchronousOperations, HandshakeWait, UInt64) throws -> Void
    private var held = ByteBuffer()
    private var stage = Stage.silent(nil)
    private var context: ChannelHandlerContext?

    /// - Parameters:
    ///   - address: The client's, if it is known.
    ///   - timeout: The time within which the client must send its first bytes.
    ///   - log: Logs why a handshake has failed before it has begun.
    ///   - begin: Adds the handlers of the handshake with this number after this one.
    init(
        _ loop: ServerLoop,
        _ core: ServerCore,
        _ address: ClientAddress?,
        timeout: TimeAmount,
        log: @escaping (String) -> Void,
        begin: @escaping (ChannelPipeline.SynchronousOperations, HandshakeWait, UInt64) throws -> Void
    ) {
        self.loop = loop
        self.core = core
        self.address = address
        self.timeout = timeout
        self.log = log
        self.begin = begin
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        let channel = context.channel
        guard self.loop.draining == nil else { return channel.close(promise: nil) }
        self.loop.addHandshake(on: channel, ConnectionCost.waitingHandshake, from: self.address, self.core)
        self.loop.socketLoop.enter { turn in
            guard case .silent(nil) = self.stage else { return }
            self.stage = .silent(
                self.loop.socketLoop.setTimer(turn.now + self.timeout) { _ in
                    self.failed("nothing has come within \(Duration(self.timeout))")
                    channel.close(promise: nil)
                }
            )
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        self.failed("the client has closed the connection")
        if case .waiting(let number) = self.leave(context.channel) { self.loop.handshakes.leave(number) }
    }

    /// Ends the wait.
    ///
    /// - Returns: What it was in.
    private func leave(_ channel: any Channel) -> Stage {
        let former = self.stage
        self.stage = .over
        switch former {
        case .over: return former
        case .silent(let timer): if let timer { self.loop.socketLoop.removeTimer(timer) }
        case .waiting: break
        }
        self.loop.removeHandshake(on: channel)
        return former
    }

    /// The client is to blame: it did not even begin.
    private func failed(_ reason: String) {
        guard case .silent = self.stage else { return }
        self.loop.counters.count(\.tlsFailures)
        self.log(reason)
    }

    private func firstBytesCame(_ context: ChannelHandlerContext) {
        guard case .silent(let timer) = self.stage else { return }
        if let timer { self.loop.socketLoop.removeTimer(timer) }
        if let number = self.loop.handshakes.enter() {
            self.stage = .waiting(number)
            return self.turnHasCome(number)
        }
        _ = context.channel.setOption(.autoRead, value: false)
        self.stage = .waiting(self.loop.handshakes.wait(self, of: self.address))
    }

    func turnHasCome(_ number: UInt64) {
        guard let context = self.context else { return self.loop.handshakes.leave(number) }
        _ = self.leave(context.channel)
        do {
            try self.begin(context.pipeline.syncOperations, self, number)
            context.fireChannelRead(NIOAny(self.held))
            context.fireChannelReadComplete()
            self.held = ByteBuffer()
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
            _ = context.channel.setOption(.autoRead, value: true)
        } catch {
            self.loop.handshakes.leave(number)
            context.close(promise: nil)
        }
    }

    func close() {
        self.context?.close(promise: nil)
    }

    /// Although nothing is read while it waits for its turn, the system reports that a client has gone, after
    /// everything that it had sent.
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = self.unwrapInboundIn(data)
        guard self.held.readableBytes + bytes.readableBytes <= Self.maximumHeld else {
            return context.close(promise: nil)
        }
        // Copied, as the memory of a read is larger.
        self.held.writeBuffer(&bytes)
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
