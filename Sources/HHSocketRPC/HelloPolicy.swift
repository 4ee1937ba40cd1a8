// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The hello that a client sends first on each new connection: its version of the protocol, and the features that it
/// offers. The connection uses the features that the server accepts.
///
/// ```swift
/// configuration.hello = HelloPolicy()
/// ```
/// Only for servers that support hello: another one may leave it unanswered, and then every attempt ends with
/// `handshakeTimeout`. `Docs/Protocol.md` describes its format.
public struct HelloPolicy: Sendable {
    /// The features offered to the server.
    package var features: Set<ProtocolFeature>
    /// The oldest version of the protocol that is accepted.
    package var minimumVersion: UInt32
    /// Whether a server that answers hello with an error is not used.
    package var isRequired: Bool
    /// The client's identity, as the application defines it, for servers that require one.
    package var sessionToken: (@Sendable () async throws -> [UInt8])?
    /// The time limit of hello, including the session token.
    package var timeout: Duration

    /// Creates a hello.
    ///
    /// The session token is not sent to a server of another origin, to which a WebSocket was redirected: such an
    /// attempt fails.
    ///
    /// A server that refuses the token answers hello with 405. The attempt then fails with `handshakeRefused`, and the
    /// closure is called again after each wait of the back-off; no server is connected to before it returns another
    /// token or the app calls `connect()`. Without a closure attempts stop until then.
    ///
    /// - Parameters:
    ///   - features: The features offered to the server; all known ones by default, 64 at most.
    ///     ``/HHSocket/ProtocolFeature/idempotency`` requires ``/HHSocket/ProtocolFeature/metadata``.
    ///     ``/HHSocket/ProtocolFeature/streams`` is offered if and only if ``ClientConfiguration/streams`` is set.
    ///   - minimumVersion: The oldest version of the protocol that is accepted; 1 by default. A server that speaks only
    ///     older ones is not used. If it is higher than the version of this client, 1, every attempt to connect and
    ///     every call fails with `invalidArgument`.
    ///   - isRequired: Whether a server that answers hello with an error is not used. False by default: the connection
    ///     then works without the features of hello.
    ///   - timeout: The time limit of hello, including the session token; 10 s by default. The time limit of a
    ///     ``/HHSocket/HandshakeGate``, which follows, is added to it.
    ///   - sessionToken: The client's identity, as the application defines it, for servers that require one; 64 KiB at
    ///     most. Called for each new connection. If it throws, the attempt fails with that error, which is not held
    ///     against the server, and is followed by the back-off; a ``/HHSocket/HandshakeRefusal`` determines what
    ///     follows. Nil by default.
    public init(
        features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency],
        minimumVersion: UInt32 = 1,
        isRequired: Bool = false,
        timeout: Duration = .seconds(10),
        sessionToken: (@Sendable () async throws -> [UInt8])? = nil
    ) {
        self.features = features
        self.minimumVersion = minimumVersion
        self.isRequired = isRequired
        self.sessionToken = sessionToken
        self.timeout = timeout
    }

    /// The error if this policy cannot be used with the format; nil if it can.
    func refusal(in format: WireFormat) -> SocketError? {
        guard format.supportsHello else {
            return .invalid(
                """
                the wire format \(format) cannot have hello (SocketClient.Configuration.hello): \
                \(WireFormat.helloNeeds)
                """
            )
        }
        guard self.minimumVersion <= HelloLimits.version else {
            return .invalid(
                """
                HelloPolicy.minimumVersion is \(self.minimumVersion), and this client speaks version \
                \(HelloLimits.version) of the protocol
                """
            )
        }
        return nil
    }

    /// Returns a gate that performs hello and then runs `gate`. Requires that ``refusal(in:)`` is nil.
    ///
    /// - Parameter streams: The policy of the streams that hello requests; nil for none.
    func gate(
        before gate: HandshakeGate?,
        maximumPayloadLength: Int,
        streams: StreamPolicy? = nil
    ) -> HandshakeGate {
        // Half of the largest duration, so that the sum of two "no limit" can be represented.
        let longest = Duration.seconds(Int64.max / 2)
        let timeout = min(self.timeout, longest) + min(gate?.timeout ?? .zero, longest)
        let tokens = SessionTokens(self.sessionToken)
        var all = HandshakeGate(timeout: timeout) { handshake in
            try await self.sayHello(
                in: handshake,
                tokens: tokens,
                maximumPayloadLength: maximumPayloadLength,
                streams: streams
            )
            try await gate?.run(handshake)
        }
        all.admission = HandshakeGate.Admission(
            check: { tokens.admission },
            userConnects: { tokens.userConnects() },
            tokenWasRefused: { tokens.wereRefused() }
        )
        return all
    }

    private func sayHello(
        in handshake: Handshake,
        tokens: SessionTokens,
        maximumPayloadLength: Int,
        streams: StreamPolicy?
    ) async throws {
        guard self.sessionToken == nil || !handshake.isOfAnotherOrigin else {
            throw HandshakeRefusal(
                .tryAnotherServer,
                "the server has redirected to another origin, which must not get the session token"
            )
        }
        var features = streams == nil ? self.features.subtracting([.streams]) : self.features.union([.streams])
        if handshake.isCompressed { features.remove(.compression) }
        let exchange = HelloExchange(
            versions: min(self.minimumVersion, HelloLimits.version)...HelloLimits.version,
            features: features,
            sessionToken: try await tokens.next() ?? [],
            isRequired: self.isRequired,
            windows: streams?.windows ?? StreamWindows()
        )
        let answer = try await handshake.exchangeHello(exchange.payload())
        guard let agreement = try exchange.judge(status: answer.status, payload: answer.payload) else { return }
        // The handshake retains the closure, which must not retain the handshake.
        let endpoint = handshake.endpoint
        handshake.agree(agreement) { frame throws(SocketError) in
            do throws(EnvelopeError) {
                return try Envelope.open(
                    frame,
                    agreedFlags: agreement.flags,
                    maximumBodyLength: maximumPayloadLength
                ).frame
            } catch {
                throw SocketError(
                    error,
                    "a frame of type \(frame.type & ~FrameType.allFlags), serial \(frame.serial), from \(endpoint)",
                    endpoint: endpoint,
                    serial: frame.serial
                )
            }
        }
    }
}

extension SocketError {
    /// Creates the error for a received frame whose envelope cannot be opened.
    init(_ error: EnvelopeError, _ frame: String, endpoint: Endpoint, serial: UInt32?) {
        self.init(
            error.isTooLarge ? .frameTooLarge : .protocolViolation,
            message: "\(frame) cannot be used: \(error)",
            endpoint: endpoint,
            serial: serial,
            delivery: .answered
        )
    }
}

/// The session tokens of a client. Remembers the one that a server has refused, so that it is not offered again.
final class SessionTokens: Sendable {
    private struct State: Sendable {
        /// The token that was offered last.
        var offered: [UInt8]?
        /// The token that a server has refused last.
        var refused: [UInt8]?
        /// A token that was requested before the attempt that will use it.
        var fetched: [UInt8]?
    }

    private let source: (@Sendable () async throws -> [UInt8])?
    private let state = NIOLockedValueBox(State())

    init(_ source: (@Sendable () async throws -> [UInt8])?) {
        self.source = source
    }

    /// Returns the token for a connection; nil if there is none.
    ///
    /// - Throws: ``/HHSocket/HandshakeRefusal``.
    func next() async throws(HandshakeRefusal) -> [UInt8]? {
        let token: [UInt8]?
        if let fetched = self.state.withLockedValue({ $0.fetched.take() }) {
            token = fetched
        } else {
            token = try await self.fetch()
        }
        self.state.withLockedValue { $0.offered = token }
        return token
    }

    private func fetch() async throws(HandshakeRefusal) -> [UInt8]? {
        guard let source = self.source else { return nil }
        do {
            return try await source()
        } catch let refusal as HandshakeRefusal {
            throw refusal
        } catch {
            // Not the server's fault.
            throw HandshakeRefusal(
                .trySameServer,
                "there is no session token (HelloPolicy.sessionToken): \(error)",
                underlying: error
            )
        }
    }

    /// Waits for another token than the refused one; nil if none was refused.
    var admission: (@Sendable () async throws -> Void)? {
        guard let refused = self.state.withLockedValue({ $0.refused }) else { return nil }
        return {
            guard let token = try await self.fetch(), token != refused else {
                throw HandshakeRefusal(
                    .trySameServer,
                    "the server refused the session token, and HelloPolicy.sessionToken still returns the same"
                )
            }
            self.state.withLockedValue { $0 = State(fetched: token) }
        }
    }

    /// The token that was offered last was refused.
    ///
    /// - Returns: The refusal of the connection: attempts stop if there can be no other token.
    func wereRefused() -> HandshakeRefusal {
        let offered = self.state.withLockedValue { state in
            state.refused = self.source == nil ? nil : state.offered
            return state.offered
        }
        guard self.source != nil, let offered, !offered.isEmpty else {
            let remedy: HandshakeRefusal.Remedy = self.source == nil ? .stop : .trySameServer
            return HandshakeRefusal(remedy, HelloExchange.tokenIsMissing)
        }
        return HandshakeRefusal(.trySameServer, HelloExchange.tokenIsRefused)
    }

    /// The user requests a connection, for which the refused token may be offered again.
    func userConnects() {
        self.state.withLockedValue { $0.refused = nil }
    }
}
