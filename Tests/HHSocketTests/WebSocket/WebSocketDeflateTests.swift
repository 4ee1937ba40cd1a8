// SPDX-License-Identifier: Apache-2.0
import CZlib
import HHSocket
import HHSocketTesting
import NIOCore
import Testing

@Suite struct WebSocketDeflateTests {
    private static let hello = Array("Hello".utf8)
    /// "Hello" as a block with fixed codes, RFC 7692, section 7.2.3.1.
    private static let helloDeflated: [UInt8] = [0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]
    private static let wholeWindow = DeflateDirection(windowBits: 15, keepsWindow: true)

    // MARK: Helpers

    /// zlib itself, with options that our deflater does not use.
    private static func zlib(
        _ bytes: [UInt8],
        windowBits: Int32 = 15,
        level: Int32 = 6,
        strategy: Int32 = Z_DEFAULT_STRATEGY,
        flush: Int32 = Z_SYNC_FLUSH
    ) throws -> [UInt8] {
        var output = [UInt8](repeating: 0, count: bytes.count + bytes.count / 100 + 1_000)
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        defer { stream.deallocate() }
        let size = Int32(MemoryLayout<z_stream>.size)
        try #require(
            deflateInit2_(stream, level, Z_DEFLATED, -windowBits, 8, strategy, zlibVersion(), size) == Z_OK
        )
        defer { deflateEnd(stream) }
        var input = bytes
        input.withUnsafeMutableBufferPointer { input in
            output.withUnsafeMutableBufferPointer { output in
                stream.pointee.next_in = input.baseAddress
                stream.pointee.avail_in = UInt32(input.count)
                stream.pointee.next_out = output.baseAddress
                stream.pointee.avail_out = UInt32(output.count)
                _ = deflate(stream, flush)
            }
        }
        try #require(stream.pointee.avail_in == 0 && stream.pointee.avail_out > 0)
        output.removeLast(Int(stream.pointee.avail_out))
        if flush == Z_SYNC_FLUSH {
            #expect(output.suffix(4) == [0x00, 0x00, 0xFF, 0xFF])
            output.removeLast(4)
        }
        return output
    }

    /// Inflates one complete message.
    private static func inflate(
        _ inflater: WebSocketInflater,
        _ bytes: [UInt8],
        limit: Int = .max,
        budget: Int = .max
    ) throws(WebSocketViolation) -> [UInt8] {
        var (input, output) = (ByteBuffer(bytes: bytes), ByteBuffer())
        while true {
            let before = output.readableBytes
            let progress = try inflater.inflate(&input, isEnd: true, into: &output, limit: limit, budget: budget)
            #expect(output.readableBytes - before <= budget)
            if progress == .finished { break }
            #expect(progress == .moreOutput && output.readableBytes - before == budget)
        }
        #expect(input.readableBytes == 0)
        return Array(output.readableBytesView)
    }

    /// A frame to a client.
    private static func frame(_ first: UInt8, _ payload: [UInt8]) -> [UInt8] {
        WebSocketDecoderTests.frame(first, payload, key: nil)
    }

    private static func decode(
        _ reads: [ArraySlice<UInt8>],
        role: WebSocketRole,
        mode: WebSocketDecoder.Mode,
        deflate: DeflateAgreement? = DeflateAgreement()
    ) -> (inputs: [WebSocketInput], violation: WebSocketViolation?) {
        var decoder = WebSocketDecoder(role: role, mode: mode, deflate: deflate, account: nil)
        var inputs: [WebSocketInput] = []
        for read in reads {
            decoder.append(ByteBuffer(bytes: read))
            do throws(WebSocketViolation) {
                while let input = try decoder.next() { inputs.append(input) }
            } catch {
                #expect(throws: error) { try decoder.next() }
                #expect(decoder.bufferedBytes == 0)
                return (WebSocketDecoderTests.joined(inputs), error)
            }
        }
        return (WebSocketDecoderTests.joined(inputs), nil)
    }

    /// Expects the output of the bytes, however they are divided.
    private static func expect(
        _ bytes: [UInt8],
        role: WebSocketRole = .client,
        mode: WebSocketDecoder.Mode = .messages(WebSocketLimits()),
        deflate: DeflateAgreement? = DeflateAgreement(),
        _ inputs: [WebSocketInput],
        _ violation: WebSocketViolation? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        var cuts = Cuts.inTwo(bytes) + [Cuts.singly(bytes)]
        if bytes.count <= 60 { cuts += Cuts.inThree(bytes) }
        for cut in cuts {
            let decoded = self.decode(cut, role: role, mode: mode, deflate: deflate)
            let isRight = decoded.inputs == inputs && decoded.violation == violation
            #expect(isRight, "\(decoded) when cut in \(cut.map(\.count))", sourceLocation: sourceLocation)
            if !isRight { return }
        }
    }

    private static func text(_ text: String) -> WebSocketInput { .message(.text, ByteBuffer(string: text)) }

    private static func limited(to length: Int) -> WebSocketDecoder.Mode {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = length
        return .messages(limits)
    }

    /// The messages, in random order.
    private static func samples(_ random: inout SplitMix) -> [[UInt8]] {
        self.messages.shuffled(using: &random)
    }

    /// Messages of all kinds: those that refer to earlier ones, far and near, those that cannot be compressed, and
    /// uncompressed ones.
    private static let messages: [[UInt8]] = {
        var random = SplitMix(seed: 7_692)
        var messages: [[UInt8]] = [[], Self.hello]
        let words = ["price", "\"EUR\"", "{\"ask\":", "update", "[", "},", "session-", "ü", "volume", " "]
        for length in [255, 256, 300, 1_000, 5_000, 33_000, 70_000] {
            var json: [UInt8] = []
            while json.count < length {
                json += Array((words.randomElement(using: &random) ?? "").utf8)
                if Int.random(in: 0..<6, using: &random) == 0 {
                    json += Array(String(UInt16.random(in: .min ... .max, using: &random)).utf8)
                }
            }
            let noise = (0..<length).map { _ in UInt8.random(in: .min ... .max, using: &random) }
            messages += [json, noise, noise + noise, json, [UInt8](repeating: 7, count: length), json.reversed()]
        }
        return messages
    }()

    // MARK: Examples of RFC 7692, section 7.2.3

    @Test func examplesOfTheStandard() {
        let hello = Self.text("Hello")
        // One frame, and two.
        Self.expect(Self.frame(0xC1, Self.helloDeflated), [hello])
        Self.expect([0x41, 0x03, 0xF2, 0x48, 0xCD, 0x80, 0x04, 0xC9, 0xC9, 0x07, 0x00], [hello])
        // The window of the first message in the second, which is then shorter.
        let second: [UInt8] = [0xF2, 0x00, 0x11, 0x00, 0x00]
        Self.expect(Self.frame(0xC1, Self.helloDeflated) + Self.frame(0xC1, second), [hello, hello])
        // No compression.
        let stored: [UInt8] = [0x00, 0x05, 0x00, 0xFA, 0xFF, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x00]
        Self.expect(Self.frame(0xC1, stored), [hello])
        // A final block, and then a message that refers to bytes before it.
        let final: [UInt8] = [0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00]
        Self.expect(Self.frame(0xC1, final), [hello])
        Self.expect(Self.frame(0xC1, final) + Self.frame(0xC1, second), [hello, hello])
        // Two blocks.
        let two: [UInt8] = [0xF2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xCA, 0xC9, 0xC9, 0x07, 0x00]
        Self.expect(Self.frame(0xC1, two), [hello])
        // An empty message.
        Self.expect(
            Self.frame(0xC1, [0x00]) + Self.frame(0xC2, [0x02, 0x00]),
            [
                Self.text(""), .message(.binary, ByteBuffer()),
            ]
        )
    }

    @Test func deflatesTheStandardsExample() throws {
        // Our deflater does not compress "Hello", so zlib is used with equal options.
        #expect(try Self.zlib(Self.hello) == Self.helloDeflated)
        let inflater = WebSocketInflater(Self.wholeWindow, account: nil)
        #expect(try Self.inflate(inflater, Self.helloDeflated) == Self.hello)
        #expect(try Self.inflate(inflater, [0xF2, 0x00, 0x11, 0x00, 0x00]) == Self.hello)
        let forgetful = WebSocketInflater(DeflateDirection(windowBits: 15, keepsWindow: false), account: nil)
        #expect(try Self.inflate(forgetful, Self.helloDeflated) == Self.hello)
        #expect(throws: WebSocketViolation.notDeflate("invalid distance too far back")) {
            try Self.inflate(forgetful, [0xF2, 0x00, 0x11, 0x00, 0x00])
        }
    }

    @Test func finalBlocks() throws {
        // Without the byte that RFC 7692 adds, as sent by peers that finish each message's stream.
        let bare: [UInt8] = [0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]
        Self.expect(Self.frame(0xC1, bare) + Self.frame(0xC1, bare), [Self.text("Hello"), Self.text("Hello")])
        // Several streams in one message, the last one not final; and the removed block itself final.
        Self.expect(Self.frame(0xC1, bare + bare + Self.helloDeflated), [Self.text("HelloHelloHello")])
        Self.expect(Self.frame(0xC1, [0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x04]), [Self.text("Hello")])
        let fragments = Self.frame(0x41, bare) + Self.frame(0x00, []) + Self.frame(0x80, [])
        Self.expect(fragments, [Self.text("Hello")])
        let long = [UInt8](repeating: 0x61, count: 100_000)
        let finished = try Self.zlib(long, flush: Z_FINISH)
        Self.expect(Self.frame(0xC2, finished), mode: .stream, [.bytes(ByteBuffer(bytes: long))])
    }

    // MARK: Round trips

    @Test(arguments: 9...15, [true, false])
    func everythingComesBack(_ windowBits: Int, keepsWindow: Bool) throws {
        var random = SplitMix(seed: UInt64(windowBits))
        let agreements = [
            (
                WebSocketRole.client,
                DeflateAgreement(
                    serverNoContextTakeover: keepsWindow,
                    clientNoContextTakeover: !keepsWindow,
                    serverWindowBits: 24 - windowBits,
                    clientWindowBits: windowBits
                )
            ),
            (
                .server,
                DeflateAgreement(
                    serverNoContextTakeover: !keepsWindow,
                    clientNoContextTakeover: keepsWindow,
                    serverWindowBits: windowBits,
                    clientWindowBits: 24 - windowBits
                )
            ),
        ]
        for (role, agreement) in agreements {
            var encoder = WebSocketEncoder(role: role, deflate: agreement, account: nil)
            let other: WebSocketRole = role == .client ? .server : .client
            let mode = WebSocketDecoder.Mode.messages(WebSocketLimits())
            var decoder = WebSocketDecoder(role: other, mode: mode, deflate: agreement, account: nil)
            var stream = WebSocketDecoder(role: other, mode: .stream, deflate: agreement, account: nil)
            var (sent, written) = (0, 0)
            for sample in Self.samples(&random) {
                let message = ByteBuffer(bytes: sample)
                var bytes = ByteBuffer()
                encoder.encode(.binary, message, into: &bytes)
                (sent, written) = (sent + sample.count, written + bytes.readableBytes)
                #expect(bytes.readableBytes <= sample.count + 14)
                var inputs: [WebSocketInput] = []
                var streamed = ByteBuffer()
                for piece in Cuts.randomly(Array(bytes.readableBytesView), &random) {
                    decoder.append(ByteBuffer(bytes: piece))
                    while let input = try decoder.next() { inputs.append(input) }
                    stream.append(ByteBuffer(bytes: piece))
                    while case .bytes(var part)? = try stream.next() { streamed.writeBuffer(&part) }
                }
                #expect(inputs == [.message(.binary, message)])
                #expect(streamed == message)
                #expect(decoder.bufferedBytes == 0 && stream.bufferedBytes == 0)
            }
            #expect(written < sent * 3 / 4)
        }
    }

    @Test(arguments: [0, 1, 6, 9] as [Int32], [Z_DEFAULT_STRATEGY, Z_HUFFMAN_ONLY, Z_FIXED, Z_RLE])
    func slices(_ level: Int32, strategy: Int32) throws {
        var random = SplitMix(seed: 5)
        let inflater = WebSocketInflater(Self.wholeWindow, account: nil)
        for sample in Self.samples(&random) where sample.count < 6_000 {
            for flush in [Z_SYNC_FLUSH, Z_FINISH] {
                let deflated = try Self.zlib(sample, level: level, strategy: strategy, flush: flush)
                let small = sample.count < 1_000 ? [1, 2] : []
                let budgets = small + [257, 258, 1_000, sample.count, sample.count + 1, .max]
                for budget in budgets where budget > 0 {
                    #expect(try Self.inflate(inflater, deflated, limit: sample.count, budget: budget) == sample)
                }
            }
        }
    }

    @Test func randomAndDamagedInputNeverTraps() throws {
        var random = SplitMix(seed: 1_951)
        var (good, bad) = (0, 0)
        for round in 0..<3_000 {
            var bytes: [UInt8]
            if round.isMultiple(of: 2) {
                bytes = (0..<40).map { _ in UInt8.random(in: .min ... .max, using: &random) }
            } else {
                bytes = try Self.zlib(Array("a text of some words and some more of these words".utf8))
                for _ in 0..<2 {
                    bytes[Int.random(in: bytes.indices, using: &random)] = .random(in: .min ... .max, using: &random)
                }
            }
            let whole = Self.decode([Self.frame(0xC1, bytes)[...]], role: .client, mode: Self.limited(to: 500))
            let pieces = Cuts.randomly(Self.frame(0xC1, bytes), &random)
            let cut = Self.decode(pieces, role: .client, mode: Self.limited(to: 500))
            let singly = Self.decode(
                Cuts.singly(Self.frame(0xC1, bytes)),
                role: .client,
                mode: Self.limited(to: 500)
            )
            #expect(whole == cut && whole == singly)
            if let violation = whole.violation {
                #expect([1_007, 1_009].contains(violation.code))
                bad += 1
            } else {
                good += 1
            }
        }
        #expect(good > 0 && bad > 0)
    }

    // MARK: Frames

    @Test(arguments: [WebSocketRole.client, .server])
    func compressedMessageOfAStreamComesAtOnceBehindAnEmptyOne(role: WebSocketRole) throws {
        var encoder = WebSocketEncoder(
            role: role == .client ? .server : .client,
            deflate: DeflateAgreement(),
            account: nil
        )
        var bytes = ByteBuffer()
        let payload = ByteBuffer(string: String(repeating: "compress ", count: 100))
        encoder.encode(.binary, ByteBuffer(), into: &bytes)
        encoder.encode(.binary, payload, into: &bytes)
        #expect(bytes.readableBytes < payload.readableBytes)
        var decoder = WebSocketDecoder(role: role, mode: .stream, deflate: DeflateAgreement(), account: nil)
        decoder.append(bytes)
        #expect(try decoder.next() == .bytes(payload))
    }

    @Test(arguments: [WebSocketRole.client, .server])
    func everySplitOfSeveralMessages(_ role: WebSocketRole) throws {
        let agreement = DeflateAgreement(serverWindowBits: 12, clientWindowBits: 10)
        var encoder = WebSocketEncoder(role: role, deflate: agreement, account: nil)
        let long = String(repeating: "Grüße an alle, ", count: 40)
        var bytes = ByteBuffer()
        encoder.encode(.text, ByteBuffer(string: long), into: &bytes)
        encoder.encodePing(into: &bytes)
        encoder.encode(.text, ByteBuffer(string: "short"), into: &bytes)
        encoder.encode(.text, ByteBuffer(string: long), into: &bytes)
        encoder.encodeFragment(.text, isFirst: true, isFinal: false, ByteBuffer(string: "frag"), into: &bytes)
        encoder.encodeFragment(.text, isFirst: false, isFinal: true, ByteBuffer(string: "ment"), into: &bytes)
        encoder.encode(.binary, ByteBuffer(string: long), into: &bytes)
        encoder.encodeClose(WebSocketClose(code: 1_000), into: &bytes)
        #expect(bytes.readableBytes < 250)
        Self.expect(
            Array(bytes.readableBytesView),
            role: role == .client ? .server : .client,
            deflate: agreement,
            [
                Self.text(long), .ping(ByteBuffer()), Self.text("short"), Self.text(long), Self.text("fragment"),
                .message(.binary, ByteBuffer(string: long)), .close(WebSocketClose(code: 1_000)),
            ]
        )
    }

    @Test func fragmentsWithControlFramesBetween() {
        let deflated = Self.helloDeflated
        let bytes =
            Self.frame(0x41, []) + Self.frame(0x00, Array(deflated[..<2])) + Self.frame(0x89, [9])
            + Self.frame(0x00, []) + Self.frame(0x00, Array(deflated[2...])) + Self.frame(0x8A, [])
            + Self.frame(0x80, []) + Self.frame(0x81, Self.hello) + Self.frame(0xC1, [0xF2, 0x00, 0x11, 0x00, 0x00])
        let (ping, pong) = (WebSocketInput.ping(ByteBuffer(bytes: [9])), WebSocketInput.pong(ByteBuffer()))
        let hello = Self.text("Hello")
        Self.expect(bytes, [ping, pong, hello, hello, hello])
        let binary =
            Self.frame(0x42, []) + Self.frame(0x00, Array(deflated[..<4])) + Self.frame(0x89, [9])
            + Self.frame(0x80, Array(deflated[4...])) + Self.frame(0x82, Self.hello) + Self.frame(0xC2, deflated)
        let end = ByteBuffer(string: "loHelloHello")
        Self.expect(binary, mode: .stream, [.bytes(ByteBuffer(string: "Hel")), ping, .bytes(end)])
        Self.expect(Self.frame(0x42, deflated) + Self.frame(0x88, []), [.close(WebSocketClose())])
        // Fragments count.
        var limits = WebSocketLimits()
        limits.maximumFragments = 3
        Self.expect(bytes, mode: .messages(limits), [ping], .tooManyFragments(limit: 3))
    }

    @Test func reservedBits() {
        let hello = Self.frame(0xC1, Self.helloDeflated)
        Self.expect(hello, deflate: nil, [], .reservedBits(4))
        Self.expect(hello, mode: .stream, deflate: nil, [], .reservedBits(4))
        Self.expect(hello, mode: .stream, [], .unexpectedText)
        for first in [0xC9, 0xCA, 0xC8] as [UInt8] {
            Self.expect(hello + Self.frame(first, []), [Self.text("Hello")], .reservedBits(4))
        }
        Self.expect(Self.frame(0x41, []) + Self.frame(0xC0, Self.helloDeflated), [], .reservedBits(4))
        Self.expect(Self.frame(0xE1, Self.helloDeflated), [], .reservedBits(6))
        Self.expect(Self.frame(0xD1, Self.helloDeflated), [], .reservedBits(5))
        #expect(WebSocketViolation.reservedBits(4).code == 1_002)
    }

    // MARK: Violations

    @Test func corruptData() throws {
        // Each with the bytes that a stream returns before the fault.
        let cases: [([UInt8], String, [UInt8])] = [
            ([0x06], "invalid block type", []),
            (Self.helloDeflated + [0x00, 0x00, 0xFF, 0xFF, 0x06], "invalid block type", Self.hello),
            ([0x00, 0x05, 0x00, 0xFA, 0xFE, 0x48], "invalid stored block lengths", []),
            ([0xF2, 0x00, 0x11, 0x00, 0x00], "invalid distance too far back", [0x48]),
            // No bytes, although an empty message has one byte; and a truncated stored block, so that the tail is taken
            // for its bytes.
            ([], "it ends within a block", []),
            ([0x00, 0x09, 0x00, 0xF6, 0xFF, 0x48], "it ends within a block", [0x48, 0x00, 0x00, 0xFF, 0xFF]),
        ]
        for (bytes, reason, before) in cases {
            let violation = WebSocketViolation.notDeflate(reason)
            #expect(violation.code == 1_007 && violation.description.contains(reason))
            Self.expect(Self.frame(0xC2, bytes), [], violation)
            let inputs = before.isEmpty ? [] : [WebSocketInput.bytes(ByteBuffer(bytes: before))]
            Self.expect(Self.frame(0xC2, bytes), mode: .stream, inputs, violation)
        }
        // A window larger than the agreed one, in small reads, between which zlib keeps no more than the window.
        var random = SplitMix(seed: 3)
        let noise = (0..<1_500).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        let far = Cuts.randomly(Self.frame(0xC2, try Self.zlib(noise + noise)), &random)
        let small = Self.decode(far, role: .client, mode: .stream, deflate: DeflateAgreement(serverWindowBits: 10))
        #expect(small.violation == .notDeflate("invalid distance too far back"))
        let agreement = DeflateAgreement(serverWindowBits: 11, clientWindowBits: 10)
        let large = Self.decode(far, role: .client, mode: .stream, deflate: agreement)
        #expect(large.inputs == [.bytes(ByteBuffer(bytes: noise + noise))] && large.violation == nil)
    }

    @Test func textIsCheckedWhenItIsInflated() throws {
        for bytes in [[0x61, 0xFF, 0x61], [0x61, 0xC3], [0xE2, 0x82], [0xED, 0xA0, 0x80]] as [[UInt8]] {
            Self.expect(Self.frame(0xC1, try Self.zlib(bytes)), [], .textNotUTF8)
            let binary = WebSocketInput.message(.binary, ByteBuffer(bytes: bytes))
            Self.expect(Self.frame(0xC2, try Self.zlib(bytes)), [binary])
        }
        // The first fault is reported, wherever reads end.
        let broken = try Self.zlib([0x61, 0xFF, 0x61]) + [0x00, 0x00, 0xFF, 0xFF, 0x06]
        Self.expect(Self.frame(0xC1, broken), [], .textNotUTF8)
        let tooLong = try Self.zlib([0x61, 0xFF] + [UInt8](repeating: 0x61, count: 50))
        Self.expect(Self.frame(0xC1, tooLong), mode: Self.limited(to: 20), [], .textNotUTF8)
        // Before the message ends.
        let cut = try Self.zlib([0xFF] + Self.hello, level: 0)
        #expect(Self.decode([Self.frame(0xC1, cut)[..<9]], role: .client, mode: Self.limited(to: 20)).violation != nil)
        // Characters on the border of the slices.
        let euros = String(repeating: "€", count: 100_000)
        let frame = Self.frame(0xC1, try Self.zlib(Array(euros.utf8)))
        #expect(Self.decode([frame[...]], role: .client, mode: Self.limited(to: 300_000)).inputs == [Self.text(euros)])
    }

    @Test func lengthIsLimitedAfterInflating() throws {
        let zeros = [UInt8](repeating: 0, count: 1_000)
        let frame = Self.frame(0xC2, try Self.zlib(zeros))
        let message = WebSocketInput.message(.binary, ByteBuffer(bytes: zeros))
        Self.expect(frame + frame, mode: Self.limited(to: 1_000), [message, message])
        Self.expect(frame, mode: Self.limited(to: 999), [], .messageTooLong(length: 1_000, limit: 999))
        Self.expect(frame, mode: Self.limited(to: 0), [], .messageTooLong(length: 1, limit: 0))
        let empty = Self.frame(0xC2, [0x00])
        Self.expect(empty, mode: Self.limited(to: 0), [.message(.binary, ByteBuffer())])
        // Compressed bytes may be more than the message has: here in blocks of no compression.
        let stored = try Self.zlib(zeros, level: 0)
        #expect(stored.count > 1_000)
        Self.expect(Self.frame(0xC2, stored), mode: Self.limited(to: 1_000), [message])
    }

    @Test func bombs() throws {
        let limit = 1 << 20
        let bomb = try Self.zlib([UInt8](repeating: 0, count: 64 << 20))
        #expect(bomb.count < 70_000)
        let frame = Self.frame(0xC2, bomb)
        let violation = WebSocketViolation.messageTooLong(length: UInt64(limit) + 1, limit: limit)
        let decoded = Self.decode([frame[...]], role: .client, mode: Self.limited(to: limit))
        #expect(decoded.inputs.isEmpty && decoded.violation == violation && violation.code == 1_009)

        let inflater = WebSocketInflater(Self.wholeWindow, account: nil)
        var (input, output) = (ByteBuffer(bytes: bomb), ByteBuffer())
        #expect(throws: violation) { try inflater.inflate(&input, isEnd: true, into: &output, limit: limit) }
        #expect(output.readableBytes == limit && output.capacity <= limit)
        #expect(!inflater.isAllocated)
        // zlib stops where the output does: a 64th of the input has been taken.
        #expect(input.readableBytes > bomb.count - bomb.count / 32)

        // A stream inflates it slice by slice, as the bytes are asked for.
        var decoder = WebSocketDecoder(role: .client, mode: .stream, deflate: DeflateAgreement(), account: nil)
        decoder.append(ByteBuffer(bytes: frame))
        var length = 0
        while case .bytes(let bytes)? = try decoder.next() {
            #expect(bytes.readableBytes <= 65_537 && bytes.capacity <= 1 << 17)
            length += bytes.readableBytes
            #expect(decoder.bufferedBytes <= frame.count)
            if length < 1 << 20 { #expect(decoder.bufferedBytes > frame.count * 9 / 10) }
        }
        #expect(length == 64 << 20 && decoder.bufferedBytes == 0)
    }

    @Test func bufferedBytesAreThoseNotReturned() throws {
        let mode = WebSocketDecoder.Mode.messages(WebSocketLimits())
        var decoder = WebSocketDecoder(role: .client, mode: mode, deflate: DeflateAgreement(), account: nil)
        let frame = Self.frame(0xC1, try Self.zlib([UInt8](repeating: 0x61, count: 10_000)))
        decoder.append(ByteBuffer(bytes: frame))
        #expect(decoder.bufferedBytes == frame.count)
        #expect(try decoder.next() != nil)
        #expect(decoder.bufferedBytes == 0)
        decoder.append(ByteBuffer(bytes: Self.frame(0x41, Self.helloDeflated)))
        #expect(try decoder.next() == nil)
        #expect(decoder.bufferedBytes == 5)
        decoder.append(ByteBuffer(bytes: [0x00]))
        #expect(try decoder.next() == nil)
        #expect(decoder.bufferedBytes == 6)
    }

    // MARK: Deflating

    @Test(arguments: [true, false])
    func nothingRefersToAMessageThatWasSentAsItIs(_ keepsWindow: Bool) throws {
        let direction = DeflateDirection(windowBits: 15, keepsWindow: keepsWindow)
        let deflater = try #require(WebSocketDeflater(direction, account: nil))
        let inflater = WebSocketInflater(direction, account: nil)
        var random = SplitMix(seed: 11)
        let words = Array(String(repeating: "some words ", count: 50).utf8)
        for _ in 0..<5 {
            let noise = (0..<2_000).map { _ in UInt8.random(in: .min ... .max, using: &random) }
            for (message, isCompressed) in [
                (words, true), (noise, false), (noise + noise, true), (words + noise.prefix(200), true),
                (Array(noise.prefix(255)), false), (words + noise.prefix(400), true),
            ] {
                let compressed = deflater.compress(ByteBuffer(bytes: message))
                #expect((compressed != nil) == isCompressed)
                guard let compressed else { continue }
                #expect(compressed.readableBytes < message.count)
                #expect(try Self.inflate(inflater, Array(compressed.readableBytesView)) == message)
            }
        }
    }

    /// All lengths of the output around the points where its buffer is full.
    @Test func outputOfEveryLength() throws {
        var random = SplitMix(seed: 12)
        let deflater = try #require(WebSocketDeflater(Self.wholeWindow, account: nil))
        let inflater = WebSocketInflater(Self.wholeWindow, account: nil)
        let noise = (0..<2_400).map { _ in UInt8.random(in: .min ... .max, using: &random) }
        var lengths: Set<Int> = []
        for count in 0..<1_100 {
            // `count` new bytes, which deflate cannot shorten.
            let start = Int.random(in: 0...1_200, using: &random)
            let message =
                noise[start..<start + count].map { $0 ^ UInt8(truncatingIfNeeded: count) }
                + [UInt8](repeating: 9, count: 256)
            let compressed = try #require(deflater.compress(ByteBuffer(bytes: message)))
            lengths.insert(compressed.readableBytes)
            #expect(try Self.inflate(inflater, Array(compressed.readableBytesView)) == message)
        }
        #expect(lengths.count > 700)
    }

    @Test func memoryIsThereWhileItIsNeeded() throws {
        let message = ByteBuffer(repeating: 1, count: 1_000)
        for keepsWindow in [true, false] {
            let direction = DeflateDirection(windowBits: 12, keepsWindow: keepsWindow)
            let deflater = try #require(WebSocketDeflater(direction, account: nil))
            #expect(deflater.compress(ByteBuffer(repeating: 1, count: 255)) == nil)
            #expect(!deflater.isAllocated)
            let compressed = try #require(deflater.compress(message))
            #expect(deflater.isAllocated == keepsWindow)

            let inflater = WebSocketInflater(direction, account: nil)
            #expect(!inflater.isAllocated)
            var (input, output) = (compressed, ByteBuffer())
            #expect(try inflater.inflate(&input, isEnd: false, into: &output, limit: 1_000) == .needsInput)
            inflater.releaseIfIdle()
            #expect(inflater.isAllocated)
            #expect(try inflater.inflate(&input, isEnd: true, into: &output, limit: 1_000) == .finished)
            inflater.releaseIfIdle()
            #expect(inflater.isAllocated == keepsWindow)
            #expect(output == message)
        }
    }

    @Test(arguments: [true, false]) func memoryIsFreedAfterAPause(_ keepsWindow: Bool) throws {
        let direction = DeflateDirection(windowBits: 15, keepsWindow: keepsWindow)
        let deflater = try #require(WebSocketDeflater(direction, account: nil))
        let inflater = WebSocketInflater(direction, account: nil)
        let message = ByteBuffer(string: String(repeating: "a text of some words, ", count: 40))
        for _ in 0..<3 {
            var (input, output) = (try #require(deflater.compress(message)), ByteBuffer())
            deflater.releaseUnlessUsed()
            #expect(deflater.isAllocated == keepsWindow)
            deflater.releaseUnlessUsed()
            #expect(!deflater.isAllocated)

            // Never within a message.
            #expect(try inflater.inflate(&input, isEnd: false, into: &output, limit: .max) == .needsInput)
            inflater.releaseUnlessUsed()
            inflater.releaseUnlessUsed()
            #expect(inflater.isAllocated)
            #expect(try inflater.inflate(&input, isEnd: true, into: &output, limit: .max) == .finished)
            inflater.releaseUnlessUsed()
            #expect(inflater.isAllocated)
            inflater.releaseUnlessUsed()
            #expect(!inflater.isAllocated)
            #expect(output == message)
        }
    }

    /// Memory may be freed at any time: messages of a peer that keeps its own can still be inflated, and the other way
    /// round.
    @Test(arguments: 9...15, [true, false])
    func everythingComesBackAcrossPauses(_ windowBits: Int, keepsWindow: Bool) throws {
        var random = SplitMix(seed: UInt64(windowBits) << 8)
        let direction = DeflateDirection(windowBits: windowBits, keepsWindow: keepsWindow)
        let deflaters = [WebSocketDeflater(direction, account: nil), WebSocketDeflater(direction, account: nil)]
        let inflaters = [WebSocketInflater(direction, account: nil), WebSocketInflater(direction, account: nil)]
        for sample in Self.samples(&random) + Self.samples(&random) {
            for index in 0..<2 {
                let deflater = try #require(deflaters[index])
                guard let compressed = deflater.compress(ByteBuffer(bytes: sample)) else { continue }
                #expect(try Self.inflate(inflaters[index], Array(compressed.readableBytesView)) == sample)
            }
            // One side of each pair takes pauses.
            for _ in 0..<Int.random(in: 0...2, using: &random) {
                deflaters[0]?.releaseUnlessUsed()
                inflaters[1].releaseUnlessUsed()
            }
        }
        // Missing bytes of the window are detected after a pause, too.
        let forgetful = WebSocketInflater(direction, account: nil)
        #expect(try Self.inflate(forgetful, Self.helloDeflated) == Self.hello)
        for _ in 0..<2 { forgetful.releaseUnlessUsed() }
        // A letter, and then a reference to the seventh byte back, although there are only six.
        let tooFar: [UInt8] = [0xF2, 0x00, 0x51, 0x00, 0x00]
        #expect(throws: WebSocketViolation.notDeflate("invalid distance too far back")) {
            try Self.inflate(forgetful, tooFar)
        }
    }

    @Test func windowsOfEightBits() throws {
        let agreement = DeflateAgreement(serverWindowBits: 8, clientWindowBits: 8)
        #expect(!agreement.clientDeflates)
        #expect(WebSocketDeflater(agreement.direction(from: .client), account: nil) == nil)
        let payload = ByteBuffer(repeating: 1, count: 1_000)
        for role in [WebSocketRole.client, .server] {
            var (encoder, plain) = (
                WebSocketEncoder(role: role, secret: [], deflate: agreement), WebSocketEncoder(role: role, secret: [])
            )
            var (one, other) = (ByteBuffer(), ByteBuffer())
            encoder.encode(.binary, payload, into: &one)
            plain.encode(.binary, payload, into: &other)
            #expect(one == other)
        }
        // Others can deflate with it.
        Self.expect(Self.frame(0xC1, Self.helloDeflated), deflate: agreement, [Self.text("Hello")])
    }

    @Test func messagesAreCompressedAndFragmentsAreNot() {
        var encoder = WebSocketEncoder(role: .server, deflate: DeflateAgreement(), account: nil)
        let payload = ByteBuffer(repeating: 1, count: 1_000)
        func first(_ encode: (inout ByteBuffer) -> Void) -> UInt8? {
            var bytes = ByteBuffer()
            encode(&bytes)
            return bytes.readInteger()
        }
        #expect(first { encoder.encode(.text, payload, into: &$0) } == 0xC1)
        #expect(first { encoder.encode(.binary, payload, into: &$0) } == 0xC2)
        #expect(first { encoder.encode(.text, ByteBuffer(repeating: 1, count: 255), into: &$0) } == 0x81)
        #expect(first { encoder.encodeFragment(.text, isFirst: true, isFinal: false, payload, into: &$0) } == 0x01)
        #expect(first { encoder.encodeStream(payload, into: &$0) } == 0x82)
        #expect(first { encoder.encodePing(payload, into: &$0) } == 0x89)
    }
}
