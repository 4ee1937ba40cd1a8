// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketRPC

/// The ends of attempts, by the frames that bring them.
@Suite struct AnswerReaderTests {
    private static let endpoint = Endpoint(host: "one", port: 1)
    private static let limit = 10_000

    private let reader: AnswerReader
    private let origin: SocketResponse.Origin

    init() {
        var configuration = SocketConfiguration(servers: [])
        configuration.maximumPayloadLength = Self.limit
        self.reader = AnswerReader(configuration, saysHello: true)
        self.origin = SocketResponse.Origin(endpoint: Self.endpoint)
    }

    private static func frame(_ status: Status, type: UInt32 = 101, _ body: String = "why") -> Frame {
        Frame(type: type, serial: 7, status: status, payload: ByteBuffer(string: body))
    }

    // MARK: Outcomes

    static let failures: [(Status, SocketError.Code, String)] = [
        (.noPermission, .noPermission, "one:1 answered type 102, serial 7, with status 405 (noPermission)"),
        (.draining, .draining, "one:1 answered type 102, serial 7, with status 504 (draining)"),
        (
            Status(rawValue: 599), .server(Status(rawValue: 599)),
            "one:1 answered type 102, serial 7, with status 599, which is not a status known here"
        ),
        (
            .partial, .server(.partial),
            "one:1 answered with a part of a stream (status 206), but this call expects one answer"
        ),
    ]

    @Test(arguments: failures.indices) func aStatusOtherThan200IsAnError(_ row: Int) throws {
        let (status, code, message) = Self.failures[row]
        let outcome = self.reader.outcome(
            of: Self.frame(status),
            metadata: ["a": "b"],
            requestType: 102,
            on: self.origin
        )
        let error = try #require(throws: SocketError.self) { try outcome.get() }
        #expect(error.code == code)
        #expect(error.message == message)
        #expect(error.delivery == .answered)
        #expect(error.serial == 7 && error.endpoint == Self.endpoint)
        #expect(error.body == ByteBuffer(string: "why"))
        #expect(error.metadata == ["a": "b"])
    }

    /// Only a client that sends no hello can have omitted one, and such a server answers without a body.
    @Test(arguments: [(false, "", true), (true, "", false), (false, "why", false)])
    func statusOfAServerThatRequiresAHelloNamesIt(saysHello: Bool, body: String, isNamed: Bool) throws {
        let reader = AnswerReader(SocketConfiguration(servers: []), saysHello: saysHello)
        let frame = Self.frame(.illegalFormat, body)
        let outcome = reader.outcome(of: frame, metadata: [:], requestType: 102, on: self.origin)
        let error = try #require(throws: SocketError.self) { try outcome.get() }
        #expect(error.message.contains("SocketClient.Configuration.hello") == isNamed)
        #expect(error.message.hasPrefix("one:1 answered type 102, serial 7, with status 303 (illegalFormat)"))
    }

    @Test(arguments: [[:], ["a": "b"]] as [[String: String]]) func status200IsAnAnswer(_ metadata: [String: String])
        throws
    {
        let outcome = self.reader.outcome(
            of: Self.frame(.ok, "yes"),
            metadata: metadata,
            requestType: 101,
            on: self.origin
        )
        let response = try outcome.get()
        #expect(response.type == 101 && response.serial == 7 && response.status == .ok)
        #expect(response.string == "yes")
        #expect(response.metadata == metadata)
        #expect(response.endpoint == Self.endpoint)
    }

    /// Answers without metadata and fields share one object.
    @Test func theOriginOfAConnectionIsShared() {
        let frame = Self.frame(.ok)
        let plain = self.reader.origin(of: ArrivedFrame(frame), metadata: [:], on: self.origin)
        #expect(plain === self.origin)
        let described = self.reader.origin(of: ArrivedFrame(frame), metadata: ["a": "b"], on: self.origin)
        #expect(described !== self.origin)
    }

    // MARK: Envelopes

    /// What becomes of a sealed answer.
    enum Opened: Equatable, Sendable {
        case open(bytes: Int, metadata: [String: String])
        case compressed(metadata: [String: String])
        case unreadable(SocketError.Code, String)
    }

    struct Sealed: Sendable {
        var length: Int
        var status = Status.ok
        var metadata: [String: String] = [:]
        var isCompressed = false
        /// Whether the body can hardly be compressed, so that it stays long.
        var isNoise = false
        var agreed = FrameType.metadataFlag | FrameType.compressionFlag
        var opened: Opened
    }

    static let envelopes: [Sealed] = [
        Sealed(length: 5, metadata: ["a": "b"], opened: .open(bytes: 5, metadata: ["a": "b"])),
        Sealed(length: 5_000, isCompressed: true, opened: .open(bytes: 5_000, metadata: [:])),
        Sealed(
            length: 5_000,
            metadata: ["a": "b"],
            isCompressed: true,
            opened: .open(bytes: 5_000, metadata: ["a": "b"])
        ),
        // Longer than what is decompressed on the socket thread.
        Sealed(
            length: 9_000,
            metadata: ["a": "b"],
            isCompressed: true,
            isNoise: true,
            opened: .compressed(metadata: ["a": "b"])
        ),
        // A part of a stream is not decompressed elsewhere: it only fails its call.
        Sealed(
            length: 9_000,
            status: .partial,
            isCompressed: true,
            isNoise: true,
            opened: .open(bytes: 9_000, metadata: [:])
        ),
        Sealed(
            length: 10_001,
            isCompressed: true,
            opened: .unreadable(
                .frameTooLarge,
                """
                the answer of one:1 to type 102, serial 7, with status 200, cannot be used: its compressed body has more \
                than 10000 bytes (maximumPayloadLength) when it is decompressed
                """
            )
        ),
        Sealed(
            length: 5_000,
            isCompressed: true,
            agreed: FrameType.metadataFlag,
            opened: .unreadable(
                .protocolViolation,
                """
                the answer of one:1 to type 102, serial 7, with status 200, cannot be used: its type has bit 30 \
                (compression), which hello did not agree on
                """
            )
        ),
    ]

    private func seal(_ row: Sealed) throws -> Frame {
        var state: UInt32 = 1
        // Six random bits in each byte: compressed to three quarters.
        let body = ByteBuffer(
            bytes: (0..<row.length).map { _ -> UInt8 in
                guard row.isNoise else { return 7 }
                state = state &* 1_664_525 &+ 1_013_904_223
                return UInt8(state >> 26)
            }
        )
        var metadata = WireMetadata()
        metadata.values = row.metadata
        let sealed = try Envelope.seal(
            type: 101,
            body: body,
            metadata: row.metadata.isEmpty ? nil : metadata,
            compression: row.isCompressed ? CompressionPolicy(minimumLength: 0) : nil
        )
        return Frame(type: sealed.type, serial: 7, status: row.status, payload: sealed.payload)
    }

    private func opened(_ frame: Frame, agreedFlags: UInt32) -> Opened {
        var opened = ArrivedFrame(frame)
        switch self.reader.open(&opened, agreedFlags: agreedFlags) {
        case .open(let metadata):
            return .open(bytes: opened.length, metadata: metadata)
        case .compressed(let metadata):
            return .compressed(metadata: metadata)
        case .unreadable(let reason):
            let error = self.reader.unreadable(frame, reason, requestType: 102, from: Self.endpoint)
            return .unreadable(error.code, error.message)
        }
    }

    @Test(arguments: envelopes.indices) func anEnvelopeIsOpenedHereOrElsewhere(_ row: Int) throws {
        let row = Self.envelopes[row]
        #expect(self.opened(try self.seal(row), agreedFlags: row.agreed) == row.opened)
    }

    @Test func anOpenedFrameHasNoFlags() throws {
        for row in Self.envelopes {
            let frame = try self.seal(row)
            #expect(frame.type != 101)
            #expect(self.reader.plainType(frame.type) == 101)
            var opened = ArrivedFrame(frame)
            if case .unreadable = self.reader.open(&opened, agreedFlags: row.agreed) { continue }
            let (type, serial) = (opened.type, opened.serial)
            #expect(type == 101 && serial == 7)
        }
    }

    // MARK: Answers that cannot be used

    @Test func aWrongChecksumHidesTheAnswer() {
        let mismatch = FrameDecoder.ChecksumMismatch(received: 1, computed: 2)
        let error = self.reader.corrupt(serial: 7, bytes: 3, mismatch, from: Self.endpoint)
        #expect(error.code == .checksumMismatch && error.delivery == .sentUnknown && error.body == nil)
        #expect(
            error.message == """
                the answer of one:1 to serial 7, 3 bytes, came with a wrong checksum: received 0x00000001, computed \
                0x00000002
                """
        )
    }

    static let pieces: [(PayloadFailure, SocketError.Code, String)] = [
        (.damaged, .checksumMismatch, "a piece of it has a wrong checksum"),
        (.tooLong, .frameTooLarge, "it is over the limit of 10000 bytes (maximumPayloadLength)"),
        (
            .tooMuchHeld, .queueFull,
            "too much of what came waits on the connection (StreamPolicy.maximumHeldBytes)"
        ),
        (.differentPieces, .protocolViolation, "its pieces differ in type, flags or status"),
    ]

    @Test(arguments: pieces.indices) func brokenPiecesNameTheirFault(_ row: Int) {
        let (failure, code, why) = Self.pieces[row]
        let error = self.reader.broken(failure, serial: 7, from: Self.endpoint)
        #expect(error.code == code && error.delivery == .sentUnknown && error.serial == 7)
        #expect(
            error.message == "the answer of one:1 to serial 7, which came in pieces, cannot be used: \(why)"
        )
    }

    /// Malformed bytes end a call only where they seem to be its answer.
    @Test(
        arguments: [
            (101, 7, false, 7), (101, 7, true, nil), (101, FrameSerial.push, false, nil),
            (FrameType.goAway, 7, false, nil),
        ] as [(UInt32, UInt32, Bool, UInt32?)]
    )
    func malformedBytesAreAnAnswerOrNot(_ type: UInt32, _ serial: UInt32, _ isPush: Bool, _ answered: UInt32?) {
        var fault = FrameError.payloadTooLarge(length: 2, limit: 1, type: type, serial: serial)
        fault.isMarkedAsPush = isPush
        #expect(self.reader.serial(ofMalformed: fault) == answered)
        let error = self.reader.malformed(fault, serial: 7, from: Self.endpoint)
        #expect(error.code == .illegalFormat && error.delivery == .sentUnknown)
        #expect(error.message == "the answer of one:1 to serial 7 is malformed: \(fault.message)")
    }

    @Test(
        arguments: [
            (7, false, false), (7, true, true), (FrameSerial.push, false, true),
        ] as [(UInt32, Bool, Bool)]
    )
    func anArrivingPushIsRecognised(_ serial: UInt32, _ isMarked: Bool, _ isPush: Bool) {
        let arriving = FrameDecoder.Arriving(
            type: 101,
            serial: serial,
            receivedBytes: 1,
            length: 2,
            isMarkedAsPush: isMarked
        )
        #expect(self.reader.isPush(arriving) == isPush)
    }
}
