// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// WebSocket as a language of links: messages of any length, and the frames that control them.
package struct WebSocketLanguage: LinkLanguage {
    package typealias Unit = WebSocketUnit
    package typealias Incoming = WebSocketInput

    /// The length of the fragments of a long message, between which pings and pongs can be sent.
    private static let fragmentLength = 64 << 10
    /// The memory of a unit that waits, beside its payload, in bytes: more than its header has on the wire. A peer that
    /// has empty messages echoed and does not read would otherwise cost a multiple of what is counted.
    private static let unitCost = 128
    /// The time that each side waits for the other at the end.
    package static let patience = TimeAmount.seconds(ClosingHandshake.patience)

    private let role: WebSocketRole
    private var decoder: WebSocketDecoder
    private var encoder: WebSocketEncoder
    private var hasClosed = false
    private var violation: WebSocketViolation?
    /// The peer's close frame.
    private(set) var received: WebSocketClose?
    /// Our own close frame, where the user has chosen one.
    var ownClose: WebSocketClose?

    /// - Parameters:
    ///   - role: Our side.
    ///   - buffers: Memory for messages.
    ///   - account: The account that is charged for the memory of compression; nil at a client.
    package init(
        role: WebSocketRole,
        limits: WebSocketLimits,
        deflate: DeflateAgreement?,
        compression: WebSocketCompression?,
        buffers: BufferPool,
        account: (any LinkAccount)?
    ) {
        self.role = role
        self.decoder = WebSocketDecoder(
            role: role,
            mode: .messages(limits),
            deflate: deflate,
            buffers: buffers,
            inflatedBudget: WebSocketDecoder.inflatedPerTurn,
            account: account
        )
        self.encoder = WebSocketEncoder(role: role, deflate: deflate, account: account)
        if let compression { self.encoder.minimumCompressedLength = compression.minimumLength }
    }

    package mutating func append(_ bytes: consuming ByteBuffer) { self.decoder.append(bytes) }

    package mutating func dropInput() { self.decoder.dropInput() }

    package mutating func next() throws(LinkError) -> WebSocketInput? {
        do throws(WebSocketViolation) {
            let input = try self.decoder.next()
            if case .close(let close)? = input { self.received = close }
            return input
        } catch {
            self.violation = error
            throw LinkError("\(error)", underlying: error)
        }
    }

    /// Whether ``next()`` has returned nil because enough was inflated for one turn, and not because more bytes are
    /// needed.
    var hasMoreWork: Bool { self.decoder.hasMoreWork }

    /// Continues the work of ``next()`` in another turn.
    mutating func resumeWork() { self.decoder.resumeWork() }

    /// Whether memory is allocated for compression or decompression.
    var holdsContexts: Bool { self.encoder.holdsContext || self.decoder.holdsContext }

    /// Frees that memory as far as it was not used since the last call.
    mutating func releaseContextsUnlessUsed() {
        self.encoder.releaseContextUnlessUsed()
        self.decoder.releaseContextUnlessUsed()
    }

    /// Frees everything, since nothing more is read or sent.
    mutating func dropAll() {
        self.decoder.dropInput()
        self.encoder.dropContext()
    }

    package var unfinishedBytes: Int { self.decoder.bufferedBytes }

    package var heldBytes: Int { self.decoder.heldBytes }

    package mutating func releaseRest() {}

    package static func payload(of unit: WebSocketUnit) -> ByteBuffer { unit.payload }

    package static func detach(_ unit: inout WebSocketUnit) { unit.payload = unit.payload.detached }

    package func cost(of unit: WebSocketUnit) -> Int { unit.payload.readableBytes + Self.unitCost }

    package mutating func begin(
        _ unit: consuming WebSocketUnit,
        into bytes: inout SendBytes
    ) -> Outgoing<WebSocketUnit>? {
        bytes.prepare()
        switch unit.kind {
        case .ping:
            self.encoder.encodePing(unit.payload, into: &bytes.gathered)
        case .pong:
            self.encoder.encodePong(unit.payload, into: &bytes.gathered)
        case .message(let kind):
            let length = unit.payload.readableBytes
            guard length > Self.fragmentLength else {
                if self.encoder.mayCompress(length: length) {
                    self.encoder.encode(kind, unit.payload, into: &bytes.gathered)
                } else {
                    var mask = self.encoder.beginMessage(kind, length: length, into: &bytes.gathered)
                    bytes.append(unit.payload, masking: &mask)
                }
                return nil
            }
            var unit = unit
            if let compressed = self.encoder.compress(unit.payload) {
                unit.payload = compressed
                unit.isCompressed = true
            }
            return Outgoing(unit: unit)
        }
        return nil
    }

    package mutating func nextPiece(
        of outgoing: inout Outgoing<WebSocketUnit>,
        limit: Int,
        into bytes: inout SendBytes
    ) -> Piece {
        guard case .message(let kind) = outgoing.unit.kind else { return .end }
        let payload = outgoing.unit.payload
        let length = min(limit, Self.fragmentLength, payload.readableBytes - outgoing.sent)
        let isFinal = outgoing.sent + length == payload.readableBytes
        if let slice = payload.getSlice(at: payload.readerIndex + outgoing.sent, length: length) {
            bytes.prepare()
            var mask = self.encoder.beginFragment(
                kind,
                isFirst: outgoing.sent == 0,
                isFinal: isFinal,
                isCompressed: outgoing.unit.isCompressed,
                length: length,
                into: &bytes.gathered
            )
            bytes.append(slice, masking: &mask)
        }
        outgoing.sent += length
        return isFinal ? .end : .interruptible
    }

    package mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing {
        if !self.hasClosed {
            self.hasClosed = true
            bytes.prepare()
            self.encoder.encodeClose(self.closeFrame, into: &bytes.gathered)
        }
        // Nothing after a violation can be read. A server ends TCP first.
        if self.violation != nil || (self.received != nil && self.role == .server) { return .shutdown }
        return .awaitPeer(Self.patience)
    }

    private var closeFrame: WebSocketClose {
        if let violation = self.violation { return WebSocketClose(code: violation.code, reason: "\(violation)") }
        if let received = self.received { return WebSocketClose(code: received.code) }
        return self.ownClose ?? WebSocketClose(code: self.role == .server ? 1_001 : 1_000)
    }
}

extension Batch where Language == WebSocketLanguage {
    /// Whether the language has used its budget for this turn: another turn may find more units in the received bytes.
    var hasMoreWork: Bool { self.withLink { $0.hot.language.hasMoreWork } }

    /// Renews the language's budget, in another turn.
    func resumeWork() { self.withLink { $0.hot.language.resumeWork() } }
}
