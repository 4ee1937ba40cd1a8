// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A line that a link sends.
package struct LineUnit: MessageUnit {
    /// The line without its delimiter.
    package var payload: ByteBuffer
    package var outcome: MessageOutcome?
    /// Whether it is a heartbeat.
    package var isBeat = false

    package init(_ payload: ByteBuffer, _ outcome: MessageOutcome? = nil) {
        self.payload = payload
        self.outcome = outcome
    }

    package var isOfOneConnection: Bool { self.isBeat }
}

/// Lines as a language of links: bytes between delimiters.
package struct LineLanguage: LinkLanguage {
    package typealias Unit = LineUnit
    package typealias Incoming = ByteBuffer

    private let delimiter: LineDelimiter
    private(set) var decoder: LineDecoder

    package init(delimiter: LineDelimiter, maximumLength: Int = LineDecoder.defaultMaximumLength) {
        self.delimiter = delimiter
        self.decoder = LineDecoder(delimiter: delimiter, maximumLength: maximumLength)
    }

    package mutating func append(_ bytes: consuming ByteBuffer) { self.decoder.append(bytes) }

    package mutating func dropInput() { self.decoder.dropInput() }

    package mutating func next() throws(LinkError) -> ByteBuffer? {
        do throws(LineDecoder.TooLong) {
            return try self.decoder.next()
        } catch {
            throw LinkError("\(error)", underlying: error, reason: .tooLarge)
        }
    }

    package var unfinishedBytes: Int { self.decoder.bufferedBytes }

    package var heldBytes: Int { self.decoder.heldBytes }

    package mutating func releaseRest() {}

    package static func payload(of unit: LineUnit) -> ByteBuffer { unit.payload }

    package static func detach(_ unit: inout LineUnit) { unit.payload = unit.payload.detached }

    package func cost(of unit: LineUnit) -> Int { unit.payload.readableBytes + self.delimiter.bytes.count }

    package mutating func begin(_ unit: consuming LineUnit, into bytes: inout SendBytes) -> Outgoing<LineUnit>? {
        guard unit.payload.readableBytes <= Frame.unslicedLength else { return Outgoing(unit: unit) }
        bytes.prepare()
        bytes.gathered.writeImmutableBuffer(unit.payload)
        bytes.gathered.writeBytes(self.delimiter.bytes)
        return nil
    }

    package mutating func nextPiece(
        of outgoing: inout Outgoing<LineUnit>,
        limit: Int,
        into bytes: inout SendBytes
    ) -> Piece {
        // A line cannot be interrupted by another unit.
        guard bytes.appendSlice(of: outgoing.unit.payload, after: &outgoing.sent, limit: limit) else { return .more }
        bytes.prepare()
        bytes.gathered.writeBytes(self.delimiter.bytes)
        return .end
    }

    package mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing { .shutdown }
}
