import HHSocketMessage
import NIOCore

/// The server's side of hello: its reply, and the agreement that the reply makes.
package struct HelloAnswer: Sendable {
    /// The reply's status and payload. Its type and serial are ``FrameType/hello`` and ``FrameSerial/hello``.
    package var status: Status
    package var payload: ByteBuffer
    /// The agreement that holds after the reply; nil for none, as if there had been no hello.
    package var agreement: Agreement?
    /// The client's hello; nil if it cannot be read.
    package var hello: WireHello?

    /// Answers a client's hello.
    ///
    /// - Parameters:
    ///   - payload: The payload of the client's frame. Anything but a `Hello` is answered with status 402.
    ///   - versions: The versions that the server speaks. If the client speaks none of them, or its session token is
    ///     over the limit, the answer is status 303 with the oldest of them.
    ///   - features: The features that the server accepts; the reply lists them in the client's order.
    package static func answer(
        to payload: ByteBuffer,
        versions: ClosedRange<UInt32> = 1...HelloLimits.version,
        features: Set<ProtocolFeature>
    ) -> HelloAnswer {
        guard let hello = try? payload.message(as: WireHello.self) else {
            return HelloAnswer(status: .protobufFailed, payload: ByteBuffer())
        }
        let version = min(hello.version, versions.upperBound)
        guard version >= max(hello.minimumVersion, 1, versions.lowerBound),
            hello.sessionToken.count <= HelloLimits.maximumTokenLength
        else {
            var reply = WireHelloReply()
            reply.version = versions.lowerBound
            return HelloAnswer(status: .illegalFormat, payload: Self.payload(reply), hello: hello)
        }
        var seen: Set<ProtocolFeature> = []
        let accepted = hello.features.prefix(HelloLimits.maximumFeatures)
            .map { ProtocolFeature(rawValue: $0) }
            .filter { features.contains($0) && seen.insert($0).inserted }
        let agreement = Agreement(version: version, features: accepted)
        var reply = WireHelloReply()
        reply.version = version
        reply.features = accepted.filter { agreement.has($0) }.map(\.rawValue)
        return HelloAnswer(status: .ok, payload: Self.payload(reply), agreement: agreement, hello: hello)
    }

    /// Turns this into an answer that agrees on nothing.
    package mutating func refuse(_ status: Status) {
        (self.status, self.payload, self.agreement) = (status, ByteBuffer(), nil)
    }

    /// Encodes the reply. It has no required fields and is small, so it can always be encoded.
    private static func payload(_ reply: WireHelloReply) -> ByteBuffer {
        (try? ByteBuffer(message: reply)) ?? ByteBuffer()
    }
}
