// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage
import NIOCore

/// The client's side of hello: its request, and its verdict on the reply.
package struct HelloExchange: Sendable {
    /// The oldest and the newest version that the client speaks.
    package var versions: ClosedRange<UInt32>
    /// The features that the client offers.
    package var features: Set<ProtocolFeature>
    /// The client's identity, as the application defines it; empty without one.
    package var sessionToken: [UInt8]
    /// Whether a server without hello is refused.
    package var isRequired: Bool
    /// The amounts that the client is ready to receive, announced if it offers streams.
    package var windows: StreamWindows

    package init(
        versions: ClosedRange<UInt32> = 1...HelloLimits.version,
        features: Set<ProtocolFeature>,
        sessionToken: [UInt8] = [],
        isRequired: Bool = false,
        windows: StreamWindows = StreamWindows()
    ) {
        self.versions = versions
        self.features = features
        self.sessionToken = sessionToken
        self.isRequired = isRequired
        self.windows = windows
    }

    /// The payload of the client's hello.
    ///
    /// - Throws: A `HandshakeRefusal` that stops all attempts if the session token is too long, or if there are too
    ///   many features.
    package func payload() throws(HandshakeRefusal) -> ByteBuffer {
        guard self.sessionToken.count <= HelloLimits.maximumTokenLength else {
            throw HandshakeRefusal(
                .stop,
                """
                the session token has \(self.sessionToken.count) bytes, over the limit of \(HelloLimits.maximumTokenLength)
                """
            )
        }
        guard self.features.count <= HelloLimits.maximumFeatures else {
            throw HandshakeRefusal(
                .stop,
                "\(self.features.count) features are offered, over the limit of \(HelloLimits.maximumFeatures)"
            )
        }
        var hello = WireHello()
        hello.version = self.versions.upperBound
        hello.minimumVersion = self.versions.lowerBound
        // Sorted, so that equal hellos have equal bytes.
        hello.features = self.features.map(\.rawValue).sorted()
        hello.sessionToken = Data(self.sessionToken)
        if self.features.contains(.streams) {
            hello.streamWindow = self.windows.announcedStream
            hello.connectionWindow = self.windows.announcedConnection
        }
        do {
            return try ByteBuffer(message: hello)
        } catch {
            throw HandshakeRefusal(.stop, "hello cannot be written: \(error)", underlying: error)
        }
    }

    /// Returns the agreement from the server's reply; nil if the connection is used without hello.
    ///
    /// - Throws: A `HandshakeRefusal` if the connection must not be used. Another server may be better, unless the
    ///   session token was refused.
    package func judge(status: Status, payload: ByteBuffer) throws(HandshakeRefusal) -> Agreement? {
        let reply = Result { try payload.message(as: WireHelloReply.self) }
        guard status != .noPermission else {
            throw HandshakeRefusal(.stop, self.sessionToken.isEmpty ? Self.tokenIsMissing : Self.tokenIsRefused)
        }
        guard status == .ok else {
            guard self.isRequired else { return nil }
            let version = (try? reply.get()).flatMap { $0.version > 0 ? $0.version : nil }
            let reason = version.map { ", the oldest version that it speaks being \($0)" } ?? ""
            throw Self.refusal("the server answered hello with status \(status)\(reason), and hello is required")
        }
        let accepted: WireHelloReply
        do {
            accepted = try reply.get()
        } catch {
            throw Self.refusal("the server's reply to hello cannot be read: \(error)", error)
        }
        guard self.versions.contains(accepted.version) else {
            throw Self.refusal(
                """
                the server wants version \(accepted.version) of the protocol; this client speaks \
                \(self.versions.lowerBound) to \(self.versions.upperBound)
                """
            )
        }
        let extras = Set(accepted.features).subtracting(self.features.map(\.rawValue))
        guard extras.isEmpty else {
            // Names that the server made up must not fill logs.
            let names = extras.sorted().prefix(4).map { $0.prefix(32) }
            throw Self.refusal(
                "the server accepted what hello did not offer: \(names.map { "\"\($0)\"" }.joined(separator: ", "))"
            )
        }
        let terms = StreamTerms(
            client: self.windows,
            server: StreamWindows(stream: accepted.streamWindow, connection: accepted.connectionWindow),
            maximumStreams: accepted.maximumStreams
        )
        let features = accepted.features.compactMap { ProtocolFeature(rawValue: $0) }
        return Agreement(version: accepted.version, features: features, streams: terms)
    }

    /// The reason for a refusal of a connection on which no session token was offered.
    package static let tokenIsMissing =
        "the server requires a session token (status 405 to hello; HelloPolicy.sessionToken)"
    /// The reason for a refusal of a connection whose session token was refused.
    package static let tokenIsRefused =
        "the server refused the session token (status 405 to hello; HelloPolicy.sessionToken)"

    private static func refusal(_ reason: String, _ underlying: (any Error)? = nil) -> HandshakeRefusal {
        HandshakeRefusal(.tryAnotherServer, reason, underlying: underlying)
    }
}
