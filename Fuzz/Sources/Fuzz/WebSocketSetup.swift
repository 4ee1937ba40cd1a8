// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// One side of a WebSocket that receives.
struct WebSocketSetup {
    var role: WebSocketRole
    var mode: WebSocketDecoder.Mode
    var deflate: DeflateAgreement?

    init(_ input: inout Input) {
        let flags = input.byte()
        self.role = flags & 1 == 0 ? .server : .client
        var limits = WebSocketLimits()
        limits.maximumMessageLength = [limits.maximumMessageLength, 65_536, 100, 0][Int(flags >> 2 & 3)]
        limits.maximumFragments = [limits.maximumFragments, 3, 1, 0][Int(flags >> 4 & 3)]
        self.mode = flags & 2 == 0 ? .messages(limits) : .stream
        if flags & 64 != 0 { self.deflate = input.deflateAgreement() }
    }

    /// The role of the sender.
    var peer: WebSocketRole { self.role == .server ? .client : .server }

    /// The parameters of received messages; nil without compression.
    var direction: DeflateDirection? { self.deflate?.direction(from: self.peer) }
}

/// The output of a decoder. The bytes of a stream are joined, because their pieces depend on the reads.
struct WebSocketDecoded: Equatable {
    private(set) var inputs: [WebSocketInput] = []
    var violation: WebSocketViolation?

    init(_ inputs: [WebSocketInput] = [], _ violation: WebSocketViolation? = nil) {
        for input in inputs { self.append(input) }
        self.violation = violation
    }

    mutating func append(_ input: WebSocketInput) {
        if case .bytes(var next) = input, case .bytes(var last)? = self.inputs.last {
            self.inputs.removeLast()
            last.writeBuffer(&next)
            self.inputs.append(.bytes(last))
        } else {
            self.inputs.append(input)
        }
    }
}

extension WebSocketSetup {
    /// The greatest number of bytes kept of an unfinished frame: a header, and a control frame's payload.
    private static let maximumRest = 14 + 125

    /// Feeds the stream in pieces, and checks the decoder after each.
    ///
    /// - Parameter budget: The number of bytes that are inflated at once.
    func decode(_ stream: ArraySlice<UInt8>, pieces sizes: [Int], budget: Int = .max) -> WebSocketDecoded {
        var decoder = WebSocketDecoder(
            role: self.role,
            mode: self.mode,
            deflate: self.deflate,
            inflatedBudget: budget,
            account: nil
        )
        var decoded = WebSocketDecoded()
        var pieces = Pieces(stream, sizes)
        while decoded.violation == nil, let piece = pieces.next() {
            decoder.append(ByteBuffer(bytes: piece))
            self.take(from: &decoder, &decoded)
            self.check(decoder, decoded)
            // As after a pause. At the first call the context counts as used.
            for _ in 0..<2 where !sizes.isEmpty { decoder.releaseContextUnlessUsed() }
        }
        self.checkThatItStays(decoder, decoded, stream)
        return decoded
    }

    private func take(from decoder: inout WebSocketDecoder, _ decoded: inout WebSocketDecoded) {
        do throws(WebSocketViolation) {
            repeat {
                decoder.resumeWork()
                while let input = try decoder.next() {
                    self.check(input)
                    decoded.append(input)
                }
            } while decoder.hasMoreWork
        } catch {
            decoded.violation = error
        }
    }

    private func check(_ input: WebSocketInput) {
        switch (input, self.mode) {
        case (.message(let kind, let payload), .messages(let limits)):
            require(payload.readableBytes <= limits.maximumMessageLength, "a message over the limit")
            require(kind == .binary || Self.isUTF8(payload.readableBytesView), "text that is not UTF-8: \(payload)")
        case (.bytes(let bytes), .stream):
            require(bytes.readableBytes > 0, "no bytes of a stream")
        case (.ping(let payload), _), (.pong(let payload), _):
            require(payload.readableBytes <= 125, "a control frame of \(payload.readableBytes) bytes")
        case (.close(let close), _):
            require(close.code.map(WebSocketClose.isValid) ?? close.reason.isEmpty, "the close frame \(close)")
            require(close.reason.utf8.count <= WebSocketClose.maximumReasonLength, "the close frame \(close)")
        default:
            fatalError("\(input) in mode \(self.mode)")
        }
    }

    static func isUTF8(_ bytes: some Collection<UInt8>) -> Bool {
        String(decoding: bytes, as: UTF8.self).utf8.elementsEqual(bytes)
    }

    /// Checks that only an incomplete frame and an unfinished message are kept.
    private func check(_ decoder: WebSocketDecoder, _ decoded: WebSocketDecoded) {
        let kept = decoder.bufferedBytes
        var message = 0
        if case .messages(let limits) = self.mode { message = limits.maximumMessageLength }
        require(kept <= message + Self.maximumRest, "\(kept) bytes are kept")
        if decoded.violation != nil { require(kept == 0, "\(kept) bytes are kept of a connection that has ended") }
    }

    /// Checks that nothing follows a violation or a close frame.
    private func checkThatItStays(
        _ decoder: WebSocketDecoder,
        _ decoded: WebSocketDecoded,
        _ stream: ArraySlice<UInt8>
    ) {
        var hasClosed = false
        if case .close? = decoded.inputs.last { hasClosed = true }
        guard decoded.violation != nil || hasClosed else { return }
        var decoder = decoder
        for bytes in [stream, [], stream.prefix(1)] as [ArraySlice<UInt8>] {
            decoder.append(ByteBuffer(bytes: bytes))
            var more = WebSocketDecoded()
            self.take(from: &decoder, &more)
            require(more == WebSocketDecoded([], decoded.violation), "\(decoded) was followed by \(more)")
            require(decoder.bufferedBytes == 0, "\(decoder.bufferedBytes) bytes are kept at the end")
        }
        if let violation = decoded.violation {
            let reason = violation.description
            require(!reason.isEmpty && !reason.contains("\n"), "\(reason) is not a line")
            require([1_002, 1_003, 1_007, 1_009].contains(violation.code), "\(violation) is \(violation.code)")
        }
    }

    /// Checks that bytes have one meaning, however they are divided, and returns it.
    @discardableResult
    func decodeInEveryWay(_ stream: ArraySlice<UInt8>, pieces: [Int]) -> WebSocketDecoded {
        let whole = self.decode(stream, pieces: [])
        for (sizes, budget) in [(pieces, Int.max), (stream.count <= 8_192 ? [1] : [255], .max), (pieces, 1_000)] {
            let decoded = self.decode(stream, pieces: sizes, budget: budget)
            guard !self.refersTooFar(whole), !self.refersTooFar(decoded) else { continue }
            require(decoded == whole, "in pieces of \(sizes): \(decoded)\nwhole: \(whole)")
        }
        return whole
    }

    /// Whether a message refers beyond a window. If the window is smaller than the largest, the division into pieces
    /// decides whether that is noticed.
    private func refersTooFar(_ decoded: WebSocketDecoded) -> Bool {
        guard let direction = self.direction, direction.windowBits < 15 else { return false }
        return decoded.violation == .notDeflate("invalid distance too far back")
    }
}

extension Input {
    mutating func deflateAgreement() -> DeflateAgreement {
        let flags = self.byte()
        return DeflateAgreement(
            serverNoContextTakeover: flags & 1 != 0,
            clientNoContextTakeover: flags & 2 != 0,
            serverWindowBits: 15 - Int(flags >> 2 & 7),
            clientWindowBits: 15 - Int(flags >> 5 & 7)
        )
    }
}
