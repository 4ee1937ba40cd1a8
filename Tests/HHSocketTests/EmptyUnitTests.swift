// SPDX-License-Identifier: Apache-2.0
import HHSocketFormats
import HHSocketMessage
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Units that carry nothing cost work in proportion to their bytes, however many arrive in one read: a peer may not
/// occupy a thread with a few kilobytes.
@Suite struct EmptyUnitTests {
    private static let count = 500

    /// A decoder, or a queue behind one, and a unit that occurs many times.
    struct Case: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var count = EmptyUnitTests.count
        /// Makes the input of this number of units, and returns the work on it.
        var prepare: @Sendable (Int) throws -> () throws -> Void

        /// Decodes a stream that arrives in one read.
        static func webSocket(
            _ name: String,
            first: [UInt8] = [],
            _ unit: [UInt8],
            role: WebSocketRole = .server,
            isStream: Bool = false,
            deflate: DeflateAgreement? = nil
        ) -> Case {
            Case(testDescription: "WebSocket: \(name)") { count in
                var limits = WebSocketLimits()
                limits.maximumFragments = .max
                var decoder = WebSocketDecoder(
                    role: role,
                    mode: isStream ? .stream : .messages(limits),
                    deflate: deflate,
                    account: nil
                )
                let read = EmptyUnitTests.read(count, unit, first: first)
                return {
                    decoder.append(read)
                    while try decoder.next() != nil {}
                    // The bytes of an incomplete message remain.
                    #expect(decoder.bufferedBytes <= count)
                }
            }
        }

        static func frames(_ name: String, _ bytes: [UInt8], _ direction: FrameDirection, _ format: WireFormat) -> Case
        {
            Case(testDescription: "frames: \(name)") { count in
                var decoder = FrameDecoder(direction: direction, format: format)
                let read = EmptyUnitTests.read(count, bytes)
                return {
                    decoder.append(read)
                    var found = 0
                    while try decoder.next() != nil { found += 1 }
                    #expect(found == count)
                }
            }
        }

        /// Passes frames to a server's streams, the first of which is open, as the shell does.
        static func streams(
            _ name: String,
            window: UInt32 = .max,
            _ frame: @escaping @Sendable (Int) -> Frame
        ) -> Case {
            Case(testDescription: "streams: \(name)") { count in
                let terms = StreamTerms(server: StreamWindows(stream: window, connection: window))
                var streams = ServerStreams(StreamSettings(terms: terms))
                _ = streams.open(type: 1_000, serial: 50, kind: .bidirectional, hasBody: false, now: .distantPast)
                let frames = (0..<count).map(frame)
                return {
                    var actions: [StreamAction] = []
                    for frame in frames {
                        if frame.type == FrameType.cancel {
                            _ = streams.cancelled(serial: frame.serial)
                        } else {
                            _ = streams.receive(ArrivedFrame(frame), now: .distantPast)
                        }
                        streams.takeActions(into: &actions)
                        for case .item(let id, let item) in actions {
                            streams.took(id, item.receipt, now: .distantPast)
                        }
                        actions.removeAll(keepingCapacity: true)
                        while streams.next(now: .distantPast) != nil {}
                    }
                }
            }
        }
    }

    private static func clientStreams(
        _ name: String,
        isAwaited: Bool = false,
        _ frame: @escaping @Sendable (Int) -> Frame
    ) -> Case {
        Case(testDescription: "a client's streams: \(name)") { count in
            let terms = StreamTerms(server: StreamWindows(stream: .max, connection: .max))
            var streams = ClientStreams(StreamSettings(terms: terms))
            // One that lasts, and others that an answer ends.
            for serial in 0..<UInt32(count) {
                _ = streams.open(type: 1_000, serial: 50 + serial, kind: .bidirectional, now: .distantPast)
            }
            while streams.next(now: .distantPast) != nil {}
            let frames = (0..<count).map(frame)
            return {
                var actions: [StreamAction] = []
                for frame in frames {
                    _ = streams.receive(ArrivedFrame(frame), isAwaited: isAwaited, now: .distantPast)
                    streams.takeActions(into: &actions)
                    for case .item(let id, let item) in actions {
                        streams.took(id, item.receipt, now: .distantPast)
                    }
                    actions.removeAll(keepingCapacity: true)
                    while streams.next(now: .distantPast) != nil {}
                }
            }
        }
    }

    /// Passes a read to the handler of a WebSocket that carries frames.
    private static func carriage(
        _ name: String,
        _ unit: [UInt8],
        role: WebSocketRole = .server,
        deflate: DeflateAgreement? = nil
    ) -> Case {
        Case(testDescription: "carriage: \(name)") { count in
            let channel = EmbeddedChannel(handler: WebSocketCarriage(role: role, deflate: deflate, account: nil))
            try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
            let read = Self.read(count, unit)
            return {
                channel.pipeline.fireChannelRead(read)
                channel.pipeline.fireChannelReadComplete()
                // What was not done in the first turn.
                channel.embeddedEventLoop.advanceTime(by: .seconds(1))
                // Of pings that come together only the last is answered.
                var writes = 0
                while try channel.readOutbound(as: ByteBuffer.self) != nil { writes += 1 }
                #expect(writes < count / 10)
                _ = try channel.finish()
            }
        }
    }

    private static func read(_ count: Int, _ unit: [UInt8], first: [UInt8] = []) -> ByteBuffer {
        var read = ByteBuffer(bytes: first)
        read.reserveCapacity(first.count + count * unit.count)
        for _ in 0..<count { read.writeBytes(unit) }
        return read
    }

    private static func frame(
        _ first: UInt8,
        _ payload: [UInt8] = [],
        isMasked: Bool = true
    ) -> [UInt8] { WebSocketDecoderTests.frame(first, payload, key: isMasked ? 0x0102_0304 : nil) }

    // MARK: Decoders

    static let webSocket: [Case] = [
        .webSocket("empty messages", Self.frame(0x82)),
        .webSocket("empty messages from a server", Self.frame(0x82, isMasked: false), role: .client),
        .webSocket("empty texts", Self.frame(0x81)),
        .webSocket("messages of a byte", Self.frame(0x82, [1])),
        .webSocket("messages of a byte from a server", Self.frame(0x82, [1], isMasked: false), role: .client),
        .webSocket("an empty message after each of a byte", Self.frame(0x82, [1]) + Self.frame(0x82)),
        .webSocket("empty messages after one of a byte", first: Self.frame(0x82, [1]), Self.frame(0x82)),
        .webSocket("pings", Self.frame(0x89)),
        .webSocket("pongs", Self.frame(0x8A)),
        .webSocket("a ping after each message of a byte", Self.frame(0x82, [1]) + Self.frame(0x89)),
        .webSocket("empty fragments", first: Self.frame(0x02), Self.frame(0x00)),
        .webSocket("empty fragments of a text", first: Self.frame(0x01), Self.frame(0x00)),
        .webSocket("fragments of a byte", first: Self.frame(0x01), Self.frame(0x00, [0x61])),
        .webSocket("compressed empty messages", Self.frame(0xC2, [0]), deflate: DeflateAgreement()),
        .webSocket(
            "a compressed empty message after each of a byte",
            Self.frame(0x82, [1]) + Self.frame(0xC2, [0]),
            deflate: DeflateAgreement()
        ),
        .webSocket(
            "empty fragments of a compressed message",
            first: Self.frame(0x42),
            Self.frame(0x00),
            deflate: DeflateAgreement()
        ),
        .webSocket("empty messages of a stream", Self.frame(0x82), isStream: true),
        .webSocket(
            "empty messages of a server's stream",
            Self.frame(0x82, isMasked: false),
            role: .client,
            isStream: true
        ),
        .webSocket("messages of a byte of a stream", Self.frame(0x82, [1]), isStream: true),
        .webSocket("pings of a stream", Self.frame(0x89), isStream: true),
        .webSocket(
            "compressed empty messages of a stream",
            Self.frame(0xC2, [0]),
            isStream: true,
            deflate: DeflateAgreement()
        ),
    ]

    static let frames: [Case] =
        GoldenFrame.all.map { .frames($0.name, $0.bytes, $0.direction, $0.format) }
        + SeparatedGoldenTests.golden.map { direction, _, text in
            .frames("separated, \(text.debugDescription)", Array(text.utf8), direction, .separated)
        }

    /// Frames without a payload of formats that are described in JSON, public ones and random ones.
    static let described: [Case] =
        PublicProtocolTests.examples.filter { $0.frame.payload.readableBytes == 0 }.compactMap { example in
            guard let format = try? WireFormat(json: example.json.utf8) else { return nil }
            return .frames("\(format), \(example.hex)", bytes(hex: example.hex), example.direction, format)
        }
        + (0..<10 as Range<UInt64>).flatMap { seed -> [Case] in
            var random = SeededGenerator(seed: 1_000 + seed)
            guard let format = try? WireFormat(RandomLayoutTests.randomLayout(&random)) else { return [] }
            return [FrameDirection.request, .response].map { direction in
                let frames = randomFrames(payloadLengths: [0], direction: direction, seed: seed, format: format)
                let bytes = FrameEncoder(direction: direction, format: format).encode(frames)
                return .frames("described, layout \(seed), \(direction)", bytes, direction, format)
            }
        }

    /// A codec that counts the questions to it.
    private struct CountingCodec: FrameCodec {
        var base = NetstringCodec()
        let questions = NIOLockedValueBox(0)

        mutating func decode(
            _ bytes: inout ByteBuffer,
            _ direction: FrameDirection,
            maximumPayloadLength: Int
        ) throws -> Frame? {
            self.questions.withLockedValue { $0 += 1 }
            return try self.base.decode(&bytes, direction, maximumPayloadLength: maximumPayloadLength)
        }

        func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
            try self.base.encode(frame, direction, into: &bytes)
        }
    }

    /// Frames of a codec, as the codec's own work is in proportion: each is asked for once.
    private static let codec: [Case] = [
        Case(testDescription: "frames: of a codec, in one read") { count in
            let codec = CountingCodec()
            var decoder = FrameDecoder(direction: .request, format: try NetstringCodec.format(codec))
            // Those by which the format was checked.
            codec.questions.withLockedValue { $0 = 0 }
            let read = Self.read(count, Array("7:101 50 ,".utf8))
            return {
                decoder.append(read)
                var found = 0
                while try decoder.next() != nil { found += 1 }
                #expect(found == count)
                #expect(codec.questions.withLockedValue { $0 } == count)
            }
        },
        Case(testDescription: "frames: of a codec, byte by byte") { count in
            let codec = CountingCodec()
            var decoder = FrameDecoder(direction: .request, format: try NetstringCodec.format(codec))
            // Those by which the format was checked.
            codec.questions.withLockedValue { $0 = 0 }
            let text = "\(8 + count):101 50 0" + String(repeating: "a", count: count) + ","
            let bytes = text.utf8.map { ByteBuffer(bytes: [$0]) }
            return {
                var found = 0
                for byte in bytes {
                    decoder.append(byte)
                    while try decoder.next() != nil { found += 1 }
                }
                #expect(found == 1)
                #expect(codec.questions.withLockedValue { $0 } == bytes.count)
            }
        },
    ]

    /// Bytes between separators that are no frame.
    private static let noFrames = Case(testDescription: "frames: separators") { count in
        var decoder = FrameDecoder(direction: .request, format: .separated)
        let read = Self.read(count, Array("-\r\n".utf8))
        return {
            decoder.append(read)
            // How many are tolerated does not matter.
            while (try? decoder.next()) ?? nil != nil {}
        }
    }

    private static let lines: [Case] = [LineDelimiter.lf, .crlf].map { delimiter in
        Case(testDescription: "lines: empty, \(delimiter)") { count in
            var decoder = LineDecoder(delimiter: delimiter)
            let read = Self.read(count, delimiter == .lf ? [10] : [13, 10])
            return {
                decoder.append(read)
                var found = 0
                while try decoder.next() != nil { found += 1 }
                #expect(found == count)
            }
        }
    }

    private static let heads: [Case] = [
        // Four times as many are a little less than a head may have.
        Case(testDescription: "HTTP: fields without a value", count: 950) { count in
            var reader = OpeningRequestReader()
            let text = "GET / HTTP/1.1\r\n" + String(repeating: "a:\r\n", count: count) + "\r\n"
            reader.append(ByteBuffer(string: text))
            return { _ = try? reader.next() }
        },
        Case(testDescription: "HTTP: empty lines before a request") { count in
            var reader = OpeningRequestReader()
            reader.append(Self.read(count, [10]))
            return { _ = try? reader.next() }
        },
        Case(testDescription: "HTTP: a head byte by byte") { count in
            var reader = OpeningRequestReader()
            let text = "GET / HTTP/1.1\r\nA: " + String(repeating: "a", count: count)
            return {
                for byte in text.utf8 {
                    reader.append(ByteBuffer(bytes: [byte]))
                    _ = try? reader.next()
                }
            }
        },
        // The longest name has 255 bytes.
        Case(testDescription: "SOCKS5: a reply byte by byte", count: 60) { count in
            var negotiation = try #require(SOCKS5Negotiation(to: Endpoint(host: "db", port: 1), credentials: nil))
            _ = negotiation.begin()
            var method = ByteBuffer(bytes: [5, 0])
            _ = try negotiation.receive(&method)
            let reply = [5, 0, 0, 3, UInt8(count)] + [UInt8](repeating: 0x61, count: count) + [0, 0]
            return {
                var bytes = ByteBuffer()
                var steps = 0
                for byte in reply {
                    bytes.writeInteger(byte)
                    steps += 1
                    guard case .wait = try negotiation.receive(&bytes) else { break }
                }
                // It is complete with its last byte, and not before.
                #expect(steps == reply.count)
            }
        },
        Case(testDescription: "HTTP: chunks of a byte") { count in
            var reader = HTTPBodyReader(
                status: 401,
                fields: HTTPFields([HTTPField(name: "Transfer-Encoding", value: "chunked")])
            )
            let chunks = (0..<count).map { _ in ByteBuffer(string: "1\r\na\r\n") }
            return {
                for chunk in chunks {
                    var chunk = chunk
                    _ = reader.read(&chunk)
                }
            }
        },
    ]

    /// The fields of a hello, of its answer and of metadata, each of which has two or three bytes.
    private static let hello: [Case] =
        [
            ("features without a name", [0x12, 0x00]), ("unknown fields", [0xFA, 0x01, 0x00]),
            ("session tokens", [0x1A, 0x00]), ("versions", [0x08, 0x01]),
        ].flatMap { (name: String, field: [UInt8]) in
            [
                Case(testDescription: "hello: \(name)") { count in
                    let payload = Self.read(count, field, first: [0x08, 0x01])
                    return {
                        let answer = HelloAnswer.answer(to: payload, features: [.metadata, .streams])
                        #expect(answer.status == .ok)
                    }
                },
                Case(testDescription: "hello: \(name), in the answer") { count in
                    let payload = Self.read(count, field, first: [0x08, 0x01])
                    return {
                        _ = try? HelloExchange(features: [.metadata]).judge(status: .ok, payload: payload)
                    }
                },
            ]
        } + [
            Case(testDescription: "hello: features of the answer that differ") { count in
                var reply = WireHelloReply()
                reply.version = 1
                reply.features = (0..<count).map { "\($0)" }
                let payload = try ByteBuffer(message: reply)
                return {
                    _ = try? HelloExchange(features: [.metadata]).judge(status: .ok, payload: payload)
                }
            },
            // Four times as many are a little less than metadata may have.
            Case(testDescription: "metadata: empty values") { count in
                let fields = Self.read(count, [0x0A, 0x00])
                var payload = ByteBuffer(integer: UInt32(fields.readableBytes))
                payload.writeImmutableBuffer(fields)
                return {
                    _ = try? Envelope.open(
                        type: 1_000 | FrameType.metadataFlag,
                        payload: payload,
                        agreedFlags: FrameType.metadataFlag,
                        maximumBodyLength: 0
                    )
                }
            },
        ]

    // MARK: Queues

    private static let streams: [Case] = [
        .streams("empty items") { _ in Frame(type: FrameType.item, serial: 50) },
        .streams("empty items of no stream") { _ in Frame(type: FrameType.item, serial: 51) },
        .streams("empty pieces of an item") { _ in
            Frame(type: FrameType.item | FrameType.continuesFlag, serial: 50)
        },
        .streams("empty pieces of a request") { _ in Frame(type: 1_000 | FrameType.continuesFlag, serial: 51) },
        .streams("empty pieces of many requests") {
            Frame(type: 1_000 | FrameType.continuesFlag, serial: 51 + UInt32($0 % 100))
        },
        .streams("credits that change nothing") { _ in StreamFrames.credit(serial: 50, 0) },
        .streams("credits of the connection") {
            StreamFrames.credit(serial: FrameSerial.connectionCredit, 5_000_000 + UInt64($0))
        },
        .streams("credits of a stream") { StreamFrames.credit(serial: 50, 5_000_000 + UInt64($0)) },
        .streams("empty credits") { _ in Frame(type: FrameType.credit, serial: 50) },
        .streams("ends") { _ in Frame(type: FrameType.end, serial: 50) },
        .streams("cancels") { Frame(type: FrameType.cancel, serial: 50 + UInt32($0)) },
    ]

    private static let clientStreams: [Case] = [
        clientStreams("empty items") { _ in Frame(type: 1_000, serial: 50, status: .partial) },
        clientStreams("empty items of no stream") { _ in Frame(type: 1_000, serial: 9, status: .partial) },
        clientStreams("empty pieces of an item") { _ in
            Frame(type: 1_000 | FrameType.continuesFlag, serial: 50, status: .partial)
        },
        clientStreams("empty pieces of an answer", isAwaited: true) { _ in
            Frame(type: 1_000 | FrameType.continuesFlag, serial: 9)
        },
        clientStreams("empty pieces of many answers", isAwaited: true) {
            Frame(type: 1_000 | FrameType.continuesFlag, serial: 9 - UInt32($0 % 9))
        },
        clientStreams("empty pieces that nobody awaits") { _ in
            Frame(type: 1_000 | FrameType.continuesFlag, serial: 9)
        },
        clientStreams("empty credits") { _ in Frame(type: FrameType.credit, serial: 50) },
        clientStreams("credits that change nothing") { _ in StreamFrames.credit(serial: 50, 0) },
        clientStreams("credits of a stream") { StreamFrames.credit(serial: 50, 5_000_000 + UInt64($0)) },
        clientStreams("credits of the connection") {
            StreamFrames.credit(serial: FrameSerial.connectionCredit, 5_000_000 + UInt64($0))
        },
        clientStreams("empty answers") { Frame(type: 1_000, serial: 50 + UInt32($0)) },
        clientStreams("answers in the reverse order") {
            Frame(type: 1_000, serial: 50 + UInt32(count - 1 - $0 % count))
        },
    ]

    private static let carriages: [Case] = [
        carriage("empty messages", Self.frame(0x82)),
        carriage("empty messages from a server", Self.frame(0x82, isMasked: false), role: .client),
        carriage("messages of a byte", Self.frame(0x82, [1])),
        carriage("pings", Self.frame(0x89)),
        carriage("pongs", Self.frame(0x8A)),
        carriage("a ping after each message of a byte", Self.frame(0x82, [1]) + Self.frame(0x89)),
        carriage("compressed empty messages", Self.frame(0xC2, [0]), deflate: DeflateAgreement()),
    ]

    /// Units that a peer does not read.
    private static let unread = Case(testDescription: "sending: empty messages that are not read") { count in
        var language = WebSocketLanguage(uncompressed: .server)
        var out = SendBuffer<WebSocketLanguage>(maximumBytes: .max)
        return {
            for _ in 0..<count {
                _ = out.append(
                    WebSocketUnit(.message(.binary), ByteBuffer()),
                    .default,
                    isOpen: false,
                    in: &language
                )
            }
            while case .unit = out.pull(&language, limit: 1 << 16) {}
            #expect(out.isEmpty)
        }
    }

    private static let inbox = Case(testDescription: "receiving: empty messages that are not read") { count in
        let inbox = WebSocketInbox(account: nil) {}
        return { for _ in 0..<count { _ = inbox.append(WebSocketMessage(ByteBuffer()), isLast: true) } }
    }

    /// The measurement tells work that grows too fast, such as a search that begins anew for each unit.
    @Test func quadraticWorkIsFound() throws {
        let growth = try WorkGrowth(250, runs: 6) { count in
            let bytes = [UInt8](repeating: 0, count: count)
            return { for unit in bytes.indices { #expect(!bytes[...unit].contains(1)) } }
        }
        #expect(!growth.isLinear, "\(growth)")
    }

    @Test(
        arguments: webSocket + frames + described + codec + lines + heads + hello + streams + clientStreams + carriages
            + [noFrames, unread, inbox]
    )
    func fourTimesAsManyTakeFourTimesTheWork(_ units: Case) throws {
        let growth = try WorkGrowth(units.count, units.prepare)
        #expect(growth.isLinear, "\(growth)")
    }
}
