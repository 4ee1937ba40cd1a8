// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct EnvelopeTests {
    static let bothFlags = FrameType.metadataFlag | FrameType.compressionFlag
    private static let limit = 1 << 20

    private func metadata(_ change: (inout WireMetadata) -> Void = { _ in }) -> WireMetadata {
        var metadata = WireMetadata()
        change(&metadata)
        return metadata
    }

    private func open(
        _ sealed: Envelope.Sealed,
        agreed: UInt32 = EnvelopeTests.bothFlags,
        limit: Int = EnvelopeTests.limit
    ) throws(EnvelopeError) -> Envelope {
        try Envelope.open(
            type: sealed.type,
            payload: sealed.payload,
            agreedFlags: agreed,
            maximumBodyLength: limit
        )
    }

    // MARK: Golden frames, those of Docs/Protocol.md

    @Test func metadataIsTheseBytes() throws {
        let golden = try frame(hex: GoldenHello.request, .request)
        let metadata = self.metadata {
            $0.values = ["tenant": "acme"]
            $0.deadline = 1_500
            $0.idempotencyKey = "k-1"
        }
        let sealed = try Envelope.seal(type: 1_000, body: ByteBuffer(string: "hello"), metadata: metadata)
        #expect(sealed.type == golden.type)
        #expect(sealed.payload == golden.payload)
        let opened = try self.open((golden.type, golden.payload))
        #expect(opened == Envelope(type: 1_000, metadata: metadata, body: ByteBuffer(string: "hello")))
    }

    @Test func aCompressedBodyIsReadFromTheseBytes() throws {
        let golden = try frame(hex: GoldenHello.compressed, .request)
        let opened = try self.open((golden.type, golden.payload))
        #expect(opened.type == 1_000)
        #expect(opened.metadata == nil)
        #expect(String(buffer: opened.body) == String(repeating: "hello, ", count: 8))
    }

    @Test func anAnswerWithBothIsReadFromTheseBytes() throws {
        let golden = try frame(hex: GoldenHello.response, .response)
        let opened = try self.open((golden.type, golden.payload))
        #expect(opened.metadata?.values == ["region": "eu-1"])
        #expect(String(buffer: opened.body) == String(repeating: "hello, ", count: 8))
    }

    // MARK: There and back

    @Test(arguments: [0, 1, 7, 1_023, 1_024, 5_000, 100_000])
    func sealedEnvelopesAreOpened(_ length: Int) throws {
        let body = ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0 / 7) })
        let values = self.metadata {
            $0.values = ["a": "", "b": "ü"]
            $0.deadline = 0
        }
        for metadata in [nil, values, WireMetadata()] {
            for compression in [
                nil, CompressionPolicy(minimumLength: 0), CompressionPolicy(minimumLength: 0, level: 9),
            ] {
                let sealed = try Envelope.seal(type: 77, body: body, metadata: metadata, compression: compression)
                #expect((sealed.type & FrameType.metadataFlag != 0) == (metadata != nil))
                let opened = try self.open(sealed)
                #expect(opened == Envelope(type: 77, metadata: metadata, body: body))
            }
        }
    }

    @Test func withoutAnythingAroundItABodyIsThePayload() throws {
        let body = ByteBuffer(string: "hello")
        let sealed = try Envelope.seal(type: 77, body: body)
        #expect(sealed.type == 77)
        #expect(sealed.payload == body)
    }

    @Test func aBodyAtTheThresholdIsCompressedAndOneBelowIsNot() throws {
        let policy = CompressionPolicy(minimumLength: 1_000)
        for (length, isCompressed) in [(999, false), (1_000, true)] {
            let body = ByteBuffer(repeating: 7, count: length)
            let sealed = try Envelope.seal(type: 77, body: body, compression: policy)
            #expect((sealed.type == 77 | FrameType.compressionFlag) == isCompressed)
            #expect((sealed.payload.readableBytes < length) == isCompressed)
        }
    }

    @Test func aBodyThatDoesNotBecomeSmallerIsLeftAsItIs() throws {
        var generator = SeededGenerator(seed: 1)
        let noise = ByteBuffer(bytes: (0..<5_000).map { _ in UInt8.random(in: 0...255, using: &generator) })
        let policy = CompressionPolicy(minimumLength: 0)
        let plain = try Envelope.seal(type: 77, body: noise, compression: policy)
        #expect(plain.type == 77)
        #expect(plain.payload == noise)
        let described = try Envelope.seal(type: 77, body: noise, metadata: WireMetadata(), compression: policy)
        #expect(described.type == 77 | FrameType.metadataFlag)
        #expect(try self.open(described).body == noise)
    }

    @Test(arguments: [Int.min, 0, 1, 9, 10, Int.max])
    func everyLevelWorks(_ level: Int) throws {
        let body = ByteBuffer(repeating: 7, count: 10_000)
        let sealed = try Envelope.seal(
            type: 77,
            body: body,
            compression: CompressionPolicy(minimumLength: .min, level: level)
        )
        #expect(sealed.payload.readableBytes < 100)
        #expect(try self.open(sealed).body == body)
    }

    // MARK: What cannot be opened

    @Test func flagsThatWereNotAgreedOnAreRefused() throws {
        let payload = ByteBuffer(bytes: [0, 0, 0, 0])
        for (type, agreed, refused) in [
            (0x8000_004D, 0, 0x8000_0000), (0x8000_004D, 0x4000_0000, 0x8000_0000),
            (0x4000_004D, 0x8000_0000, 0x4000_0000),
            (0xC000_004D, 0x8000_0000, 0x4000_0000), (0x2000_004D, 0xC000_0000, 0x2000_0000),
            // The reserved flag is never agreed on.
            (0x2000_004D, 0xE000_0000, 0x2000_0000),
        ] as [(UInt32, UInt32, UInt32)] {
            #expect(throws: EnvelopeError.flagNotAgreed(refused)) { try self.open((type, payload), agreed: agreed) }
        }
        #expect("\(EnvelopeError.flagNotAgreed(0xA000_0000))".contains("bit 31 (metadata) and bit 29 (continues)"))
    }

    @Test func everyTruncationIsNoticed() throws {
        let sealed = try Envelope.seal(
            type: 77,
            body: ByteBuffer(repeating: 7, count: 500),
            metadata: self.metadata { $0.values = ["tenant": "acme"] },
            compression: CompressionPolicy(minimumLength: 0)
        )
        #expect(sealed.type == 77 | Self.bothFlags)
        let announced = sealed.payload.getInteger(at: 0, as: UInt32.self).map { Int($0) } ?? 0
        for length in 0..<sealed.payload.readableBytes {
            let cut = sealed.payload.getSlice(at: 0, length: length) ?? ByteBuffer()
            let error = #expect(throws: EnvelopeError.self) { try self.open((sealed.type, cut)) }
            switch length {
            case ..<4: #expect(error == .metadataTruncated(announced: nil, available: length))
            case ..<(4 + announced): #expect(error == .metadataTruncated(announced: announced, available: length - 4))
            default: #expect(error == .compressionMalformed("its end is missing"))
            }
        }
    }

    @Test func metadataOverTheLimitIsRefusedByBothEnds() throws {
        let limit = Envelope.maximumMetadataLength
        // Three bytes each for the field and length of the entry, for the name, and for those of the text.
        func metadata(_ length: Int) -> WireMetadata {
            self.metadata { $0.values = ["a": String(repeating: "x", count: length)] }
        }
        let most = metadata(limit - 9)
        let sealed = try Envelope.seal(type: 77, body: ByteBuffer(), metadata: most)
        #expect(sealed.payload.readableBytes == 4 + limit)
        #expect(try self.open(sealed).metadata == most)
        #expect(throws: EnvelopeError.metadataTooLong(length: limit + 1, limit: limit)) {
            try Envelope.seal(type: 77, body: ByteBuffer(), metadata: metadata(limit - 8))
        }
        let forged = ByteBuffer(integer: UInt32(limit + 1))
        #expect(throws: EnvelopeError.metadataTooLong(length: limit + 1, limit: limit)) {
            try self.open((77 | FrameType.metadataFlag, forged))
        }
        #expect(throws: EnvelopeError.metadataTooLong(length: Int(UInt32.max), limit: limit)) {
            try self.open((77 | FrameType.metadataFlag, ByteBuffer(integer: UInt32.max)))
        }
    }

    @Test func tooManyValuesAndTooLongAKeyAreRefusedByBothEnds() throws {
        let tooMany = self.metadata { metadata in
            for number in 0...Envelope.maximumValues { metadata.values["n\(number)"] = "" }
        }
        let tooLong = self.metadata { $0.idempotencyKey = String(repeating: "k", count: Envelope.maximumKeyLength + 1) }
        for metadata in [tooMany, tooLong] {
            #expect(throws: EnvelopeError.self) { try Envelope.seal(type: 77, body: ByteBuffer(), metadata: metadata) }
            let bytes = try ByteBuffer(message: metadata)
            var payload = ByteBuffer(integer: UInt32(bytes.readableBytes))
            payload.writeImmutableBuffer(bytes)
            let error = #expect(throws: EnvelopeError.self) {
                try self.open((77 | FrameType.metadataFlag, payload))
            }
            guard case .metadataMalformed? = error else {
                Issue.record("\(String(describing: error))")
                continue
            }
        }
    }

    @Test func malformedMetadataIsRejected() throws {
        let error = #expect(throws: EnvelopeError.self) {
            try self.open((77 | FrameType.metadataFlag, buffer(hex: "00000001 0a")))
        }
        guard case .metadataMalformed? = error else {
            Issue.record("\(String(describing: error))")
            return
        }
    }

    @Test func randomBytesNeverTrap() throws {
        var generator = SeededGenerator(seed: 7)
        let sealed = try Envelope.seal(
            type: 77,
            body: ByteBuffer(bytes: (0..<2_000).map { UInt8(truncatingIfNeeded: $0 / 3) }),
            metadata: self.metadata { $0.values = ["tenant": "acme"] },
            compression: CompressionPolicy(minimumLength: 0)
        )
        var failures = 0
        for round in 0..<20_000 {
            var bytes: [UInt8]
            if round.isMultiple(of: 2) {
                bytes = (0..<Int.random(in: 0...64, using: &generator)).map { _ in
                    UInt8.random(in: 0...255, using: &generator)
                }
                // So that random bytes get past the first length.
                if bytes.count >= 4 { bytes.replaceSubrange(0..<3, with: [0, 0, 0]) }
            } else {
                bytes = Array(sealed.payload.readableBytesView)
                for _ in 0..<Int.random(in: 1...4, using: &generator) {
                    bytes[Int.random(in: 0..<bytes.count, using: &generator)] = UInt8.random(
                        in: 0...255,
                        using: &generator
                    )
                }
            }
            let flags = [FrameType.metadataFlag, FrameType.compressionFlag, Self.bothFlags].randomElement(
                using: &generator
            )
            do throws(EnvelopeError) {
                _ = try self.open((77 | (flags ?? 0), ByteBuffer(bytes: bytes)), limit: 4_000)
            } catch {
                failures += 1
            }
        }
        #expect(failures > 10_000)
    }
}
