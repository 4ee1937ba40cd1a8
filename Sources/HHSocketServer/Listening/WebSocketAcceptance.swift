// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Follows TCP or TLS until a WebSocket is open, for a limited time; then the WebSocket's handlers replace it. On a
/// shared port the link follows it from the start, unless a proxy may still name the client, and it is removed if the
/// first byte is not HTTP.
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
        /// No byte has arrived on a shared port.
        case undecided
        case request
        case authenticating
        /// The rejection was sent; received bytes are discarded.
        case rejecting
        case done
    }

    /// The time within which a client must read a rejection.
    private static let lingerTime = TimeAmount.seconds(5)

    private let settings: Settings
    private let loop: ServerLoop
    private let core: ServerCore
    private let arrival: Arrival
    private let listener: Endpoint
    /// The memory that a connection costs by itself, in bytes.
    private let connectionCost: Int
    private let makeConnection: () -> ServerConnection
    /// On a shared port, where it already exists.
    private var connection: ServerConnection?
    private var state: State
    private var reader = OpeningRequestReader()
    /// Output of the link, until the WebSocket is open.
    private var held: [ByteBuffer] = []
    private var timer: SocketLoop.TimerID?
    private var context: ChannelHandlerContext?
    private var authentication: Authentication?

    init(
        _ settings: Settings,
        _ loop: ServerLoop,
        _ core: ServerCore,
        _ arrival: Arrival,
        listener: Endpoint,
        connectionCost: Int,
        _ makeConnection: @escaping () -> ServerConnection
    ) {
        self.settings = settings
        self.loop = loop
        self.core = core
        self.arrival = arrival
        self.listener = listener
        self.connectionCost = connectionCost
        self.makeConnection = makeConnection
        self.state = settings.sharesPort ? .undecided : .request
    }

    /// The connection has been made, on a shared port.
    func linkIsThere(_ connection: ServerConnection) {
        self.connection = connection
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        // A link after it has its own time limits.
        guard self.state == .request || !self.arrival.isAdmitted else { return }
        guard self.loop.draining == nil else { return context.channel.close(promise: nil) }
        self.loop.addHandshake(
            on: context.channel,
            self.connectionCost,
            from: ClientAddress(self.arrival.address),
            self.core
        )
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
                guard let context = self.context else { return }
                guard self.state == .undecided else { return context.close(promise: nil) }
                // A client that is silent for so long does not use HTTP.
                self.stepAside(context)
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
                return self.stepAside(context, with: data)
            }
            self.state = .request
            self.limit(TimeAmount(clamping: self.settings.timeout))
            self.read(bytes, context)
        case .request:
            self.read(bytes, context)
        case .authenticating:
            // A client must not send before it has the answer: bytes that arrive earlier are read after it.
            self.reader.append(bytes)
            self.setReading(false, context)
        case .rejecting:
            break
        case .done:
            context.fireChannelRead(data)
        }
    }

    /// The client carries its frames over no WebSocket.
    private func stepAside(_ context: ChannelHandlerContext, with data: NIOAny? = nil) {
        self.state = .done
        self.removeTimer()
        if self.connection == nil {
            do {
                try self.arrival.admit()
                let connection = self.makeConnection()
                try connection.add(to: context.pipeline.syncOperations, position: .after(self))
                self.loop.socketLoop.enter { connection.begin(in: &$0) }
            } catch {
                return context.close(promise: nil)
            }
        }
        if let data { context.fireChannelRead(data) }
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }

    /// Determines the client, if a proxy names it, and whether it is admitted. False if the connection must be closed
    /// at once.
    private func identify(_ head: OpeningRequestHead, _ context: ChannelHandlerContext) -> Bool {
        guard !self.arrival.isAdmitted else { return true }
        let proxy = self.arrival.address
        do {
            let malformed = try self.arrival.identify(byForwardedFor: head.headers.values("X-Forwarded-For"))
            guard let malformed else { return true }
            self.core.peerLog.write(
                .warning,
                "an X-Forwarded-For field is malformed",
                ["remote": "\(proxy.map { "\($0)" } ?? "unknown")", "value": "\(malformed)"],
                by: self.core.logger
            )
            return true
        } catch {
            return false
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
        // First: a client that asks for no path of ours counts for its address, too.
        guard self.identify(head, context) else { return context.close(promise: nil) }
        guard let route = self.settings.routes.first(where: { $0.rules.path == nil || $0.rules.path == head.path })
        else { return self.reject(.path, context) }
        let decision = route.rules.decide(head)
        guard case .upgrade = decision, let authenticate = route.authenticate, self.mayBeServed(by: route) else {
            return self.carryOut(decision, route, head, context)
        }
        self.state = .authenticating
        let rules = route.rules
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        let eventLoop = context.eventLoop
        self.authentication = self.core.authentications.begin(from: .init(self.arrival.address)) {
            let permission = await authenticate(WebSocketListening.Request(head)).permission
            var rules = rules
            rules.permission = { _ in permission }
            let decision = rules.decide(head)
            eventLoop.execute { bound.value.wasAuthenticated(decision, route, head) }
        } refused: {
            eventLoop.execute { bound.value.refuseAuthentication(route, head) }
        }
        if self.authentication == nil { self.refuseAuthentication(route, head) }
    }

    /// Whether the client is not sent away whoever it is: then it is not authenticated either. Where the route carries
    /// frames, the connection sends it away by a go-away.
    private func mayBeServed(by route: Route) -> Bool {
        self.arrival.refusal == nil && (route.messages == nil || self.loop.draining == nil)
    }

    /// Too many authentications wait.
    private func refuseAuthentication(_ route: Route, _ head: OpeningRequestHead) {
        guard self.state == .authenticating else { return }
        self.loop.counters.count(\.authenticationsRefused)
        let rejection = Self.busy("Authentication is not available.", retryAfter: .random(in: 1...5))
        self.wasAuthenticated(.reject(rejection), route, head)
    }

    private func wasAuthenticated(_ decision: OpeningDecision, _ route: Route, _ head: OpeningRequestHead) {
        guard self.state == .authenticating, let context = self.context else { return }
        // First: a link that receives the bytes which came early may suspend reading.
        self.setReading(true, context)
        self.carryOut(decision, route, head, context)
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
                guard self.mayBeServed(by: route) else {
                    return self.reject(Self.busy("The server takes no more connections.", retryAfter: 5), context)
                }
                var identity: String?
                let client = ConnectingClient(self.arrival.address, context, listener: self.listener)
                switch self.core.connections.admit?(client) {
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

    /// Writes the response, which `end` sends: by then the connection is registered, so that the next one of a client
    /// that has read the response is registered after it. Later writes belong to the WebSocket, and are not held.
    private func open(_ response: ByteBuffer, _ context: ChannelHandlerContext) {
        context.write(self.wrapOutboundOut(response), promise: nil)
        self.state = .done
    }

    private static func busy(_ text: String, retryAfter seconds: Int) -> OpeningRejection {
        .application(
            status: 503,
            headers: HTTPFields([HTTPField(name: "Retry-After", value: "\(seconds)")]),
            text: text
        )
    }

    private func carryFrames(
        _ deflate: DeflateAgreement?,
        _ compression: WebSocketCompression?,
        _ response: ByteBuffer,
        _ context: ChannelHandlerContext
    ) throws {
        self.open(response, context)
        let operations = context.pipeline.syncOperations
        let carriage = WebSocketCarriage(
            role: .server,
            deflate: deflate,
            compression: compression,
            buffers: self.loop.socketLoop.buffers,
            receiveBuffers: self.loop.socketLoop.receiveBuffers,
            time: self.loop.time
        )
        try operations.addHandler(carriage, position: .after(self))
        if let connection = self.connection {
            connection.carriage = carriage
            connection.greeting.isCompressed = deflate != nil
        } else {
            let connection = self.makeConnection()
            connection.carriage = carriage
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
        self.open(response, context)
        let operations = context.pipeline.syncOperations
        if let connection = self.connection {
            // It has sent nothing, and is replaced now.
            connection.leavePipeline(operations)
        }
        let session = MessageSession(route, agreement.deflate, self.loop, self.core, cost: self.connectionCost)
        try operations.addHandler(session.link, position: .after(self))
        let address = self.arrival.address
        self.loop.socketLoop.enter {
            session.begin(head, subprotocol: agreement.subprotocol, address, identity: identity, in: &$0)
        }
        self.end(context)
    }

    /// Sends the response, passes the bytes after the request to the next handlers, and removes itself.
    private func end(_ context: ChannelHandlerContext) {
        context.flush()
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
        // Closing at once could reset the connection before the client has read the reason.
        context.close(mode: .output, promise: nil)
        self.limit(Self.lingerTime)
    }

    /// Whether it precedes a link that handles everything.
    private var isTransparent: Bool {
        self.state == .done || (self.state == .undecided && self.connection != nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .inputClosed? = event as? ChannelEvent, !self.isTransparent else {
            return context.fireUserInboundEventTriggered(event)
        }
        context.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isTransparent else { return context.fireErrorCaught(error) }
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
        // There is no peer that could read the link's last bytes.
        case .request, .authenticating: context.close(mode: .all, promise: promise)
        // The output is closed already. A server that shuts down does not wait for a client to read its rejection.
        case .rejecting where mode == .output: promise?.succeed()
        case .rejecting: context.close(mode: .all, promise: promise)
        }
    }
}
