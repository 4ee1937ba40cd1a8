// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import NIOCore
import NIOSSL

/// The application's decisions about who may connect, beside the identity in a client's hello
/// (``ServerHello/authenticate``) and the admission of requests (``ServerAdmission``).
///
/// ```swift
/// // Clients with a certificate are known by it, others may sign in later.
/// configuration.connections.admit = { client in
///     guard let fingerprint = client.certificateFingerprint else { return .admit }
///     guard let name = devices[fingerprint] else { return .refuse(reason: "the device is not registered") }
///     return .admitAs(name)
/// }
/// ```
///
/// All closures are called on the connection's event loop, which they must not block.
public struct ConnectionPolicy: Sendable {
    /// Decides on a client that has connected, after TLS and before its first byte. Nil, the default: all are admitted.
    ///
    /// A refused client receives a go-away, where the format has one, and is closed; one that opens a WebSocket of
    /// messages is answered 403. ``ServerCounter/connectionsRefusedByAdmission`` counts it.
    public var admit: (@Sendable (ConnectingClient) -> ConnectionAdmission)?
    /// Called when a client has connected and is admitted, before its first request. Its identity is known if ``admit``
    /// returned one.
    public var onConnect: (@Sendable (ServerSession) -> Void)?
    /// Called once for each session of ``onConnect``, when the connection has ended. The session still has its identity
    /// and its values.
    public var onClose: (@Sendable (ServerSession, ServerCloseReason) -> Void)?
    /// The equivalent of ``onConnect`` for a WebSocket that carries messages
    /// (``SocketServer/webSocket(_:options:_:)``), called before its handler.
    public var onWebSocketConnect: (@Sendable (WebSocketConnection) -> Void)?
    /// The equivalent of ``onClose`` for a WebSocket that carries messages.
    public var onWebSocketClose: (@Sendable (WebSocketConnection, ServerCloseReason) -> Void)?

    package init() {}
}

/// A client that has connected but not yet sent anything.
public struct ConnectingClient: Sendable {
    /// The client's address, if the system reported it.
    public let address: SocketAddress?
    /// The listener that accepted the client.
    public let listener: Endpoint?
    /// The client's certificate, in DER; nil without TLS, or if none was requested. Its chain and its dates have been
    /// verified as ``ServerTLS`` describes.
    public let certificate: [UInt8]?

    /// The SHA-256 of ``certificate``, in lower-case hexadecimal digits; nil without one.
    public var certificateFingerprint: String? {
        self.certificate?.withUnsafeBytes { SHA256.hash(of: $0) }.hexadecimal
    }
}

/// A decision on a client that has connected.
public enum ConnectionAdmission: Hashable, Sendable {
    case admit
    /// The client is admitted, and has this identity, as by ``ServerSession/authenticate(as:)``.
    case admitAs(String)
    /// The connection is closed, and the client receives this reason.
    case refuse(reason: String, retryAfter: Duration = .zero)
}

extension ConnectingClient {
    /// Creates a description of the client of a channel that is connected, after the TLS handshake if there is one.
    ///
    /// - Parameter address: The client's address; nil if it is unknown.
    init(_ address: SocketAddress?, _ context: ChannelHandlerContext, listener: Endpoint?) {
        self.init(address: address, listener: listener, certificate: Self.certificate(context))
    }

    /// Returns the certificate of the client of a channel, in DER; nil if it has none.
    static func certificate(_ context: ChannelHandlerContext) -> [UInt8]? {
        let handler = try? context.pipeline.syncOperations.handler(type: NIOSSLServerHandler.self)
        return handler?.peerCertificate.flatMap { try? $0.toDERBytes() }
    }
}
