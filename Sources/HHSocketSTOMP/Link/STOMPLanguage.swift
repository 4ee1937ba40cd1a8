// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink
package import NIOCore

/// STOMP as a language of links: frames between ends of line.
package struct STOMPLanguage: LinkLanguage {
    package typealias Unit = STOMPUnit
    package typealias Incoming = STOMPFrame

    private var decoder: STOMPDecoder
    /// The receipt of our DISCONNECT.
    private let farewell: String
    private let patience: TimeAmount

    /// - Parameters:
    ///   - farewell: The receipt that DISCONNECT asks for.
    ///   - patience: The time that the broker may take to answer it.
    package init(limits: STOMPLimits, farewell: String, patience: TimeAmount) {
        self.decoder = STOMPDecoder(limits: limits)
        self.farewell = farewell
        self.patience = patience
    }

    package mutating func append(_ bytes: consuming ByteBuffer) { self.decoder.append(bytes) }

    package mutating func dropInput() { self.decoder.dropInput() }

    package mutating func next() throws(LinkError) -> STOMPFrame? {
        do throws(STOMPViolation) {
            return try self.decoder.next()
        } catch {
            throw LinkError("\(error)", underlying: error, reason: error.kind.isLimit ? .tooLarge : .protocolViolation)
        }
    }

    package var unfinishedBytes: Int { self.decoder.bufferedBytes }

    package var heldBytes: Int { self.decoder.heldBytes }

    package mutating func releaseRest() {}

    package static func payload(of unit: STOMPUnit) -> ByteBuffer { unit.payload }

    package static func detach(_ unit: inout STOMPUnit) {
        let body = unit.payload.detached
        unit.frame?.body = body
    }

    package func cost(of unit: STOMPUnit) -> Int {
        unit.frame.map { STOMPEncoder.estimatedLength(of: $0) } ?? 1
    }

    package mutating func begin(_ unit: consuming STOMPUnit, into bytes: inout SendBytes) -> Outgoing<STOMPUnit>? {
        bytes.prepare()
        guard let frame = unit.frame else {
            bytes.gathered.writeInteger(STOMPEncoder.endOfLine)
            return nil
        }
        let isLong = frame.body.readableBytes > Frame.unslicedLength
        do throws(STOMPRefusal) {
            let version = self.decoder.version
            guard isLong else {
                try STOMPEncoder.encode(frame, version: version, limits: .unlimited, into: &bytes.gathered)
                return nil
            }
            try STOMPEncoder.encodeHead(of: frame, version: version, limits: .unlimited, into: &bytes.gathered)
            return Outgoing(unit: unit)
        } catch {
            assertionFailure("a frame that cannot be sent was not refused earlier: \(error)")
            return nil
        }
    }

    package mutating func nextPiece(
        of outgoing: inout Outgoing<STOMPUnit>,
        limit: Int,
        into bytes: inout SendBytes
    ) -> Piece {
        // Nothing can be inserted into a frame.
        guard bytes.appendSlice(of: outgoing.unit.payload, after: &outgoing.sent, limit: limit) else { return .more }
        bytes.prepare()
        bytes.gathered.writeInteger(STOMPEncoder.end)
        return .end
    }

    package mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing {
        // No DISCONNECT is sent to a broker that has not accepted us or breaks the rules.
        guard reason == .done, let version = self.decoder.version else { return .shutdown }
        bytes.prepare()
        let frame = STOMPFrame(.disconnect, ["receipt": self.farewell])
        guard (try? STOMPEncoder.encode(frame, version: version, into: &bytes.gathered)) != nil else {
            return .shutdown
        }
        return .awaitPeer(self.patience)
    }
}
