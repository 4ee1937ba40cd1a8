import HHSocket
import NIOCore

/// Stands behind TCP or TLS until a WebSocket is open, for a limited time; then its place is the carriage's. On a shared
/// port the link is behind it from the start, and it steps aside where the first byte is not one of HTTP.
final class WebSocketAcceptance: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The settings of a listener.
    struct Settings: Sendable {
        var rules: OpeningRules
        var authenticate: (@Sendable (WebSocketListening.Request) async -> WebSocketListening.Admission)?
        var sharesPort: Bool
        var timeout: Duration
    }

    private enum State {
        /// No byte has come on a shared port.
        case undecided
        case request
        case authenticating
        /// The rejection was sent; what comes is discarded.
        case rejecting
        case done
    }

    /// The time that a client may take to read a rejection.
    private static let lingerTime = TimeAmount.seconds(5)

    private let settings: Settings
    private let loop: ServerLoop
    /// Makes the connection; nil on a shared port, where it is there already.
    private let connection: (() -> ServerConnection)?
    private var state: State
    private var reader = OpeningRequestReader()
    /// Output of the link, until the WebSocket is open.
    private var held: [ByteBuffer] = []
    private var timer: SocketLoop.TimerID?
    private var context: ChannelHandlerContext?
    private var authentication: Task<Void, Never>?

    init(_ settings: Settings, _ loop: ServerLoop, _ connection: (() -> ServerConnection)?) {
        self.settings = settings
        self.loop = loop
        self.connection = connection
        self.state = connection == nil ? .undecided : .request
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        guard self.state == .request else { return }
        guard self.loop.draining == nil else { return context.channel.close(promise: nil) }
        self.loop.addHandshake(on: context.channel)
        self.limit(TimeAmount(clamping: self.settings.timeout))
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        self.state = .done
        self.authentication?.cancel()
        self.removeTimer()
        self.loop.removeHandshake(on: context.channel)
    }

    private func limit(_ time: TimeAmount) {
        self.removeTimer()
        self.loop.socketLoop.enter { turn in
            guard self.context != nil else { return }
            self.timer = self.loop.socketLoop.setTimer(turn.now.advanced(clamping: time)) { _ in
                self.timer = nil
                self.context?.close(promise: nil)
            }
        }
    }

    private func removeTimer() {
        if let timer = self.timer.take() { self.loop.socketLoop.removeTimer(timer) }
    }

    // MARK: Received bytes

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = self.unwrapInboundIn(data)
        switch self.state {
        case .undecided:
            guard let first = bytes.getInteger(at: bytes.readerIndex, as: UInt8.self) else { return }
            guard (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(first) else {
                self.state = .done
                context.fireChannelRead(data)
                context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
                return
            }
            self.state = .request
            self.limit(TimeAmount(clamping: self.settings.timeout))
            self.read(bytes, context)
        case .request:
            self.read(bytes, context)
        case .authenticating:
            // No client may send before it has the answer: one that does is read when it has it.
            self.reader.append(bytes)
            self.setReading(false, context)
        case .rejecting:
            break
        case .done:
            context.fireChannelRead(data)
        }
    }

    private func setReading(_ isOn: Bool, _ context: ChannelHandlerContext) {
        _ = context.channel.setOption(.autoRead, value: isOn)
    }

    private func read(_ bytes: ByteBuffer, _ context: ChannelHandlerContext) {
        self.reader.append(bytes)
        do throws(OpeningRejection) {
            guard let head = try self.reader.next() else { return }
            self.decide(head, context)
        } catch {
            self.reject(error, context)
        }
    }

    private func decide(_ head: OpeningRequestHead, _ context: ChannelHandlerContext) {
        let decision = self.settings.rules.decide(head)
        guard case .upgrade = decision, let authenticate = self.settings.authenticate else {
            return self.carryOut(decision, context)
        }
        self.state = .authenticating
        let rules = self.settings.rules
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        let eventLoop = context.eventLoop
        self.authentication = Task {
            let permission = await authenticate(WebSocketListening.Request(head)).permission
            var rules = rules
            rules.permission = { _ in permission }
            let decision = rules.decide(head)
            eventLoop.execute { bound.value.wasAuthenticated(decision) }
        }
    }

    private func wasAuthenticated(_ decision: OpeningDecision) {
        guard self.state == .authenticating, let context = self.context else { return }
        self.carryOut(decision, context)
        self.setReading(true, context)
    }

    private func carryOut(_ decision: OpeningDecision, _ context: ChannelHandlerContext) {
        switch decision {
        case .upgrade(_, let response): self.upgrade(response, context)
        case .reject(let rejection): self.reject(rejection, context)
        }
    }

    private func upgrade(_ response: ByteBuffer, _ context: ChannelHandlerContext) {
        context.writeAndFlush(self.wrapOutboundOut(response), promise: nil)
        let operations = context.pipeline.syncOperations
        let carriage = WebSocketCarriage(role: .server)
        let connection = self.connection?()
        do {
            try operations.addHandler(carriage, position: .after(self))
            try connection?.add(to: operations, position: .after(carriage))
        } catch {
            return context.close(promise: nil)
        }
        let (rest, held) = (self.reader.takeRest(), self.held)
        self.state = .done
        operations.removeHandler(context: context, promise: nil)
        if let connection { self.loop.socketLoop.enter { connection.begin(in: &$0) } }
        carriage.send(held)
        carriage.begin(with: rest)
    }

    private func reject(_ rejection: OpeningRejection, _ context: ChannelHandlerContext) {
        self.state = .rejecting
        self.held = []
        context.writeAndFlush(self.wrapOutboundOut(rejection.encode()), promise: nil)
        // Closing at once could reset the connection before the client has read why.
        context.close(mode: .output, promise: nil)
        self.limit(Self.lingerTime)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent, self.state != .done, self.state != .undecided else {
            return context.fireUserInboundEventTriggered(event)
        }
        context.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard self.state != .done, self.state != .undecided else { return context.fireErrorCaught(error) }
        context.close(promise: nil)
    }

    // MARK: Sent bytes

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch self.state {
        case .undecided, .done:
            context.write(data, promise: promise)
        case .request, .authenticating:
            self.held.append(self.unwrapOutboundIn(data))
            promise?.succeed()
        case .rejecting:
            promise?.fail(ChannelError.outputClosed)
        }
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        switch self.state {
        case .undecided, .done: context.close(mode: mode, promise: promise)
        // Nobody is there who could read the link's last words.
        case .request, .authenticating: context.close(mode: .all, promise: promise)
        case .rejecting: promise?.succeed()
        }
    }
}
