// SPDX-License-Identifier: Apache-2.0
/// An exchange that each new connection requires before anything else is sent: a login, a token refresh, an exchange of
/// versions.
///
/// ```swift
/// configuration.gate = HandshakeGate { handshake in
///     let answer = try await handshake.exchange(type: 17, payload: ByteBuffer(string: token()))
///     if answer.status == .noPermission { throw HandshakeRefusal(.stop, "the token is not valid") }
/// }
/// ```
/// It runs on every connection, so at every reconnect too. Calls and frames wait until it returns. When it throws, the
/// connection is closed.
public struct HandshakeGate: Sendable {
    /// The time that it may take. 10 s by default, as a connection attempt.
    public var timeout: Duration
    package let run: @Sendable (Handshake) async throws -> Void

    public init(timeout: Duration = .seconds(10), _ run: @escaping @Sendable (Handshake) async throws -> Void) {
        self.timeout = timeout
        self.run = run
    }
}

/// Thrown by a ``HandshakeGate``: why a connection must not be used, and what to do instead. Other errors are taken for
/// ``Remedy/tryAnotherServer``.
public struct HandshakeRefusal: Error, Sendable, CustomStringConvertible {
    /// The step that follows a refusal.
    public struct Remedy: Hashable, Sendable {
        enum Kind: Hashable, Sendable { case trySameServer, tryAnotherServer, stop }
        let kind: Kind

        /// The server is well: try it again after a wait of the back-off. For a token that had to be refreshed.
        public static let trySameServer = Remedy(kind: .trySameServer)
        /// The server is to blame: go on to the next one.
        public static let tryAnotherServer = Remedy(kind: .tryAnotherServer)
        /// No attempt can succeed before the user has done something: attempts stop until `connect()`.
        public static let stop = Remedy(kind: .stop)
    }

    public var remedy: Remedy
    public var reason: String
    /// The error behind it, if there is one.
    public var underlying: (any Error)?

    public init(_ remedy: Remedy, _ reason: String, underlying: (any Error)? = nil) {
        self.remedy = remedy
        self.reason = reason
        self.underlying = underlying
    }

    public var description: String { self.reason }
}
