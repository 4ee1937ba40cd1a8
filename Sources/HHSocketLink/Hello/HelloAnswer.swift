// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

/// The server's side of hello: its reply, and the agreement that the reply makes.
package struct HelloAnswer: Sendable {
    /// The reply's status and payload. Its type and serial are ``FrameType/hello`` and ``FrameSerial/hello``.
    package private(set) var status: Status
    package private(set) var payload: ByteBuffer
    /// The agreement after the reply; nil for none, as if there had been no hello.
    package private(set) var agreement: Agreement?
    /// The session token of the client's hello; empty without one, and without an agreement.
    package private(set) var sessionToken: [UInt8]
    /// The features of the reply, in the client's order.
    private var features: [ProtocolFeature] = []
    /// The terms of streams, if these are among them.
    private var terms = StreamTerms()

    private init(
        status: Status,
        payload: ByteBuffer = ByteBuffer(),
        agreement: Agreement? = nil,
        sessionToken: [UInt8] = []
    ) {
        self.status = status
        self.payload = payload
        self.agreement = agreement
        self.sessionToken = sessionToken
    }

    /// Answers a client's hello.
    ///
    /// - Parameters:
    ///   - payload: The payload of the client's frame. Anything but a `Hello` is answered with status 402, and one that
    ///     is longer than ``HelloLimits/maximumLength`` with status 301; fields over the other limits are not decoded.
    ///   - versions: The versions that the server speaks. If the client speaks none of them, or its session token is
    ///     over the limit, the answer is status 303 with the oldest of them.
    ///   - features: The features that the server accepts; the reply lists them in the client's order.
    ///   - windows: The windows of the server, announced if it accepts streams.
    ///   - maximumStreams: The number of streams that a client may have open, also announced if it accepts streams.
    package static func answer(
        to payload: ByteBuffer,
        versions: ClosedRange<UInt32> = 1...HelloLimits.version,
        features: Set<ProtocolFeature>,
        windows: StreamWindows = StreamWindows(),
        maximumStreams: UInt32 = StreamTerms.defaultMaximumStreams
    ) -> HelloAnswer {
        guard payload.readableBytes <= HelloLimits.maximumLength else { return HelloAnswer(status: .illegalLength) }
        guard let bounded = BoundedHello(payload), let hello = try? bounded.bytes.message(as: WireHello.self) else {
            return HelloAnswer(status: .protobufFailed)
        }
        let version = min(hello.version, versions.upperBound)
        guard version >= max(hello.minimumVersion, 1, versions.lowerBound), !bounded.isTokenTooLong else {
            var reply = WireHelloReply()
            reply.version = versions.lowerBound
            return HelloAnswer(status: .illegalFormat, payload: Self.payload(reply))
        }
        var seen: Set<ProtocolFeature> = []
        let accepted = hello.features.compactMap { ProtocolFeature(rawValue: $0) }
            .filter { features.contains($0) && seen.insert($0).inserted }
        var answer = HelloAnswer(status: .ok, sessionToken: [UInt8](hello.sessionToken))
        answer.terms = StreamTerms(
            client: StreamWindows(stream: hello.streamWindow, connection: hello.connectionWindow),
            server: windows,
            maximumStreams: maximumStreams
        )
        answer.agree(on: accepted, version: version)
        return answer
    }

    private mutating func agree(on features: [ProtocolFeature], version: UInt32) {
        let agreement = Agreement(version: version, features: features, streams: self.terms)
        self.features = features
        self.agreement = agreement
        var reply = WireHelloReply()
        reply.version = version
        reply.features = features.filter { agreement.has($0) }.map(\.rawValue)
        if let terms = agreement.streams {
            reply.streamWindow = terms.server.announcedStream
            reply.connectionWindow = terms.server.announcedConnection
            reply.maximumStreams = terms.announcedMaximumStreams
        }
        self.payload = Self.payload(reply)
    }

    /// Changes the answer so that it does not agree on a feature.
    package mutating func withhold(_ feature: ProtocolFeature) {
        guard let agreement = self.agreement, agreement.has(feature) else { return }
        self.agree(on: self.features.filter { $0 != feature }, version: agreement.version)
    }

    /// Returns an answer that agrees on nothing.
    package static func refusal(_ status: Status) -> HelloAnswer { HelloAnswer(status: status) }

    /// Turns this into an answer that agrees on nothing.
    package mutating func refuse(_ status: Status) { self = .refusal(status) }

    /// Returns the session token, and discards it.
    package mutating func takeSessionToken() -> [UInt8] {
        defer { self.sessionToken = [] }
        return self.sessionToken
    }

    /// Encodes the reply. It has no required fields and is small, so it can always be encoded.
    private static func payload(_ reply: WireHelloReply) -> ByteBuffer {
        (try? ByteBuffer(message: reply)) ?? ByteBuffer()
    }
}

/// The part of a hello that is decoded: the fields that a server uses, within their limits. Two bytes can encode a
/// feature, and a feature takes more memory than two bytes.
private struct BoundedHello {
    /// The encoded message of these fields.
    private(set) var bytes: ByteBuffer
    private(set) var isTokenTooLong = false

    /// Nil if the bytes are no message.
    init?(_ payload: ByteBuffer) {
        var bytes = ByteBuffer()
        bytes.reserveCapacity(min(payload.readableBytes, HelloLimits.maximumLength))
        var (features, isTooLong) = (0, false)
        let isMessage = payload.withUnsafeReadableBytes { payload in
            WireFields.forEach(in: payload) { field in
                switch field.number {
                case 1, 5, 6, 7: break
                case 2:
                    features += 1
                    if features > HelloLimits.maximumFeatures { return }
                case 3:
                    guard field.value.count <= HelloLimits.maximumTokenLength else {
                        isTooLong = true
                        return
                    }
                default: return
                }
                bytes.writeBytes(field.bytes)
            }
        }
        guard isMessage else { return nil }
        self.bytes = bytes
        self.isTokenTooLong = isTooLong
    }
}
