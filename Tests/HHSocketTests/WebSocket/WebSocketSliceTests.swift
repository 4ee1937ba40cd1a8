// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// A few bytes may inflate to many, which is done in slices that do not affect the result.
@Suite struct WebSocketSliceTests {
    private typealias Decoded = (inputs: [WebSocketInput], violation: WebSocketViolation?)

    /// Encodes a peer's messages.
    private static func stream(_ messages: [WebSocketInput], from role: WebSocketRole) -> [UInt8] {
        var encoder = WebSocketEncoder(role: role, deflate: DeflateAgreement(), account: nil)
        var bytes = ByteBuffer()
        for message in messages {
            switch message {
            case .message(let kind, let payload): encoder.encode(kind, payload, into: &bytes)
            case .ping(let payload): encoder.encodePing(payload, into: &bytes)
            default: Issue.record("no message of a test")
            }
        }
        return Array(bytes.readableBytesView)
    }

    private static let messages: [WebSocketInput] = {
        var random = SeededGenerator(seed: 7)
        return [
            .message(.binary, ByteBuffer(repeating: 0, count: 300_000)),
            .message(.text, ByteBuffer(string: String(repeating: "ü€😀", count: 20_000))),
            .ping(ByteBuffer(string: "ping")),
            .message(.binary, ByteBuffer(bytes: random.bytes(70_000))),
            .message(.binary, ByteBuffer()),
            .message(.text, ByteBuffer(string: "short")),
            .message(.binary, ByteBuffer(repeating: 1, count: 100_000)),
        ]
    }()

    /// Decodes a stream that arrives in these reads, with a budget. The budget is renewed when it has been spent, as
    /// late as after all reads.
    private static func decode(
        _ reads: [ArraySlice<UInt8>],
        role: WebSocketRole = .server,
        mode: WebSocketDecoder.Mode = .messages(WebSocketLimits()),
        budget: Int,
        isLate: Bool = false
    ) -> Decoded {
        var decoder = WebSocketDecoder(
            role: role,
            mode: mode,
            deflate: DeflateAgreement(),
            inflatedBudget: budget,
            account: nil
        )
        var inputs: [WebSocketInput] = []
        do throws(WebSocketViolation) {
            for (index, read) in reads.enumerated() {
                decoder.append(ByteBuffer(bytes: read))
                while true {
                    let before = decoder.bufferedBytes
                    while let input = try decoder.next() { inputs.append(input) }
                    guard decoder.hasMoreWork else { break }
                    #expect(decoder.bufferedBytes <= before + budget + 16_384)
                    #expect(try decoder.next() == nil)
                    if isLate, index < reads.count - 1 { break }
                    decoder.resumeWork()
                }
            }
        } catch {
            #expect(!decoder.hasMoreWork)
            return (WebSocketDecoderTests.joined(inputs), error)
        }
        return (WebSocketDecoderTests.joined(inputs), nil)
    }

    private static func pieces(_ stream: [UInt8], _ size: Int) -> [ArraySlice<UInt8>] {
        stride(from: 0, to: stream.count, by: size).map { stream[$0..<min($0 + size, stream.count)] }
    }

    @Test(arguments: [1_000, 4_096, 65_535, 65_536, 65_537, 262_144, 1 << 20, .max], [false, true])
    func messagesAreTheSameInSlices(budget: Int, isLate: Bool) {
        let stream = Self.stream(Self.messages, from: .client)
        for size in [stream.count, 50_000, 1_000, 97] {
            let decoded = Self.decode(Self.pieces(stream, size), budget: budget, isLate: isLate)
            #expect(decoded.inputs == Self.messages, "pieces of \(size)")
            #expect(decoded.violation == nil)
        }
    }

    @Test(arguments: [1, 2, 3, 7, 100]) func slicesMayBeTiny(budget: Int) {
        let messages: [WebSocketInput] = [
            .message(.text, ByteBuffer(string: String(repeating: "ü€😀", count: 20))), .ping(ByteBuffer()),
            .message(.binary, ByteBuffer(repeating: 3, count: 200)), .message(.binary, ByteBuffer()),
        ]
        let stream = Self.stream(messages, from: .client)
        for cut in 0...stream.count {
            for isLate in [false, true] {
                let decoded = Self.decode([stream[..<cut], stream[cut...]], budget: budget, isLate: isLate)
                #expect(decoded.inputs == messages && decoded.violation == nil, "cut at \(cut)")
            }
        }
    }

    @Test(arguments: [1_000, 65_536, 262_144]) func streamIsTheSameInSlices(budget: Int) {
        let payloads = [300_000, 10, 70_000, 0, 100_000].map { ByteBuffer(repeating: UInt8($0 & 0xFF), count: $0) }
        let stream = Self.stream(payloads.map { .message(.binary, $0) }, from: .client)
        var all = ByteBuffer()
        for payload in payloads { all.writeImmutableBuffer(payload) }
        for size in [stream.count, 100, 1] {
            let decoded = Self.decode(Self.pieces(stream, size), mode: .stream, budget: budget)
            #expect(decoded.inputs == [.bytes(all)], "pieces of \(size)")
        }
    }

    @Test(arguments: [1_000, 65_536, 262_144]) func violationsAreTheSameInSlices(budget: Int) {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = 200_000
        let bomb = Self.stream([.message(.binary, ByteBuffer(repeating: 0, count: 300_000))], from: .client)
        let tooLong = Self.decode([bomb[...]], mode: .messages(limits), budget: budget)
        #expect(tooLong.violation == .messageTooLong(length: 200_001, limit: 200_000))
        var text = ByteBuffer(repeating: UInt8(ascii: "a"), count: 150_000)
        text.writeInteger(0xFF as UInt8)
        text.writeRepeatingByte(UInt8(ascii: "a"), count: 1_000)
        let broken = Self.decode([Self.stream([.message(.text, text)], from: .client)[...]], budget: budget)
        #expect(broken.violation == .textNotUTF8)
        #expect(broken.inputs.isEmpty)
    }

    @Test func noMoreThanTheBudgetIsInflatedBeforeItIsRenewed() throws {
        let (budget, length) = (WebSocketDecoder.inflatedPerTurn, 16 << 20)
        let stream = Self.stream([.message(.binary, ByteBuffer(repeating: 0, count: length))], from: .client)
        #expect(stream.count < 32_768)
        var decoder = WebSocketDecoder(
            role: .server,
            mode: .messages(WebSocketLimits()),
            deflate: DeflateAgreement(),
            inflatedBudget: budget,
            account: nil
        )
        decoder.append(ByteBuffer(bytes: stream))
        var slices = 0
        while try decoder.next() == nil {
            slices += 1
            #expect(decoder.hasMoreWork)
            #expect(decoder.bufferedBytes <= slices * budget + stream.count)
            decoder.resumeWork()
            if slices > 1_000 { break }
        }
        #expect((length / budget - 1...length / budget + 1).contains(slices))
    }

    // MARK: Carriage

    /// The link above a carriage.
    private final class Receiver: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        var bytes = ByteBuffer()
        var isInputClosed = false

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            var read = self.unwrapInboundIn(data)
            self.bytes.writeBuffer(&read)
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case .inputClosed? = event as? ChannelEvent { self.isInputClosed = true }
        }
    }

    /// The network below it, which counts requested reads.
    private final class Network: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var reads = 0

        func read(context: ChannelHandlerContext) { self.reads += 1 }
    }

    @Test func carriageHandsOnASliceAtATimeAndReadsWhenAllIsThere() throws {
        let (receiver, network) = (Receiver(), Network())
        let loop = EmbeddedEventLoop()
        let carriage = WebSocketCarriage(role: .server, deflate: DeflateAgreement(), account: nil)
        let channel = EmbeddedChannel(handlers: [network, carriage, receiver], loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        let payload = ByteBuffer(repeating: 5, count: 3 << 20)
        let stream = Self.stream([.message(.binary, payload)], from: .client)
        let begun = network.reads
        channel.pipeline.fireChannelRead(ByteBuffer(bytes: stream))
        channel.pipeline.fireChannelReadComplete()
        let slice = WebSocketDecoder.inflatedPerTurn
        #expect(receiver.bytes.readableBytes == slice)
        // The link requests another read, but the client sends nothing more.
        channel.pipeline.read()
        channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(network.reads == begun)
        #expect(!receiver.isInputClosed)
        var slices = 1
        while receiver.bytes.readableBytes < payload.readableBytes, slices < 100 {
            let before = receiver.bytes.readableBytes
            #expect(!receiver.isInputClosed)
            loop.advanceTime(by: .microseconds(50))
            #expect(receiver.bytes.readableBytes - before <= slice)
            slices += 1
        }
        loop.advanceTime(by: .milliseconds(1))
        #expect(slices == payload.readableBytes / slice)
        #expect(receiver.bytes == payload)
        #expect(receiver.isInputClosed)
        #expect(network.reads == begun + 1)
        _ = try? channel.finish()
    }

    /// They stay for as long as the link does not read, and its client does not read its answers.
    @Test func bytesThatAreNotInflatedYetAreReported() throws {
        let receiver = Receiver()
        let loop = EmbeddedEventLoop()
        let account = CountingAccount()
        let carriage = WebSocketCarriage(role: .server, deflate: DeflateAgreement(), account: account)
        let channel = EmbeddedChannel(handlers: [carriage, receiver], loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        var generator = SeededGenerator(seed: 12)
        // About half as long when it is compressed.
        let payload = ByteBuffer(bytes: (0..<1 << 20).map { _ in UInt8.random(in: 0..<16, using: &generator) })
        let read = ByteBuffer(bytes: Self.stream([.message(.binary, payload)], from: .client))
        #expect(read.readableBytes > 400_000 && read.readableBytes < payload.readableBytes)
        channel.isWritable = false
        channel.pipeline.fireChannelRead(read)
        channel.pipeline.fireChannelReadComplete()
        #expect(receiver.bytes.readableBytes == WebSocketDecoder.inflatedPerTurn)
        #expect(account.bytes >= read.readableBytes)
        let waiting = account.bytes
        channel.isWritable = true
        for _ in 0..<10 { loop.advanceTime(by: .microseconds(50)) }
        #expect(receiver.bytes == payload)
        #expect(account.bytes <= waiting - read.readableBytes)
        _ = try? channel.finish()
        #expect(account.bytes == 0)
    }

    @Test func clientGetsAllThatCameBeforeTheEnd() throws {
        let receiver = Receiver()
        let loop = EmbeddedEventLoop()
        let carriage = WebSocketCarriage(role: .client, deflate: DeflateAgreement(), account: nil)
        let channel = EmbeddedChannel(handlers: [carriage, receiver], loop: loop)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        let payload = ByteBuffer(repeating: 5, count: 3 << 20)
        let stream = Self.stream([.message(.binary, payload)], from: .server)
        channel.pipeline.fireChannelRead(ByteBuffer(bytes: stream))
        channel.pipeline.fireChannelReadComplete()
        #expect(receiver.bytes.readableBytes < payload.readableBytes)
        _ = try? channel.finish()
        #expect(receiver.bytes == payload)
    }
}
