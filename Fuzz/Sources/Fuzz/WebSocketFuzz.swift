// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// The codec of WebSocket: bytes as they are, frames that the input describes, and frames of our own encoder.
enum WebSocketFuzz {
    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        let source = input.byte() % 4
        var setup = WebSocketSetup(&input)
        let pieces = input.pieceSizes()
        switch source {
        case 0:
            setup.decodeInEveryWay(input.rest, pieces: pieces)
        case 1:
            var frames = DescribedFrames(setup)
            frames.append(&input)
            setup.decodeInEveryWay(frames.stream[...], pieces: pieces)
        default:
            if case .messages = setup.mode { setup.mode = .messages(WebSocketLimits()) }
            var sent = SentMessages(setup, &input)
            sent.append(&input)
            let decoded = setup.decodeInEveryWay(Array(sent.stream.readableBytesView)[...], pieces: pieces)
            let expected = WebSocketDecoded(sent.inputs)
            require(decoded == expected, "sent \(expected)\nreceived \(decoded)")
        }
    }
}

extension Input {
    /// The bytes of a message: those of the input, repeated ones, or parts of earlier messages.
    mutating func payload(_ earlier: [UInt8]) -> [UInt8] {
        switch self.byte() % 8 {
        case 0, 1, 2:
            return self.bytes(Int(self.byte() % 64))
        case 3:
            return [UInt8](repeating: self.byte(), count: Int(self.byte()) * 16)
        case 4:
            return [UInt8](repeating: self.byte(), count: Int(self.byte()) * 400)
        case 5:
            let text = self.choice(["ü", "{\"ask\": 1}, ", "€", "😀", "a text of some words, "])
            return Array(String(repeating: text, count: Int(self.byte())).utf8)
        case 6:
            return Array(earlier.dropFirst(Int(self.byte())).prefix(Int(self.byte()) * 8)) + self.bytes(2)
        default:
            let code = self.choice([1_000, 1_001, 1_005, 1_016, 3_000, 4_999, 5_000] as [UInt16])
            return [UInt8(code >> 8), UInt8(code & 0xFF)] + self.bytes(Int(self.byte() % 8))
        }
    }
}

/// Frames that follow the standard except where the input violates it.
private struct DescribedFrames {
    private(set) var stream: [UInt8] = []
    private let isMasked: Bool
    private var deflater: WebSocketDeflater?
    private var earlier: [UInt8] = []

    init(_ setup: WebSocketSetup) {
        self.isMasked = setup.role == .server
        let direction = setup.direction ?? DeflateDirection(windowBits: 15, keepsWindow: true)
        self.deflater = WebSocketDeflater(direction, account: nil, minimumLength: 0)
    }

    mutating func append(_ input: inout Input) {
        var count = 0
        while !input.isEmpty, count < 64, self.stream.count < 200_000 {
            count += 1
            let kind = input.byte()
            let usual: [UInt8] = [0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0xC1, 0xC2, 0x41, 0x42]
            let first = kind < 240 ? usual[Int(kind) % usual.count] : input.byte()
            var payload = input.payload(self.earlier)
            self.earlier = payload
            let style = input.byte()
            if first & 0x40 != 0, style & 0x80 == 0 { payload = self.compress(payload, style) }
            if first & 0x0F >= 8, style & 0x40 == 0 { payload = Array(payload.prefix(125)) }
            self.write(first, payload, style & 0x0F, &input)
        }
    }

    /// Compresses a message, or its first fragment.
    private mutating func compress(_ payload: [UInt8], _ style: UInt8) -> [UInt8] {
        guard var bytes = self.deflater?.compress(ByteBuffer(bytes: payload)) else { return payload }
        return bytes.readBytes(length: max(0, bytes.readableBytes - Int(style >> 4 & 3))) ?? []
    }

    private mutating func write(_ first: UInt8, _ payload: [UInt8], _ style: UInt8, _ input: inout Input) {
        let isMasked = style == 1 ? !self.isMasked : self.isMasked
        let bit: UInt8 = isMasked ? 0x80 : 0
        // With a wrong length, the rest of the payload becomes another frame.
        let length = style == 2 ? Int(input.word()) : payload.count
        self.stream.append(first)
        if style == 3 || length > 0xFFFF {
            self.stream.append(bit | 127)
            self.stream += (0..<8).reversed().map { UInt8(truncatingIfNeeded: length >> ($0 * 8)) }
        } else if style == 4 || length > 125 {
            self.stream += [bit | 126, UInt8(length >> 8), UInt8(length & 0xFF)]
        } else {
            self.stream.append(bit | UInt8(length))
        }
        let key = isMasked ? input.bytes(4) : [0, 0, 0, 0]
        if isMasked { self.stream += key }
        self.stream += payload.enumerated().map { $1 ^ key[$0 & 3] }
    }
}

/// The output of our encoder for messages that the input describes, and the messages to be received.
private struct SentMessages {
    private(set) var stream = ByteBuffer()
    private(set) var inputs: [WebSocketInput] = []
    private let isStream: Bool
    private var encoder: WebSocketEncoder
    private var earlier: [UInt8] = []

    init(_ setup: WebSocketSetup, _ input: inout Input) {
        self.isStream = setup.mode == .stream
        self.encoder = WebSocketEncoder(role: setup.peer, secret: input.bytes(2), deflate: setup.deflate)
        self.encoder.minimumCompressedLength = input.choice([0, 1, 32, 256])
    }

    mutating func append(_ input: inout Input) {
        while !input.isEmpty, self.inputs.count < 48, self.stream.readableBytes < 200_000 {
            switch input.byte() % 16 {
            case 0:
                self.ping(&input)
            case 1:
                self.encoder.releaseContextUnlessUsed()
            case 2:
                let payload = ByteBuffer(bytes: input.payload(self.earlier))
                self.encoder.encodePong(payload, into: &self.stream)
                self.inputs.append(.pong(Self.cut(payload)))
            case 3:
                return self.close(&input)
            case 4...7:
                self.fragments(&input)
            case 8 where self.isStream:
                let payload = self.payload(&input)
                self.encoder.encodeStream(payload, into: &self.stream)
                self.received(.binary, payload)
            default:
                let payload = self.payload(&input)
                let kind = self.kind(payload)
                let before = self.stream.readableBytes
                self.encoder.encode(kind, payload, into: &self.stream)
                let length = self.stream.readableBytes - before
                require(
                    length <= payload.readableBytes + 14 || self.encoder.minimumCompressedLength == 0,
                    "\(length) bytes for a message of \(payload.readableBytes)"
                )
                self.received(kind, payload)
            }
        }
    }

    private mutating func payload(_ input: inout Input) -> ByteBuffer {
        self.earlier = input.payload(self.earlier)
        return ByteBuffer(bytes: self.earlier)
    }

    private func kind(_ payload: ByteBuffer) -> WebSocketMessageKind {
        !self.isStream && WebSocketSetup.isUTF8(payload.readableBytesView) ? .text : .binary
    }

    private mutating func received(_ kind: WebSocketMessageKind, _ payload: ByteBuffer) {
        if !self.isStream {
            self.inputs.append(.message(kind, payload))
        } else if payload.readableBytes > 0 {
            self.inputs.append(.bytes(payload))
        }
    }

    private static func cut(_ payload: ByteBuffer) -> ByteBuffer {
        ByteBuffer(bytes: payload.readableBytesView.prefix(125))
    }

    private mutating func ping(_ input: inout Input) {
        let payload = ByteBuffer(bytes: input.payload(self.earlier))
        self.encoder.encodePing(payload, into: &self.stream)
        self.inputs.append(.ping(Self.cut(payload)))
    }

    /// A message in fragments, with pings between them.
    private mutating func fragments(_ input: inout Input) {
        let payload = self.payload(&input)
        let kind = self.kind(payload)
        let compressed = self.encoder.compress(payload)
        var rest = compressed ?? payload
        var isFirst = true
        repeat {
            let length = min(Int(input.byte()) * (input.bool() ? 1 : 64), rest.readableBytes)
            let isFinal = length == rest.readableBytes || input.isEmpty
            guard let piece = rest.readSlice(length: isFinal ? rest.readableBytes : length) else { return }
            // In a stream, bytes sent before the ping arrive before it.
            if !isFirst, self.isStream == false, input.byte() % 4 == 0 { self.ping(&input) }
            self.encoder.encodeFragment(
                kind,
                isFirst: isFirst,
                isFinal: isFinal,
                isCompressed: compressed != nil,
                piece,
                into: &self.stream
            )
            isFirst = false
            if isFinal { break }
        } while true
        self.received(kind, payload)
    }

    private mutating func close(_ input: inout Input) {
        let code = input.choice([nil, 1_000, 1_001, 1_007, 1_014, 3_000, 4_999] as [UInt16?])
        let reason = String(decoding: input.payload(self.earlier), as: UTF8.self)
        self.encoder.encodeClose(WebSocketClose(code: code, reason: reason), into: &self.stream)
        var sent = ""
        for character in reason {
            guard sent.utf8.count + character.utf8.count <= WebSocketClose.maximumReasonLength else { break }
            sent.append(character)
        }
        self.inputs.append(.close(WebSocketClose(code: code, reason: code == nil ? "" : sent)))
    }
}
