// SPDX-License-Identifier: Apache-2.0
import HHSocket
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
    /// The features offered to the server; all known ones by default, 64 at most.
    /// ``/HHSocket/ProtocolFeature/idempotency`` requires ``/HHSocket/ProtocolFeature/metadata``.
    /// ``/HHSocket/ProtocolFeature/streams`` is offered if and only if ``SocketClient/Configuration/streams`` is set.
    public var features: Set<ProtocolFeature>
    /// The oldest version of the protocol that is accepted; 1 by default. A server that speaks only older ones is not
    /// used. If it is higher than the version of this client, 1, every attempt to connect and every call fails with
    /// `invalidArgument`.
    public var minimumVersion: UInt32
    /// Whether a server that answers hello with an error is not used. False by default: the connection then works
    /// without the features of hello.
    public var isRequired: Bool
    /// The client's identity, as the application defines it, for servers that require one; 64 KiB at most. Called for
    /// each new connection. If it throws, the attempt fails with that error; a ``/HHSocket/HandshakeRefusal``
    /// determines what follows. Nil by default.
    public var sessionToken: (@Sendable () async throws -> [UInt8])?
    /// The time limit of hello, including the session token; 10 s by default. The time limit of a gate,
    /// ``/HHSocket/HandshakeGate/timeout``, which follows, is added to it.
    public var timeout: Duration

    /// - Parameters:
    ///   - features: The features offered to the server; all known ones by default.
    ///   - minimumVersion: The oldest version of the protocol that is accepted; 1 by default.
    ///   - isRequired: Whether a server that answers hello with an error is not used; false by default.
    ///   - timeout: The time limit of hello; 10 s by default.
    ///   - sessionToken: The client's identity; nil by default.
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
            return SocketError(
                .invalidArgument,
                message: """
                    the wire format \(format) cannot have hello (SocketClient.Configuration.hello): \
                    \(WireFormat.helloNeeds)
                    """
            )
        }
        guard self.minimumVersion <= HelloLimits.version else {
            return SocketError(
                .invalidArgument,
                message: """
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
        return HandshakeGate(timeout: timeout) { handshake in
            try await self.sayHello(handshake, maximumPayloadLength, streams)
            try await gate?.run(handshake)
        }
    }

    private func sayHello(
        _ handshake: Handshake,
        _ maximumPayloadLength: Int,
        _ streams: StreamPolicy?
    ) async throws {
        var features = streams == nil ? self.features.subtracting([.streams]) : self.features.union([.streams])
        if handshake.isCompressed { features.remove(.compression) }
        let exchange = HelloExchange(
            versions: min(self.minimumVersion, HelloLimits.version)...HelloLimits.version,
            features: features,
            sessionToken: try await self.sessionToken?() ?? [],
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
