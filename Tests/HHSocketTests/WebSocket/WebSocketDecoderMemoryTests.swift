// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

/// The memory of a decoder: the payloads that are copied together, and the release of read buffers.
@Suite struct WebSocketDecoderMemoryTests {
    private typealias Decoded = WebSocketDecoderTests

    private static func payload(_ number: Int, _ length: Int) -> [UInt8] {
        (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ number) }
    }

    private static func address(_ buffer: ByteBuffer) -> UnsafeRawPointer? {
        buffer.withVeryUnsafeBytes { $0.baseAddress }
    }

    /// Payloads of all lengths around the limit from which they have their own memory, and empty ones.
    @Test(arguments: [WebSocketRole.server, .client])
    func messagesOfOneReadAreWhole(_ role: WebSocketRole) {
        let lengths = [0, 16, 0, 1_000, 24, 1, 1_024, 1_025, 3, 0, 70_000, 512, 512, 1, 0]
        let payloads = lengths.enumerated().map { Self.payload($0, $1) }
        let key: UInt32? = role == .server ? 0x0102_0304 : nil
        let bytes = payloads.flatMap { Decoded.frame(0x82, $0, key: key) }
        let expected = payloads.map { WebSocketInput.message(.binary, ByteBuffer(bytes: $0)) }
        #expect(Decoded.decode([bytes], role: role).inputs == expected)
        // The ends of reads do not matter.
        for cut in stride(from: 1, to: bytes.count, by: 997) {
            let cutInTwo = Decoded.decode([Array(bytes[..<cut]), Array(bytes[cut...])], role: role)
            #expect(cutInTwo.inputs == expected, "cut at \(cut)")
        }
    }

    @Test func smallMessagesShareAnAllocation() {
        let bytes = (0..<64).flatMap { Decoded.frame(0x82, Self.payload($0, 16)) }
        let messages = Decoded.decode([bytes]).inputs
        #expect(messages.count == 64)
        let addresses = messages.compactMap { message -> UnsafeRawPointer? in
            if case .message(_, let payload) = message { Self.address(payload) } else { nil }
        }
        #expect(zip(addresses, addresses.dropFirst()).allSatisfy { $1 - $0 == 16 })
        #expect(addresses.count == 64)
    }

    /// A message that is kept for long keeps no more memory than its own.
    @Test func messagesBetweenOthersKeepNoMoreMemoryThanTheyNeed() throws {
        var decoder = WebSocketDecoder(
            role: .server,
            mode: .messages(WebSocketLimits()),
            deflate: DeflateAgreement(),
            account: nil
        )
        let unit = Decoded.frame(0x82, [1]) + Decoded.frame(0xC2, [0])
        decoder.append(ByteBuffer(bytes: (0..<100).flatMap { _ in unit }))
        var capacities: [Int] = []
        while let input = try decoder.next() {
            guard case .message(_, let payload) = input else { continue }
            capacities.append(payload.storageCapacity)
        }
        #expect(capacities.count == 200)
        #expect(capacities.allSatisfy { $0 <= 64 }, "\(capacities.max() ?? 0)")
    }

    @Test func faultsAmongSmallMessagesShowInTheirOrder() {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = 10
        let mode = WebSocketDecoder.Mode.messages(limits)
        let (five, six) = (Self.payload(5, 5), Self.payload(6, 6))
        let before = Decoded.frame(0x82, five) + Decoded.frame(0x82, six)
        let inputs = [five, six].map { WebSocketInput.message(.binary, ByteBuffer(bytes: $0)) }
        Decoded.expect(
            before + Decoded.frame(0x82, Self.payload(7, 11)),
            mode: mode,
            inputs,
            .messageTooLong(length: 11, limit: 10)
        )
        Decoded.expect(before + Decoded.frame(0x81, [0x61, 0xFF]) + before, mode: mode, inputs, .textNotUTF8)
        Decoded.expect(before + Decoded.frame(0x81, [0x61, 0xC3]) + before, mode: mode, inputs, .textNotUTF8)
        Decoded.expect(before + Decoded.frame(0x80, []), mode: mode, inputs, .strayContinuation)
        Decoded.expect(before + Decoded.frame(0xC2, five), mode: mode, inputs, .reservedBits(0b100))
        Decoded.expect(
            before + Decoded.frame(0x89, [9]) + before + Decoded.frame(0x02, five) + Decoded.frame(0x80, five),
            mode: mode,
            inputs + [.ping(ByteBuffer(bytes: [9]))] + inputs
                + [.message(.binary, ByteBuffer(bytes: five + five))]
        )
    }

    @Test func masksOfAStreamAreAppliedAndMessagesJoined() {
        let payloads = (0..<20).map { Self.payload($0, $0 * 37) }
        let bytes = payloads.enumerated().flatMap {
            Decoded.frame(0x82, $1, key: UInt32(truncatingIfNeeded: $0 &* 0x1234_5677))
        }
        let expected = WebSocketInput.bytes(ByteBuffer(bytes: payloads.joined()))
        #expect(Decoded.decode([bytes], mode: .stream).inputs == [expected])
        for cut in 1..<bytes.count {
            let inputs = Decoded.decode([Array(bytes[..<cut]), Array(bytes[cut...])], mode: .stream).inputs
            #expect(Decoded.joined(inputs) == [expected], "cut at \(cut)")
        }
    }

    @Test func unmaskedMessagesThatWereCutAreJoined() {
        let frames = [65_535, 65_535, 40, 30, 65_535].enumerated().map {
            Decoded.frame(0x82, Self.payload($0, $1), key: nil)
        }
        let inputs = Decoded.decode([Array(frames.joined())], role: .client, mode: .stream).inputs
        let lengths = inputs.map { if case .bytes(let bytes) = $0 { bytes.readableBytes } else { 0 } }
        #expect(lengths == [65_535 + 65_535 + 40, 30, 65_535])
        let expected = [65_535, 65_535, 40, 30, 65_535].enumerated().flatMap { Self.payload($0, $1) }
        #expect(Decoded.joined(inputs) == [.bytes(ByteBuffer(bytes: expected))])
    }

    @Test func longReadsOfAStreamComeInPieces() {
        let payloads = (0..<9).map { Self.payload($0, 65_535) }
        let bytes = payloads.flatMap { Decoded.frame(0x82, $0) }
        let inputs = Decoded.decode([bytes], mode: .stream).inputs
        #expect(inputs.count == 3)
        #expect(Decoded.joined(inputs) == [.bytes(ByteBuffer(bytes: payloads.joined()))])
    }

    @Test(arguments: [WebSocketDecoder.Mode.stream, .messages(WebSocketLimits())])
    func aReadsMemoryIsFreeWhenItWasRead(_ mode: WebSocketDecoder.Mode) throws {
        var decoder = WebSocketDecoder(role: .server, mode: mode, account: nil)
        let frames = (0..<8).flatMap { Decoded.frame(0x82, Self.payload($0, 3_000)) }
        // With a part of a header after them.
        for rest in [0, 1, 5] {
            var read = ByteBuffer(bytes: frames + Array(Decoded.frame(0x82, [1])[..<rest]))
            var inputs: [WebSocketInput] = []
            decoder.append(read)
            while let input = try decoder.next() { inputs.append(input) }
            #expect(!inputs.isEmpty)
            #expect(read.modifyIfUniquelyOwned { _ in true } == true)
            #expect(decoder.bufferedBytes == rest)
            decoder.append(ByteBuffer(bytes: Decoded.frame(0x82, [1])[rest...]))
            #expect(try decoder.next() != nil)
            #expect(try decoder.next() == nil)
        }
    }

    @Test(arguments: [WebSocketDecoder.Mode.stream, .messages(WebSocketLimits())])
    func bytesThatAreKeptStay(_ mode: WebSocketDecoder.Mode) throws {
        var decoder = WebSocketDecoder(role: .server, mode: mode, account: nil)
        var kept: [(bytes: ByteBuffer, expected: [UInt8])] = []
        for round in 0..<50 {
            let payload = Self.payload(round, 1_000 + round * 200)
            decoder.append(ByteBuffer(bytes: Decoded.frame(0x82, payload)))
            switch try decoder.next() {
            case .bytes(let bytes), .message(_, let bytes): kept.append((bytes, payload))
            default: Issue.record("nothing has come")
            }
            #expect(try decoder.next() == nil)
            if round % 4 == 3 { kept.removeFirst(3) }
            for (bytes, expected) in kept { #expect(Array(bytes.readableBytesView) == expected) }
        }
    }
}
