import HHSocket
import Logging
import NIOConcurrencyHelpers
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
    let hello: ServerHello
    let idempotentAnswers: IdempotentAnswers
    let logger: Logger
    let peerLog = PeerLog()
    let threads: BlockingThreads
    let registry: SessionRegistry
    let sessions = ClientTable<ServerSession>()
    let webSockets = ClientTable<WebSocketConnection>()
    let load: ServerLoad
    let quota: ConnectionQuota
    private let maximumDeadline: TimeAmount?
    private let connectionIDs = NIOLockedValueBox<UInt64>(0)

    init(_ configuration: SocketServer.Configuration, _ router: Router) {
        let limits = configuration.limits
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
        self.hello = configuration.hello
        self.idempotentAnswers = IdempotentAnswers(configuration.hello.idempotency)
        self.logger = configuration.logger
        self.load = ServerLoad(
            maximumInFlight: limits.maximumInFlight,
            maximumBufferedBytes: limits.maximumBufferedBytes
        )
        self.quota = ConnectionQuota(
            maximum: limits.maximumConnections,
            perAddress: limits.maximumConnectionsPerAddress
        )
        self.maximumDeadline = limits.maximumDeadline.map { TimeAmount(clamping: $0) }
    }

    /// The time that a client's deadline is away, as far as it may be.
    func allowed(_ time: TimeAmount) -> TimeAmount {
        self.maximumDeadline.map { min(time, $0) } ?? time
    }

    /// Whether a client takes an answer of this length. The log says that it does not.
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

    func nextConnectionID() -> UInt64 {
        self.connectionIDs.withLockedValue {
            $0 += 1
            return $0
        }
    }
}

/// Settings that the connections of one listener share.
final class ListenerSettings: Sendable {
    /// Its place among the listeners.
    let index: Int
    /// The address that it is asked to listen on.
    let endpoint: Endpoint
    let format: WireFormat
    /// The custom header fields of frames that answer no request, and of those fields that a request does not have.
    let customFields: [UInt8]?
    let times: SessionWatch.Times
    let encoder: FrameEncoder
    let linkSettings: LinkSettings<Frame>
    /// Whether clients may take frames of type 4 for what they are, though no hello was said.
    let isStandard: Bool
    let supportsHello: Bool
    private let maximumPushLength: Int

    /// - Throws: If the header has a field that the format does not have, or a value of another width.
    init(
        index: Int,
        _ listener: ServerListener,
        _ configuration: SocketServer.Configuration
    ) throws(SocketError) {
        self.index = index
        self.endpoint = listener.endpoint
        self.format = listener.wireFormat
        self.customFields = try listener.wireFormat.customFields(listener.header, in: .response)
        let limits = configuration.limits
        self.times = SessionWatch.Times(
            idle: limits.idleTimeout.map { TimeAmount(clamping: $0) },
            firstFrame: listener.tls == nil && !configuration.hello.isRequired
                ? nil : limits.firstFrameTimeout.map { TimeAmount(clamping: $0) },
            readStall: limits.readStallTimeout.map { TimeAmount(clamping: $0) },
            writeStall: limits.writeStallTimeout.map { TimeAmount(clamping: $0) },
            minimumReadRate: limits.minimumReadRate
        )
        self.encoder = FrameEncoder(direction: .response, format: self.format, customFields: self.customFields)
        self.linkSettings = Self.linkSettings(self.format, configuration)
        self.isStandard = self.encoder.isStandard
        self.supportsHello = self.format.supportsHello
        self.maximumPushLength = limits.maximumAnswerLength
    }

    /// How links behave: nothing is read from a client that does not read, and what it holds and how long is bounded by
    /// ``ServerLimits``.
    private static func linkSettings(
        _ format: WireFormat,
        _ configuration: SocketServer.Configuration
    ) -> LinkSettings<Frame> {
        var settings = LinkSettings(
            maximumQueuedBytes: .max,
            heartbeat: format.serverPing == nil ? nil : configuration.heartbeat,
            ping: format.serverPing,
            maximumPayloadLength: configuration.limits.maximumAnswerLength
        )
        settings.readsOnlyWhileWritable = true
        // One system call for what a read brings, as long as no more than 1 MiB is held for it.
        settings.outputLimit = 1 << 20
        settings.gathersPieces = true
        // Then it is found out what the client has not taken.
        settings.tellsOfRoomAfter = ServerConnection.largestUnchecked
        settings.partingTime = nil
        settings.lingerTime = ServerConnection.lingerTime
        return settings
    }

    /// The bytes of a push; nil in a format that has none, where the type is the protocol's, and of one that clients do
    /// not take or a codec does not encode.
    func push(type: UInt32, body: ByteBuffer) -> ByteBuffer? {
        guard body.readableBytes <= self.maximumPushLength, let push = self.format.push(type: type, payload: body)
        else { return nil }
        var bytes = ByteBuffer()
        self.encoder.encode(push, into: &bytes)
        return bytes.readableBytes > 0 ? bytes : nil
    }
}
