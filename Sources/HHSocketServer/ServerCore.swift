// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import Logging
import NIOCore

/// State that all connections of a running server share.
final class ServerCore: Sendable {
    let routes: [UInt32: Router.Route]
    /// The route for requests of other types; nil: they are refused at once.
    let unknownTypeRoute: Router.Route?
    /// The rules of requests that have no route.
    let unknownRules: RouteRules
    /// Whether the router refuses clients without an identity most requests.
    let requiresIdentity: Bool
    let connections: ConnectionPolicy
    let limits: ServerLimits
    let heartbeat: HeartbeatPolicy?
    let answersInOrder: Bool
    /// The limits on streams; nil if hello does not agree on streams.
    let streams: StreamPolicy?
    let hello: ServerHello
    let idempotentAnswers: IdempotentAnswers
    let authentications: Authentications
    /// The rates of requests by address and by identity; nil if there are none.
    let addressRates: SharedRates<ClientAddress>?
    let identityRates: SharedRates<String>?
    let logger: Logger
    /// The clock by which clients are judged.
    let time: SocketTime
    let peerLog: PeerLog
    let threads: BlockingThreads
    let registry: SessionRegistry
    let sessions = ClientTable<ServerSession>()
    let webSockets = ClientTable<WebSocketConnection>()
    let ledger: Ledger
    let quota: ConnectionQuota
    private let maximumDeadline: TimeAmount?
    private let connectionIDs = ManagedAtomic<UInt64>(0)

    /// - Parameter loopCount: The number of event loops.
    init(
        _ configuration: SocketServer.Configuration,
        _ router: Router,
        _ quota: ConnectionQuota.Limits,
        loopCount: Int
    ) {
        let limits = configuration.limits
        let time = configuration.time
        self.time = time
        self.limits = limits
        self.threads = BlockingThreads(count: configuration.blockingThreads)
        let defaults = RouteLimits(timeout: limits.handlerTimeout, concurrency: limits.concurrency)
        self.routes = router.routes(blockingOn: self.threads, defaults: defaults)
        self.unknownTypeRoute = router.unknownTypeRoute(defaults: defaults)
        self.unknownRules = RouteRules(observers: router.observers)
        self.requiresIdentity = router.requiresIdentity
        self.connections = configuration.connections
        self.registry = SessionRegistry(
            maximumSessions: limits.maximumSessionsPerIdentity,
            maximumInFlight: limits.maximumInFlightPerIdentity
        )
        self.heartbeat = configuration.heartbeat
        self.answersInOrder = configuration.answersInOrder
        self.streams = configuration.answersInOrder ? nil : configuration.streams
        self.hello = configuration.hello
        self.idempotentAnswers = IdempotentAnswers(configuration.hello.idempotency, time: time)
        self.authentications = Authentications(configuration.hello)
        self.addressRates = SharedRates(limits.requestRatePerAddress)
        self.identityRates = SharedRates(limits.requestRatePerIdentity)
        self.logger = configuration.logger
        self.peerLog = PeerLog(time: time)
        self.ledger = Ledger(limits, shards: loopCount, time: time)
        self.quota = ConnectionQuota(quota, time: time)
        self.maximumDeadline = limits.maximumDeadline.map { TimeAmount(clamping: $0) }
    }

    /// The time that a client's deadline is away, as far as it may be.
    func allowed(_ time: TimeAmount) -> TimeAmount {
        self.maximumDeadline.map { min(time, $0) } ?? time
    }

    /// Returns whether a client accepts an answer of this length, and logs if it does not.
    func takes(answerOf length: Int, type: UInt32, _ session: ServerSession) -> Bool {
        let limit = self.limits.maximumAnswerLength
        guard length > limit else { return true }
        self.peerLog.write(
            .error,
            "an answer is too large",
            ["type": "\(type)", "bytes": "\(length)", "maximumAnswerLength": "\(limit)"],
            by: session.logger
        )
        return false
    }

    /// Whether a client is a stranger until its hello or its identity is accepted.
    var hasStrangers: Bool { self.hello.isRequired || self.requiresIdentity }

    /// Whether each request is counted against a rate.
    var hasRequestRates: Bool {
        self.limits.requestRate != nil || self.addressRates != nil || self.identityRates != nil
    }

    func nextConnectionID() -> UInt64 {
        self.connectionIDs.wrappingIncrementThenLoad(ordering: .relaxed)
    }
}

/// Settings that the connections of one listener share.
final class ListenerSettings: Sendable {
    /// Its place among the listeners.
    let index: Int
    /// The address that it is configured to listen on.
    let endpoint: Endpoint
    let proxies: ServerProxies
    let format: WireFormat
    /// The custom header fields of frames that answer no request, and of fields that a request does not have.
    let customFields: [UInt8]?
    let times: SessionWatch.Times
    let encoder: FrameEncoder
    let linkSettings: LinkSettings<Frame>
    /// Whether the system's bytes are read into buffers that the connections of an event loop share.
    let sharesReceiveBuffers: Bool
    /// The memory that a connection costs by itself, in bytes.
    let connectionCost: Int
    /// Whether clients understand frames of type 4 even without a hello.
    let isStandard: Bool
    let supportsHello: Bool
    private let maximumPushLength: Int

    /// - Throws: An error if the header has a field that the format does not have, or a value of another width.
    init(
        index: Int,
        _ listener: ServerListener,
        _ configuration: SocketServer.Configuration
    ) throws(SocketError) {
        self.index = index
        self.endpoint = listener.endpoint
        self.proxies = listener.proxies
        self.format = listener.wireFormat
        self.customFields = try listener.wireFormat.customFields(listener.header, in: .response)
        let limits = configuration.limits
        var times = SessionWatch.Times(limits)
        if listener.tls != nil || configuration.hello.isRequired {
            times.firstFrame = limits.firstFrameTimeout.map { TimeAmount(clamping: $0) }
        }
        times.acquaintance = limits.strangers.timeToBecomeKnown.map { TimeAmount(clamping: $0) }
        self.times = times
        self.encoder = FrameEncoder(direction: .response, format: self.format, customFields: self.customFields)
        self.sharesReceiveBuffers = listener.tls == nil
        self.linkSettings = Self.linkSettings(
            self.format,
            configuration,
            // The channel that carries the frames of WebSockets reads into its own buffers.
            sharesReceiveBuffers: listener.tls == nil && listener.webSocket == nil
        )
        self.connectionCost = listener.tls == nil ? ConnectionCost.plain : ConnectionCost.tls
        self.isStandard = self.encoder.isStandard
        self.supportsHello = self.format.supportsHello
        self.maximumPushLength = limits.maximumAnswerLength
    }

    /// The settings of links: a link does not read from a client that does not read, and ``ServerLimits`` bounds what
    /// it holds and for how long.
    private static func linkSettings(
        _ format: WireFormat,
        _ configuration: SocketServer.Configuration,
        sharesReceiveBuffers: Bool
    ) -> LinkSettings<Frame> {
        var settings = LinkSettings(
            maximumQueuedBytes: .max,
            heartbeat: format.serverPing == nil ? nil : configuration.heartbeat,
            ping: format.serverPing,
            maximumPayloadLength: configuration.limits.maximumAnswerLength
        )
        settings.readsOnlyWhileWritable = true
        settings.sharesTurns = true
        // One system call for the answers to a read, as long as no more than 1 MiB is held for it.
        settings.outputLimit = 1 << 20
        settings.gathersPieces = true
        // The link then finds out what the client has not taken.
        settings.tellsOfRoomAfter = LinkChannel.uncheckedBytes
        settings.sharesReceiveBuffers = sharesReceiveBuffers
        settings.partingTime = nil
        settings.lingerTime = ServerConnection.lingerTime
        return settings
    }

    /// Encodes a push. Nil if the format has no pushes, if the type is reserved for the protocol, if clients do not
    /// accept the push, or if a codec does not encode it.
    func push(type: UInt32, body: ByteBuffer) -> PushQueue.Push? {
        guard body.readableBytes <= self.maximumPushLength, let push = self.format.push(type: type, payload: body)
        else { return nil }
        var bytes = ByteBuffer()
        self.encoder.encode(push, into: &bytes)
        guard bytes.readableBytes > 0 else { return nil }
        return PushQueue.Push(bytes: bytes, cut: self.cut(push))
    }

    /// The pieces of a long push where streams are agreed on; nil for a push that is sent whole.
    private func cut(_ push: Frame) -> PushQueue.Cut? {
        guard push.payload.readableBytes > StreamFrames.maximumPieceLength, self.supportsHello, !push.isMarkedAsPush,
            push.serial == FrameSerial.push, !self.encoder.usesCodec
        else { return nil }
        var header = ByteBuffer()
        self.encoder.encodeHeader(of: push, into: &header)
        return PushQueue.Cut(
            type: push.type,
            serial: push.serial,
            start: UInt32(header.readableBytes),
            length: UInt32(clamping: push.payload.readableBytes)
        )
    }

    /// Whether a frame to the client is a push, or a piece of one.
    func isPush(_ frame: Frame) -> Bool { frame.serial == FrameSerial.push }
}
