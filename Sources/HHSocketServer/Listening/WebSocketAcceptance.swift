import HHSocket
import NIOCore

/// Stands behind TCP or TLS until a WebSocket is open, for a limited time; then its place is that of who speaks on it.
/// On a shared port the link is behind it from the start, and it steps aside where the first byte is not one of HTTP.
final class WebSocketAcceptance: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The settings of a listener.
    struct Settings: Sendable {
        /// The first whose path is the request's, or that has none, answers.
        var routes: [Route]
        var sharesPort: Bool
        var timeout: Duration
    }

    /// The WebSockets at one path.
    struct Route: Sendable {
        var rules: OpeningRules
        var authenticate: (@Sendable (WebSocketListening.Request) async -> WebSocketListening.Admission)?
        /// The settings of the compression of frames.
        var compression: WebSocketCompression?
        /// Speaks in messages; nil: frames.
        var messages: WebSocketRoute?
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
    private let core: ServerCore
    private let listener: Endpoint
    /// Whether there are too many connections.
    private let isRefused: Bool
    private let makeConnection: () -> ServerConnection
    /// On a shared port, where it is there already.
    private var connection: ServerConnection?
    private var state: State
    private var reader = OpeningRequestReader()
    /// Output of the link, until the WebSocket is open.
    private var held: [ByteBuffer] = []
    private var timer: SocketLoop.TimerID?
    private var context: ChannelHandlerContext?
    private var authentication: Task<Void, Never>?

    init(
        _ settings: Settings,
        _ loop: ServerLoop,
        _ core: ServerCore,
        listener: Endpoint,
        isRefused: Bool,
        _ makeConnection: @escaping () -> ServerConnection
    ) {
        self.settings = settings
        self.loop = loop
        self.core = core
        self.listener = listener
        self.isRefused = isRefused
        self.makeConnection = makeConnection
        self.state = settings.sharesPort ? .undecided : .request
    }

    /// The connection has been made, on a shared port.
    func linkIsThere(_ connection: ServerConnection) {
        self.connection = connection
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
        self.connection = nil
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
        guard let route = self.settings.routes.first(where: { $0.rules.path == nil || $0.rules.path == head.path })
        else { return self.reject(.path, context) }
        let decision = route.rules.decide(head)
        guard case .upgrade = decision, let authenticate = route.authenticate else {
            return self.carryOut(decision, route, head, context)
        }
        self.state = .authenticating
        let rules = route.rules
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        let eventLoop = context.eventLoop
        self.authentication = Task {
            let permission = await authenticate(WebSocketListening.Request(head)).permission
            var rules = rules
            rules.permission = { _ in permission }
            let decision = rules.decide(head)
            eventLoop.execute { bound.value.wasAuthenticated(decision, route, head) }
        }
    }

    private func wasAuthenticated(_ decision: OpeningDecision, _ route: Route, _ head: OpeningRequestHead) {
        guard self.state == .authenticating, let context = self.context else { return }
        self.carryOut(decision, route, head, context)
        self.setReading(true, context)
    }

    private func carryOut(
        _ decision: OpeningDecision,
        _ route: Route,
        _ head: OpeningRequestHead,
        _ context: ChannelHandlerContext
    ) {
        do {
            switch decision {
            case .upgrade(let agreement, let response):
                guard let messages = route.messages else {
                    return try self.carryFrames(agreement.deflate, route.compression, response, context)
                }
                guard !self.isRefused, self.loop.draining == nil else { return self.reject(Self.busy, context) }
                var identity: String?
                switch self.core.connections.admit?(ConnectingClient(context, listener: self.listener)) {
                case nil, .admit: break
                case .admitAs(let name): identity = name
                case .refuse(let reason, _):
                    self.loop.counters.count(\.connectionsRefusedByAdmission)
                    return self.reject(.application(status: 403, headers: HTTPFields([]), text: reason), context)
                }
                try self.carry(messages, agreement, head, response, identity: identity, context)
            case .reject(let rejection):
                self.reject(rejection, context)
            }
        } catch {
            context.close(promise: nil)
        }
    }

    private static let busy = OpeningRejection.application(
        status: 503,
        headers: HTTPFields([HTTPField(name: "Retry-After", value: "5")]),
        text: "The server takes no more connections."
    )

    private func carryFrames(
        _ deflate: DeflateAgreement?,
        _ compression: WebSocketCompression?,
        _ response: ByteBuffer,
        _ context: ChannelHandlerContext
    ) throws {
        context.writeAndFlush(self.wrapOutboundOut(response), promise: nil)
        let operations = context.pipeline.syncOperations
        let carriage = WebSocketCarriage(
            role: .server,
            deflate: deflate,
            compression: compression,
            buffers: self.loop.socketLoop.buffers
        )
        try operations.addHandler(carriage, position: .after(self))
        if let connection = self.connection {
            connection.greeting.isCompressed = deflate != nil
        } else {
            let connection = self.makeConnection()
            connection.greeting.isCompressed = deflate != nil
            try connection.add(to: operations, position: .after(carriage))
            self.loop.socketLoop.enter { connection.begin(in: &$0) }
        }
        carriage.send(self.held)
        self.end(context)
    }

    private func carry(
        _ route: WebSocketRoute,
        _ agreement: OpeningAgreement,
        _ head: OpeningRequestHead,
        _ response: ByteBuffer,
        identity: String?,
        _ context: ChannelHandlerContext
    ) throws {
        context.writeAndFlush(self.wrapOutboundOut(response), promise: nil)
        let operations = context.pipeline.syncOperations
        if let connection = self.connection {
            // It has said nothing, and is another's place now.
            connection.leavePipeline(operations)
        }
        let session = MessageSession(route, agreement.deflate, self.loop, self.core)
        try operations.addHandler(session.link, position: .after(self))
        let address = context.remoteAddress
        self.loop.socketLoop.enter {
            session.begin(head, subprotocol: agreement.subprotocol, address, identity: identity, in: &$0)
        }
        self.end(context)
    }

    /// Steps aside, and gives what came behind the request to those who are there.
    private func end(_ context: ChannelHandlerContext) {
        self.state = .done
        let rest = self.reader.takeRest()
        if rest.readableBytes > 0 {
            context.fireChannelRead(NIOAny(rest))
            context.fireChannelReadComplete()
        }
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
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
