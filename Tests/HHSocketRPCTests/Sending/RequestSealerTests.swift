// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing
import Tracing

@testable import HHSocketRPC

/// Payloads and refusals of requests, by their options and the agreement of hello.
@Suite struct RequestSealerTests {
    private static let endpoint = Endpoint(host: "one", port: 1)
    private static let now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private static func sealer(
        features: Set<ProtocolFeature>? = [.metadata, .compression, .idempotency],
        compression: CompressionPolicy? = nil,
        format: WireFormat = .standard,
        header: [String: [UInt8]] = [:]
    ) -> RequestSealer {
        var configuration = ClientConfiguration(servers: [])
        configuration.socket.maximumPayloadLength = 200_000
        configuration.socket.wireFormat = format
        configuration.socket.header = header
        configuration.compression = compression
        if let features { configuration.hello = HelloPolicy(features: features) }
        return RequestSealer(configuration, FrameRules(configuration.socket), tracer: nil)
    }

    private static func request(
        type: UInt32 = 101,
        length: Int = 3,
        _ change: (inout SocketRequest) -> Void = { _ in }
    ) -> SocketRequest {
        var request = SocketRequest(type: type, body: ByteBuffer(repeating: 7, count: length))
        change(&request)
        return request
    }

    /// The origin of a connection that has agreed on these features; nil: it has no hello.
    private static func peer(_ features: Set<ProtocolFeature>?) -> SocketResponse.Origin {
        SocketResponse.Origin(
            endpoint: Self.endpoint,
            agreement: features.map { Agreement(version: 1, features: $0) }
        )
    }

    private func error(_ body: () throws(SocketError) -> Void) -> SocketError? {
        do throws(SocketError) {
            try body()
            return nil
        } catch {
            return error
        }
    }

    // MARK: Checks

    /// A request that can never be sent, and why; nil: it can.
    struct Check: Sendable, CustomTestStringConvertible {
        var request: SocketRequest
        var code: SocketError.Code?
        var message = ""

        var testDescription: String { self.code.map { "\($0): \(self.message)" } ?? "accepted" }
    }

    static let checks: [Check] = [
        Check(request: request()),
        Check(
            request: request(type: 3),
            code: .invalidArgument,
            message: "type 3 is reserved; use another one from 16 to 536870911"
        ),
        Check(
            request: request { $0.cancellationBody = ByteBuffer(repeating: 0, count: 200_001) },
            code: .frameTooLarge,
            message: "a cancellationBody of 200001 bytes is over the limit of 200000 (maximumPayloadLength)"
        ),
        Check(request: request { $0.metadata = ["a-name": "a value"] }),
        Check(
            request: request { $0.metadata = ["A": "b"] },
            code: .invalidArgument,
            message: """
                "A" is no name for metadata: it takes 1 to 128 lower-case letters, digits, and some signs, all ASCII \
                (SocketRequest.metadata)
                """
        ),
        Check(
            request: request { request in
                request.metadata = Dictionary(uniqueKeysWithValues: (0...64).map { ("n\($0)", "") })
            },
            code: .invalidArgument,
            message: "65 values of metadata are more than 64"
        ),
        Check(
            request: request { $0.metadata = ["a": String(repeating: "b", count: 20_000)] },
            code: .invalidArgument,
            message: "the request cannot be sent: its metadata has"
        ),
        Check(request: request { $0.idempotencyKey = "key" }),
        Check(
            request: request { $0.idempotencyKey = String(repeating: "k", count: 129) },
            code: .invalidArgument,
            message: "an idempotencyKey has 1 to 128 bytes; this one has 129"
        ),
        Check(request: request { $0.deadline = now + .nanoseconds(1) }),
        Check(
            request: request { $0.deadline = now - .seconds(1) },
            code: .timeout,
            message: """
                the deadline of the request of type 101 passed 1.0 seconds before it could leave (SocketRequest.deadline)
                """
        ),
        Check(request: request { $0.header = ["sessionID": [1]] }, code: .invalidArgument),
    ]

    @Test(arguments: checks) func aRequestThatCanNeverBeSentIsRefused(_ row: Check) {
        let error = self.error { () throws(SocketError) in
            try Self.sealer().check(row.request, now: Self.now, endpoint: Self.endpoint)
        }
        #expect(error?.code == row.code)
        #expect(error?.message.hasPrefix(row.message) ?? true, "\(error?.message ?? "")")
        #expect(error?.notExecuted ?? true)
    }

    @Test func theServerThatADeadlineMissesIsNamed() {
        let request = Self.request { $0.deadline = Self.now }
        let error = self.error { () throws(SocketError) in
            try Self.sealer().check(request, now: Self.now, endpoint: Self.endpoint)
        }
        #expect(error?.endpoint == Self.endpoint)
    }

    // MARK: Agreements

    /// A request on a connection: the flags of its frame, or why it cannot be sent there.
    struct Seal: Sendable, CustomTestStringConvertible {
        var request: SocketRequest
        /// The features that the connection has agreed on; nil: it has no hello.
        var agreed: Set<ProtocolFeature>?
        /// The features that hello offers; nil: hello is off.
        var offered: Set<ProtocolFeature>? = [.metadata, .compression, .idempotency]
        var compression: CompressionPolicy?
        var flags: UInt32 = 0
        var reason: String?

        var testDescription: String { self.reason ?? "flags \(self.flags >> 29)" }
    }

    private static let required =
        "SocketRequest.metadata takes the feature metadata, which was not agreed on with one:1: "

    static let seals: [Seal] = [
        Seal(request: request(), agreed: nil),
        Seal(request: request(), agreed: [.metadata, .compression]),
        Seal(request: request { $0.metadata = ["a": "b"] }, agreed: [.metadata], flags: FrameType.metadataFlag),
        Seal(
            request: request { $0.idempotencyKey = "key" },
            agreed: [.metadata, .idempotency],
            flags: FrameType.metadataFlag
        ),
        Seal(
            request: request(length: 2_000),
            agreed: [.compression],
            compression: CompressionPolicy(minimumLength: 1_000),
            flags: FrameType.compressionFlag
        ),
        // Shorter than the policy's minimum.
        Seal(
            request: request(length: 999),
            agreed: [.compression],
            compression: CompressionPolicy(minimumLength: 1_000)
        ),
        // The server has not accepted it.
        Seal(
            request: request(length: 2_000),
            agreed: [.metadata],
            compression: CompressionPolicy(minimumLength: 1_000)
        ),
        // The request refuses it.
        Seal(
            request: request(length: 2_000) { $0.compresses = false },
            agreed: [.compression],
            compression: CompressionPolicy(minimumLength: 1_000)
        ),
        // The request requires it, whatever the policy.
        Seal(
            request: request(length: 999) { $0.compresses = true },
            agreed: [.compression],
            flags: FrameType.compressionFlag
        ),
        Seal(
            request: request(length: 2_000) {
                $0.compresses = true
                $0.metadata = ["a": "b"]
            },
            agreed: [.metadata, .compression],
            flags: FrameType.metadataFlag | FrameType.compressionFlag
        ),
        Seal(
            request: request { $0.metadata = ["a": "b"] },
            agreed: nil,
            reason: required + "it answered hello with an error, as servers without hello do"
        ),
        Seal(
            request: request { $0.metadata = ["a": "b"] },
            agreed: [.compression],
            reason: required + "it did not accept that"
        ),
        Seal(
            request: request { $0.metadata = ["a": "b"] },
            agreed: [.compression],
            offered: [.compression],
            reason: required + "hello did not offer that (HelloPolicy.features)"
        ),
        Seal(
            request: request { $0.metadata = ["a": "b"] },
            agreed: nil,
            offered: nil,
            reason: required + "hello is off (SocketClient.Configuration.hello)"
        ),
        Seal(
            request: request { $0.compresses = true },
            agreed: [.metadata],
            reason: """
                SocketRequest.compresses takes the feature compression, which was not agreed on with one:1: it did not \
                accept that
                """
        ),
        Seal(
            request: request { $0.idempotencyKey = "key" },
            agreed: [.metadata],
            reason: """
                SocketRequest.idempotencyKey takes the feature idempotency, which was not agreed on with one:1: it did not \
                accept that
                """
        ),
    ]

    private func seal(
        _ request: SocketRequest,
        by sealer: RequestSealer,
        deflated: RequestSealer.Deflated? = nil,
        for peer: SocketResponse.Origin
    ) throws(SocketError) -> Envelope.Sealed {
        try sealer.seal(request, deflated: deflated, context: nil, for: peer, now: Self.now, endpoint: nil)
    }

    @Test(arguments: seals) func anEnvelopeFollowsFromTheAgreement(_ row: Seal) throws {
        let sealer = Self.sealer(features: row.offered, compression: row.compression)
        let peer = Self.peer(row.agreed)
        if let reason = row.reason {
            let error = self.error { () throws(SocketError) in
                _ = try self.seal(row.request, by: sealer, for: peer)
            }
            #expect(error?.code == .featureNotAgreed && error?.endpoint == Self.endpoint)
            #expect(error?.message == reason)
        } else {
            let sealed = try self.seal(row.request, by: sealer, for: peer)
            #expect(sealed.type == row.request.type | row.flags)
            let envelope = try Envelope.open(
                type: sealed.type,
                payload: sealed.payload,
                agreedFlags: row.flags,
                maximumBodyLength: 200_000
            )
            #expect(envelope.body == row.request.body)
            #expect(envelope.metadata?.values ?? [:] == row.request.metadata)
            #expect(envelope.metadata?.idempotencyKey ?? "" == row.request.idempotencyKey ?? "")
        }
    }

    /// The server is told how much of the deadline is left, rounded up.
    @Test(arguments: [(1, 1), (1_000_000, 1), (1_000_001, 2), (1_500_000_000, 1_500)] as [(Int64, UInt64)])
    func aDeadlineIsSentInMilliseconds(_ nanoseconds: Int64, _ milliseconds: UInt64) throws {
        let request = Self.request { $0.deadline = Self.now + .nanoseconds(nanoseconds) }
        let sealed = try self.seal(request, by: Self.sealer(), for: Self.peer([.metadata]))
        let envelope = try Envelope.open(
            type: sealed.type,
            payload: sealed.payload,
            agreedFlags: FrameType.metadataFlag,
            maximumBodyLength: 100
        )
        #expect(envelope.metadata?.deadline == milliseconds)
    }

    // MARK: Large bodies

    /// The length of a body, and whether it must be compressed on another thread.
    @Test(
        arguments: [
            (64 << 10, true, nil, false), ((64 << 10) + 1, true, nil, true), ((64 << 10) + 1, false, nil, false),
            ((64 << 10) + 1, true, false, false), (200_001, true, nil, false),
        ] as [(Int, Bool, Bool?, Bool)]
    )
    func onlyLargeBodiesAreCompressedElsewhere(_ length: Int, _ isAgreed: Bool, _ compresses: Bool?, _ must: Bool)
        throws
    {
        let sealer = Self.sealer(compression: CompressionPolicy())
        let request = Self.request(length: length) { $0.compresses = compresses }
        let policy = try sealer.mustDeflate(request, for: Self.peer(isAgreed ? [.compression] : []))
        #expect((policy != nil) == must)
    }

    @Test func aBodyThatWasCompressedElsewhereIsNotCompressedAgain() throws {
        let sealer = Self.sealer(compression: CompressionPolicy(minimumLength: 0))
        let request = Self.request(length: 2_000)
        let peer = Self.peer([.compression])
        let smaller = try #require(Envelope.deflate(request.body, level: 1))
        let sealed = try self.seal(request, by: sealer, deflated: .smaller(smaller), for: peer)
        #expect(sealed.type == 101 | FrameType.compressionFlag && sealed.payload == smaller)
        let same = try self.seal(request, by: sealer, deflated: .notSmaller, for: peer)
        #expect(same.type == 101 && same.payload == request.body)
    }

    // MARK: Custom fields

    /// The fields of a request are those of the configuration, with its own over them.
    @Test func fieldsAreOfTheConfigurationOrTheRequest() throws {
        let own = Self.request { $0.header = ["clientVersion": [0, 0, 0, 9]] }
        for header in [[:], ["clientVersion": [0, 0, 0, 1]]] as [[String: [UInt8]]] {
            let sealer = Self.sealer(features: nil, format: .mars, header: header)
            #expect(sealer.addsNoFields == header.isEmpty)
            #expect(try sealer.customFields(of: Self.request()) == header["clientVersion"])
            #expect(try sealer.customFields(of: own) == [0, 0, 0, 9])
        }
    }
}
