import HHSocketMessage
import NIOCore

/// The server's side of hello: what it answers, and what is agreed on by that.
package struct HelloAnswer: Sendable {
    /// The reply's status and payload. Its type and serial are ``FrameType/hello`` and ``FrameSerial/hello``.
    package var status: Status
    package var payload: ByteBuffer
    /// What holds from the reply on; nil: nothing, as if there had been no hello.
    package var agreement: Agreement?
    /// What the client said; nil where it cannot be read.
    package var hello: WireHello?

    /// The answer to a client's hello.
    ///
    /// - Parameters:
    ///   - payload: Of the client's frame. What is no `Hello` is answered with status 402.
    ///   - versions: What the server speaks. With a client that speaks none of these, the answer is status 303 and the
    ///     oldest of them; so it is where the session token is over the limit.
    ///   - features: What the server accepts; in the reply they stand in the client's order.
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

    /// Makes it one that agrees on nothing.
    package mutating func refuse(_ status: Status) {
        (self.status, self.payload, self.agreement) = (status, ByteBuffer(), nil)
    }

    /// It has no required fields and is small, so it can always be written.
    private static func payload(_ reply: WireHelloReply) -> ByteBuffer {
        (try? ByteBuffer(message: reply)) ?? ByteBuffer()
    }
}
