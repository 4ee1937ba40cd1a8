// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

/// A server's announcement that it is about to end a connection.
package struct GoAway: Hashable, Sendable {
    /// The number of named servers that are considered, from the first on.
    package static let maximumEndpoints = 16
    /// The number of Unicode scalars of a reason that are stored.
    private static let maximumReasonLength = 256
    /// The length of the longest DNS name with a port, in bytes.
    private static let maximumEndpointLength = 260

    /// The reason, for people to read.
    package var reason: String
    /// The time that clients should stay away from the server; nil if the server gave none.
    package var retryAfter: Duration?
    /// Servers that may be used instead, best first.
    package var endpoints: [Endpoint]

    package init(reason: String = "", retryAfter: Duration? = nil, endpoints: [Endpoint] = []) {
        self.reason = reason
        self.retryAfter = retryAfter
        self.endpoints = endpoints
    }

    /// Creates a go-away from a server's message, as far as that makes sense.
    package init(_ message: WireGoAway) {
        // It is shown to people, in one line.
        let reason = message.reason.unicodeScalars.prefix(Self.maximumReasonLength).map { scalar in
            scalar.properties.generalCategory == .control ? " " : Character(scalar)
        }
        let endpoints = message.endpoints.prefix(Self.maximumEndpoints).compactMap { text -> Endpoint? in
            guard text.utf8.count <= Self.maximumEndpointLength,
                text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }), let endpoint = Endpoint(text)
            else { return nil }
            // A server has no business with a path on the client's machine.
            return endpoint.unixPath == nil ? endpoint : nil
        }
        self.init(
            reason: String(reason),
            retryAfter: .milliseconds(Int64(message.retryAfter)),
            endpoints: endpoints
        )
    }

    /// The frame of the go-away; the time is rounded down to whole milliseconds.
    package var frame: Frame {
        var message = WireGoAway()
        message.reason = self.reason
        message.retryAfter = UInt32(clamping: TimeAmount(self.retryAfter ?? .zero).nanoseconds / 1_000_000)
        message.endpoints = self.endpoints.map { "\($0)" }
        return Frame(
            type: FrameType.goAway,
            serial: FrameSerial.goAway,
            // Text and numbers can always be written.
            payload: (try? ByteBuffer(message: message)) ?? ByteBuffer()
        )
    }
}
