// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import Logging
import NIOConcurrencyHelpers
public import NIOCore

/// One client's connection, as handlers and the rest of the application see it. It may outlive the connection; calls
/// then have no effect.
public final class ServerSession: Sendable {
    private struct State {
        var identity: String?
        /// The requests in flight of the identity.
        var identityLoad: IdentityLoad?
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
    public let listener: Endpoint?
    /// The client's certificate, in DER; nil without TLS, or if none was requested.
    public let peerCertificate: [UInt8]?
    private let loop: SocketLoop
    /// The thread of the connection, which it shares with others, as an executor for Swift tasks and actors.
    ///
    /// To run a handler on it, set the route's ``HandlerExecutor``.
    public let executor: SocketExecutor
    // Not the server's core, which retains the router: handlers may keep sessions.
    private let baseLogger: Logger
    private let registry: SessionRegistry
    let peerLog: PeerLog
    /// The time by which the client is judged.
    var now: NIODeadline { self.account.now() }
    private let account: LedgerAccount
    private let connection: NIOLoopBoundBox<ServerConnection?>
    private let state = NIOLockedValueBox(State())

    init(
        id: UInt64,
        remoteAddress: SocketAddress?,
        listener: Endpoint?,
        peerCertificate: [UInt8]?,
        loop: ServerLoop,
        core: ServerCore,
        account: LedgerAccount,
        connection: ServerConnection
    ) {
        self.id = id
        self.remoteAddress = remoteAddress
        self.listener = listener
        self.peerCertificate = peerCertificate
        self.loop = loop.socketLoop
        self.executor = loop.executor
        self.baseLogger = core.logger
        self.registry = core.registry
        self.peerLog = core.peerLog
        self.account = account
        self.connection = NIOLoopBoundBox(connection, eventLoop: loop.eventLoop)
    }

    var eventLoop: any EventLoop { self.loop.eventLoop }

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
        self.state.withLockedValue { $0.features = Set(agreement.features.map { ProtocolFeature(rawValue: $0) }) }
    }

    // MARK: Identity

    /// The client's identity, once the application has authenticated it; nil before.
    public var identity: String? { self.state.withLockedValue { $0.identity } }

    /// The requests in flight of the client's identity; nil if they are not counted.
    var identityLoad: IdentityLoad? { self.state.withLockedValue { $0.identityLoad } }

    /// Sets the client's identity. From now on ``SocketServer/sessions(of:)`` finds the session. A client may have
    /// several connections, for example from several devices: up to ``ServerLimits/maximumSessionsPerIdentity``. Beyond
    /// that, the oldest one is closed.
    ///
    /// - Parameter identity: Nil removes the identity, for example after signing out.
    public func authenticate(as identity: String?) {
        let registry = self.registry
        let (isChanged, dismissed): (Bool, (any IdentifiedConnection)?) = self.state.withLockedValue { state in
            guard state.isOpen, state.identity != identity else { return (false, nil) }
            // Inside the lock, so that the registry matches the last call.
            if let old = state.identity { registry.remove(self, old) }
            let addition = identity.map { registry.add(self, $0) }
            state.identity = identity
            state.identityLoad = addition?.load
            self.account.setIdentity(identity)
            return (true, addition?.dismissed)
        }
        dismissed?.dismiss()
        if isChanged { self.onLoop { $0.updateStanding(in: &$1) } }
    }

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
        self.onLoop { _ = $0.push(type: type, body: body, in: &$1) }
    }

    /// Sends a push.
    ///
    /// - Returns: Whether it was accepted: it is being sent, or waits for the slow client. It is rejected when too many
    ///   wait already, when the connection has ended, and in a wire format without pushes.
    @discardableResult
    public func push(type: UInt32, body: ByteBuffer) async -> Bool {
        let answer: EventLoopFuture<Bool>? = self.state.withLockedValue { state in
            guard state.isOpen else { return nil }
            // Submitted under the lock: once the connection has ended, the event loop may be gone.
            let promise = self.eventLoop.makePromise(of: Bool.self)
            let isSubmitted = self.loop.submit(
                .closure { turn in
                    promise.succeed(self.connection.value?.push(type: type, body: body, in: &turn) ?? false)
                }
            )
            if !isSubmitted { promise.succeed(false) }
            return promise.futureResult
        }
        return await (try? answer?.get()) ?? false
    }

    /// Tells the client to go away, if the format can express it, and closes the connection. Requests in flight are
    /// cancelled; their answers are not sent.
    ///
    /// - Parameters:
    ///   - reason: The reason, as text for people.
    ///   - retryAfter: How long the client should stay away from this server; zero by default.
    public func close(reason: String, retryAfter: Duration = .zero) {
        self.onLoop { $0.dismiss(GoAway(reason: reason, retryAfter: retryAfter), in: &$1) }
    }

    /// Runs `body` in a turn of the event loop, if the connection is open then.
    func onLoop(_ body: @escaping @Sendable (ServerConnection, inout Turn) -> Void) {
        self.state.withLockedValue { state in
            guard state.isOpen else { return }
            // Under the lock, as above.
            self.loop.submit(.closure { turn in if let connection = self.connection.value { body(connection, &turn) } })
        }
    }

    // MARK: On the event loop

    func end() {
        let storage = self.state.withLockedValue { state in
            if let identity = state.identity { self.registry.remove(self, identity) }
            state.isOpen = false
            defer { state.storage = [:] }
            return state.storage
        }
        // Outside the lock, because values of the application may call this session when they are released.
        withExtendedLifetime(storage) {}
        self.connection.value = nil
    }
}

extension ServerSession: IdentifiedConnection {
    func dismiss() { self.onLoop { $0.evict(.tooManySessions, in: &$1) } }
}

extension ServerSession: LedgerHolder {
    func evict() { self.onLoop { $0.evict(.memory, in: &$1) } }
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
