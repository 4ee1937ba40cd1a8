// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// Follows TCP or TLS until a WebSocket is open, for a limited time; then the WebSocket's handlers replace it. On a
/// shared port the link follows it from the start, unless a proxy may still name the client, and it is removed if the
/// first byte is not HTTP.
final class WebSocketAcceptance: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

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

    private let settings: OpeningSettings
    private var peer: ServerPeer
    private let arrival: Arrival
    /// On a shared port, where the client is taken for one that sends frames until it sends a request.
    private var frames: FrameSession?
    private var state: State
    private var reader = OpeningRequestReader()
    /// The charge for the bytes that the client has sent and that are not passed on.
    private var hold: Hold
    /// Output of the link, until the WebSocket is open.
    private var held: [ByteBuffer] = []
    private var context: ChannelHandlerContext?
    private var authentication: Authentication?

    init(_ settings: OpeningSettings, peer: ServerPeer, arrival: Arrival) {
        self.settings = settings
        self.hold = Hold(.memory(0), of: peer.account)
        self.peer = peer
        self.arrival = arrival
        self.state = settings.sharesPort ? .undecided : .request
    }

    private var parts: ServerParts { self.peer.parts }
    private var loop: ServerLoop { self.peer.loop }

    /// Adds a link after this handler, on a shared port.
    ///
    /// - Returns: Begins it.
    func installFrames(on operations: ChannelPipeline.SynchronousOperations) throws -> ServerPeer.Begin {
        let (peer, frames) = (self.peer, FrameSession(self.peer, self.arrival))
        self.frames = frames
        try peer.add(frames.link, to: operations, position: .after(self))
        return { peer.begin(in: &$0) }
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        // A link after it has its own time limits.
        guard self.state == .request || !self.arrival.isAdmitted else { return }
        let time = TimeAmount(clamping: self.settings.timeout)
        self.peer.enter(.opening, from: self.arrival.address, within: time) { self.timeIsOver() }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        self.frames = nil
        self.state = .done
        self.hold.change(to: 0)
        self.authentication?.cancel()
    }

    private func limit(_ time: TimeAmount) { self.peer.limit(to: time) { self.timeIsOver() } }

    private func timeIsOver() {
        guard let context = self.context else { return }
        guard self.state == .undecided else { return context.close(promise: nil) }
        // A client that is silent for so long does not use HTTP.
        self.stepAside(context)
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
            // A client must not send before it has the answer: bytes that arrive earlier are read after it. These came
            // with the request.
            self.reader.append(bytes)
            self.hold.change(to: self.reader.heldBytes)
        case .rejecting:
            break
        case .done:
            context.fireChannelRead(data)
        }
    }

    /// The client carries its frames over no WebSocket.
    private func stepAside(_ context: ChannelHandlerContext, with data: NIOAny? = nil) {
        self.state = .done
        self.peer.endStage()
        if self.frames == nil {
            do {
                try self.arrival.admit()
                self.loop.socketLoop.enter(try self.installFrames(on: context.pipeline.syncOperations))
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
            self.parts.books.peerLog.write(
                .warning,
                "an X-Forwarded-For field is malformed",
                metadata: ["remote": "\(proxy.map { "\($0)" } ?? "unknown")", "value": "\(malformed)"],
                by: self.parts.books.logger
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
            let head = try self.reader.next()
            self.hold.change(to: self.reader.heldBytes)
            if let head { self.decide(head, context) }
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
            return self.carryOut(decision, route: route, head: head, context: context)
        }
        self.state = .authenticating
        self.setReading(false, context)
        let rules = route.rules
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        let eventLoop = context.eventLoop
        self.authentication = self.parts.services.authentications.begin(from: .init(self.arrival.address)) {
            let permission = await authenticate(WebSocketListening.Request(head)).permission
            var rules = rules
            rules.permission = { _ in permission }
            let decision = rules.decide(head)
            eventLoop.execute { bound.value.wasAuthenticated(decision, route: route, head: head) }
        } refused: {
            eventLoop.execute { bound.value.refuseAuthentication(route, head) }
        }
        if self.authentication == nil { self.refuseAuthentication(route, head) }
    }

    /// Whether the client is not sent away whoever it is: then it is not authenticated either. Where the route carries
    /// frames, the connection sends it away by a go-away.
    private func mayBeServed(by route: OpeningRoute) -> Bool {
        self.arrival.refusal == nil && (route.messages == nil || self.loop.draining == nil)
    }

    /// Too many authentications wait.
    private func refuseAuthentication(_ route: OpeningRoute, _ head: OpeningRequestHead) {
        guard self.state == .authenticating else { return }
        self.loop.counters.count(.authenticationsRefused)
        let rejection = Self.busy("Authentication is not available.", retryAfter: .random(in: 1...5))
        self.wasAuthenticated(.reject(rejection), route: route, head: head)
    }

    private func wasAuthenticated(_ decision: OpeningDecision, route: OpeningRoute, head: OpeningRequestHead) {
        guard self.state == .authenticating, let context = self.context else { return }
        // First: a link that receives the bytes which came early may suspend reading.
        self.setReading(true, context)
        self.carryOut(decision, route: route, head: head, context: context)
    }

    private func carryOut(
        _ decision: OpeningDecision,
        route: OpeningRoute,
        head: OpeningRequestHead,
        context: ChannelHandlerContext
    ) {
        do {
            switch decision {
            case .upgrade(let agreement, let response):
                guard let messages = route.messages else {
                    return try self.carryFrames(agreement.deflate, route.compression, after: response, context: context)
                }
                guard self.mayBeServed(by: route) else {
                    return self.reject(Self.busy("The server takes no more connections.", retryAfter: 5), context)
                }
                self.peer.arrived(from: self.arrival.address, refusal: nil)
                let decision = self.peer.decide(context)
                if case .refuse(let notice) = decision {
                    return self.reject(.application(status: 403, headers: HTTPFields([]), text: notice.reason), context)
                }
                try self.carry(messages, agreement, head: head, after: response, decision: decision, context: context)
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
        after response: ByteBuffer,
        context: ChannelHandlerContext
    ) throws {
        self.open(response, context)
        let operations = context.pipeline.syncOperations
        let carriage = WebSocketCarriage(
            role: .server,
            deflate: deflate,
            compression: compression,
            buffers: self.loop.socketLoop.buffers,
            receiveBuffers: self.loop.socketLoop.receiveBuffers,
            time: self.loop.time,
            account: self.peer.account
        )
        try operations.addHandler(carriage, position: .after(self))
        let frames = self.frames ?? FrameSession(self.peer, self.arrival)
        frames.use(carriage, isCompressed: deflate != nil)
        if self.frames == nil {
            try self.peer.add(frames.link, to: operations, position: .after(carriage))
            self.loop.socketLoop.enter { self.peer.begin(in: &$0) }
        } else {
            self.peer.endStage()
        }
        carriage.send(self.held)
        self.end(context)
    }

    private func carry(
        _ route: WebSocketRoute,
        _ agreement: OpeningAgreement,
        head: OpeningRequestHead,
        after response: ByteBuffer,
        decision: ServerPeer.Decision,
        context: ChannelHandlerContext
    ) throws {
        self.open(response, context)
        let operations = context.pipeline.syncOperations
        if let frames = self.frames {
            // It has sent nothing, and another peer begins on its channel.
            self.peer.detach(frames.link, operations)
            self.peer = ServerPeer(on: context.channel, self.loop, parts: self.parts, listener: self.peer.listener)
            self.hold = Hold(.memory(0), of: self.peer.account)
            self.peer.arrived(from: self.arrival.address, refusal: nil)
        }
        try WebSocketSession(self.peer, route: route, opening: head, agreement: agreement)
            .begin(operations, after: self, decision)
        self.end(context)
    }

    /// Sends the response, passes the bytes after the request to the next handlers, and removes itself.
    private func end(_ context: ChannelHandlerContext) {
        context.flush()
        let rest = self.reader.takeRest()
        self.hold.change(to: 0)
        if rest.readableBytes > 0 {
            context.fireChannelRead(NIOAny(rest))
            context.fireChannelReadComplete()
        }
        context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }

    private func reject(_ rejection: OpeningRejection, _ context: ChannelHandlerContext) {
        self.state = .rejecting
        self.held = []
        self.reader = OpeningRequestReader()
        self.hold.change(to: 0)
        context.writeAndFlush(self.wrapOutboundOut(rejection.encode()), promise: nil)
        // Closing at once could reset the connection before the client has read the reason.
        context.close(mode: .output, promise: nil)
        self.limit(Self.lingerTime)
    }

    /// Whether it precedes a link that handles everything.
    private var isTransparent: Bool {
        self.state == .done || (self.state == .undecided && self.frames != nil)
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
