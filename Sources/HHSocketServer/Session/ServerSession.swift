// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import Logging
import NIOConcurrencyHelpers
public import NIOCore

/// One client's connection, as handlers and the rest of the application see it. It may outlive the connection; calls
/// then have no effect.
public final class ServerSession: Sendable {
    private struct State {
        var features: Set<ProtocolFeature> = []
        var storage: [ObjectIdentifier: any Sendable] = [:]
        var isOpen = true
    }

    /// A number that no other connection of this server has or has had.
    public let id: UInt64
    /// The client's address, if it is known: the address of the socket's peer, or the one that a listed proxy reported
    /// (``ServerListener/proxies``).
    public let remoteAddress: SocketAddress?
    /// The listener that accepted the client.
    public var listener: Endpoint? { self.endpoint.value }
    /// The client's certificate, in DER; nil without TLS, or if none was requested.
    public let peerCertificate: [UInt8]?
    /// The thread of the connection, which it shares with others, as an executor for Swift tasks and actors.
    ///
    /// To run a handler on it, set the route's ``HandlerExecutor``.
    public let executor: SocketExecutor
    // Not the server's parts, which retain the router: handlers may keep sessions.
    private let endpoint: SharedEndpoint
    private let baseLogger: Logger
    package let peerLog: PeerLog
    let port: PeerPort
    /// The time by which the client is judged.
    var now: NIODeadline { self.port.account.now() }
    private let state = NIOLockedValueBox(State())

    init(
        id: UInt64,
        remoteAddress: SocketAddress?,
        listener: SharedEndpoint,
        peerCertificate: [UInt8]?,
        executor: SocketExecutor,
        logger: Logger,
        peerLog: PeerLog,
        port: PeerPort
    ) {
        self.id = id
        self.remoteAddress = remoteAddress
        self.endpoint = listener
        self.peerCertificate = peerCertificate
        self.executor = executor
        self.baseLogger = logger
        self.peerLog = peerLog
        self.port = port
    }

    var eventLoop: any EventLoop { self.port.loop.eventLoop }

    /// The server's logger, with the connection's number, the client's address and its identity as metadata. Characters
    /// of these that would end a line, or change how it is shown, are escaped.
    public var logger: Logger {
        var logger = self.baseLogger
        logger[metadataKey: "connection"] = "\(self.id)"
        if let address = self.remoteAddress { logger[metadataKey: "remote"] = .printable(address) }
        if let identity = self.identity { logger[metadataKey: "identity"] = .printable(identity) }
        return logger
    }

    /// Whether the connection is open.
    public var isOpen: Bool { self.state.withLockedValue { $0.isOpen } }

    /// The features that hello has agreed on; empty without hello.
    public var features: Set<ProtocolFeature> { self.state.withLockedValue { $0.features } }

    func agree(_ agreement: Agreement) {
        let features = Set(agreement.features.compactMap { ProtocolFeature(rawValue: $0) })
        self.state.withLockedValue { $0.features = features }
    }

    // MARK: Identity

    /// The client's identity, once the application has authenticated it; nil before.
    public var identity: String? { self.port.identity }

    /// Identifies the client on threads that clients share: its identity, or its address if it has none. Clients
    /// without either count as one.
    package var principalID: UInt64 { self.port.account.principalID }

    /// The account that is charged for resources held for the client.
    package var account: any LinkAccount { self.port.account }

    /// The requests in flight of the client's identity; nil if they are not counted.
    var identityLoad: IdentityLoad? { self.port.identityLoad }

    /// Sets the client's identity. From now on ``SocketServer/sessions(of:)`` finds the session. A client may have
    /// several connections, for example from several devices: up to ``ServerLimits/maximumSessionsPerIdentity``. Beyond
    /// that, the oldest one is closed.
    ///
    /// - Parameter identity: Nil removes the identity, for example after signing out.
    public func authenticate(as identity: String?) { self.port.identify(as: identity) }

    // MARK: What belongs to it

    /// A value that the application keeps with the connection, until that ends.
    public subscript<Key: ServerSessionKey>(_ key: Key.Type) -> Key.Value? {
        get { self.state.withLockedValue { $0.storage[ObjectIdentifier(key)] as? Key.Value } }
        set {
            // The old value may be the last reference to an object of the application, which may then call this
            // session.
            let old: (any Sendable)? = self.state.withLockedValue { state in
                guard state.isOpen else { return nil }
                let old = state.storage[ObjectIdentifier(key)]
                state.storage[ObjectIdentifier(key)] = newValue
                return old
            }
            withExtendedLifetime(old) {}
        }
    }

    // MARK: What is sent to it

    /// Sends a push, without waiting for the result.
    ///
    /// - Parameters:
    ///   - type: A type that the wire format leaves to applications.
    ///   - body: The payload.
    public func push(type: UInt32, body: ByteBuffer) {
        self.port.onLoop { [body = OwnedBytes(body)] in _ = $0.push(.one(type: type, body: body), in: &$1) }
    }

    /// Sends a push.
    ///
    /// - Returns: Whether it was accepted: it is being sent, or waits for the slow client. It is rejected when too many
    ///   wait already, when the connection has ended, and in a wire format without pushes.
    @discardableResult
    public func push(type: UInt32, body: ByteBuffer) async -> Bool {
        await self.port.push(.one(type: type, body: OwnedBytes(body)))
    }

    /// Asks the client to go away, if the format can express it, and closes the connection. Requests in flight are
    /// cancelled; their answers are not sent.
    ///
    /// - Parameters:
    ///   - reason: The reason, as text for people.
    ///   - retryAfter: How long the client should stay away from this server; zero by default.
    public func close(reason: String, retryAfter: Duration = .zero) {
        self.port.onLoop { $0.say(Farewell(kind: .departure, reason: reason, retryAfter: retryAfter), in: &$1) }
    }

    // MARK: On the event loop

    func end() {
        let storage = self.state.withLockedValue { state in
            state.isOpen = false
            defer { state.storage = [:] }
            return state.storage
        }
        // Outside the lock, because values of the application may call this session when they are released.
        withExtendedLifetime(storage) {}
    }
}

/// The key of a value that is kept with a ``ServerSession``.
///
/// ```swift
/// enum Room: ServerSessionKey { typealias Value = String }
/// context.session[Room.self] = "kitchen"
/// ```
public protocol ServerSessionKey {
    associatedtype Value: Sendable
}
