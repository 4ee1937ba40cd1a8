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
    /// The time limit of the gate; by default that of an attempt to connect.
    package var timeout: Duration
    package let run: @Sendable (Handshake) async throws -> Void
    /// The decision before each attempt to connect; nil: all are made.
    package var admission: Admission?

    /// The decision whether an attempt to connect is made.
    package struct Admission: Sendable {
        /// Returns what must be awaited before the next attempt, and throws if that must not be made; nil if it is
        /// made.
        package var check: @Sendable () -> (@Sendable () async throws -> Void)?
        /// Called when the user requests a connection.
        package var userConnects: @Sendable () -> Void
        /// Called when a server has refused the session token of hello; returns what follows.
        package var tokenWasRefused: @Sendable () -> HandshakeRefusal

        package init(
            check: @escaping @Sendable () -> (@Sendable () async throws -> Void)?,
            userConnects: @escaping @Sendable () -> Void,
            tokenWasRefused: @escaping @Sendable () -> HandshakeRefusal
        ) {
            self.check = check
            self.userConnects = userConnects
            self.tokenWasRefused = tokenWasRefused
        }
    }

    /// - Parameters:
    ///   - timeout: The time limit of the gate; 10 s by default.
    ///   - run: The exchange.
    public init(timeout: Duration = .seconds(10), _ run: @escaping @Sendable (Handshake) async throws -> Void) {
        self.timeout = timeout
        self.run = run
    }
}

/// Thrown by a ``HandshakeGate``: the reason why a connection must not be used, and the remedy. Other errors are
/// treated as ``Remedy/tryAnotherServer``.
public struct HandshakeRefusal: Error, Sendable, CustomStringConvertible {
    /// The step that follows a refusal. Cases may be added; have a default when you switch over it.
    public enum Remedy: Hashable, Sendable {
        /// Try the same server again after a wait of the back-off, for example with a refreshed token.
        case trySameServer
        /// Try the next server, because this one is at fault.
        case tryAnotherServer
        /// Stop attempts until `connect()`, because none can succeed before the user has acted.
        case stop
    }

    package let remedy: Remedy
    package let reason: String
    /// The error that caused this one, if any.
    public let underlying: (any Error)?

    public init(_ remedy: Remedy, _ reason: String, underlying: (any Error)? = nil) {
        self.remedy = remedy
        self.reason = reason
        self.underlying = underlying
    }

    /// The reason.
    public var description: String { self.reason }
}
