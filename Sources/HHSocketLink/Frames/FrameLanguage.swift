// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Frames, as the language of a link.
package struct FrameLanguage: LinkLanguage {
    package typealias Unit = Frame
    package typealias Incoming = FrameDecoder.Output

    var decoder: FrameDecoder
    package let encoder: FrameEncoder
    /// The largest payload that is copied together with its header; larger ones are sent in slices, without a copy.
    let largestCopied: Int

    package init(decoder: FrameDecoder, encoder: FrameEncoder, largestCopied: Int = Frame.unslicedLength) {
        self.decoder = decoder
        self.encoder = encoder
        self.largestCopied = largestCopied
    }

    package mutating func append(_ bytes: consuming ByteBuffer) {
        self.decoder.append(bytes)
    }

    package mutating func next() throws(LinkError) -> FrameDecoder.Output? {
        do throws(FrameError) {
            return try self.decoder.next()
        } catch {
            throw LinkError(error)
        }
    }

    package var unfinishedBytes: Int { self.decoder.bufferedBytes }

    package var heldBytes: Int {
        @inline(__always) mutating get { self.decoder.heldBytes }
    }

    package mutating func releaseRest() { self.decoder.releaseRest() }

    package mutating func dropInput() { self.decoder.dropInput() }

    package static func payload(of frame: Frame) -> ByteBuffer { frame.payload }

    package static func detach(_ frame: inout Frame) { frame.payload = frame.payload.detached }

    package func cost(of frame: Frame) -> Int { self.encoder.encodedLength(of: frame) }

    package mutating func begin(_ frame: consuming Frame, into bytes: inout SendBytes) -> Outgoing<Frame>? {
        bytes.prepare()
        guard frame.payload.readableBytes > self.largestCopied else {
            self.encoder.encode(frame, into: &bytes.gathered)
            return nil
        }
        if self.encoder.usesCodec {
            // Header and payload are contiguous, so a large frame is sent as one piece.
            guard frame.payload.readableBytes <= Frame.unslicedLength else { return Outgoing(unit: frame) }
            self.encoder.encode(frame, into: &bytes.gathered)
            return nil
        }
        self.encoder.encodeHeader(of: frame, into: &bytes.gathered)
        guard frame.payload.readableBytes <= Frame.unslicedLength else { return Outgoing(unit: frame) }
        let (type, encoder) = (frame.type, self.encoder)
        bytes.append(frame.takePayload()) { encoder.encodeTrailer(type: type, $0, into: &$1) }
        return nil
    }

    package mutating func nextPiece(
        of outgoing: inout Outgoing<Frame>,
        limit: Int,
        into bytes: inout SendBytes
    ) -> Piece {
        let payload = outgoing.unit.payload
        if self.encoder.usesCodec {
            var whole = ByteBuffer()
            self.encoder.encode(outgoing.unit, into: &whole)
            bytes.append(whole)
            outgoing.sent = payload.readableBytes
            return .end
        }
        guard bytes.appendSlice(of: payload, after: &outgoing.sent, limit: limit) else { return .more }
        bytes.prepare()
        self.encoder.encodeTrailer(of: outgoing.unit, into: &bytes.gathered)
        return .end
    }

    package mutating func close(_ reason: CloseReason, into bytes: inout SendBytes) -> Closing { .shutdown }
}

// The fast paths, which cost what frames cost without a language in between: a header is read in place, a payload is
// encoded into the send buffer.
extension Batch where Language == FrameLanguage {
    /// Whether the receiver may continue, without checking the language.
    @inline(__always)
    package var continues: Bool { self.withLink { $0.hot.continues } }

    /// Whether there may be a valid header: there are bytes, and they begin with a frame, not with the rest of one.
    package var mayHaveSoundHeader: Bool { self.withLink { $0.hot.language.decoder.mayHaveSoundHeader } }

    /// The header of the next frame if the receiver may continue and the frame is complete and valid, of the standard
    /// format, and not a control frame; ``takePayload(of:)`` returns its payload. Nil is inconclusive: fall back to
    /// ``next(into:)`` if the receiver may continue.
    package mutating func soundApplicationHeader() -> FrameHeader? {
        guard self.withLink({ $0.hot.continues && $0.hot.language.decoder.hasInput }) else { return nil }
        let bytes = self.bytesOfNextFrame
        return self.withLink {
            $0.hot.language.decoder.soundHeader(in: bytes) { $0.type > FrameType.control.upperBound }
        }
    }

    /// The header of the next frame as from ``soundApplicationHeader()``, if the frame has this type and one of these
    /// serials, and if its answer is sent with this turn's flush, as ``Link/canSendOnFastPath(length:)`` determines,
    /// apart from the answer's length and the format.
    package mutating func soundHeader(ofType type: UInt32, in serials: ClosedRange<UInt32>) -> FrameHeader? {
        guard self.withLink({ $0.hot.continues && $0.hot.canSend && $0.hot.language.decoder.hasInput }) else {
            return nil
        }
        let bytes = self.bytesOfNextFrame
        return self.withLink {
            $0.hot.language.decoder.soundHeader(in: bytes) { $0.type == type && serials.contains($0.serial) }
        }
    }

    /// The received bytes, from the next frame on. There must be some.
    private var bytesOfNextFrame: UnsafeRawBufferPointer {
        @inline(__always)
        mutating get {
            let (start, end, number) = self.withLink {
                let (start, end) = $0.hot.language.decoder.inputRange
                return (start, end, $0.hot.language.decoder.appendCount)
            }
            if let input = self.input, input.number == number, end <= input.end {
                return UnsafeRawBufferPointer(start: input.base + start, count: end - start)
            }
            guard let input = self.withLink({ LocatedInput($0.hot.language.decoder.input, number: number) }) else {
                return UnsafeRawBufferPointer(start: nil, count: 0)
            }
            self.input = input
            return UnsafeRawBufferPointer(start: input.base + start, count: end - start)
        }
    }

    package mutating func takePayload(of header: FrameHeader) -> LentBytes {
        self.count += 1
        return LentBytes(self.withLink { $0.hot.language.decoder.takePayload(of: header) })
    }

    /// Whether there is no further frame, and no part of one. False is inconclusive: fall back to ``next(into:)``.
    package mutating func isFinished() -> Bool {
        self.withLink { $0.hot.language.decoder.isFinished() }
    }

    /// The next frame, put where the caller has room for it.
    package mutating func next(into frame: inout ArrivedFrame) throws(FrameError) -> FrameDecoder.Found {
        let found = try self.withLink { link in
            Result { () throws(FrameError) in try link.hot.language.decoder.next(into: &frame) }
        }.get()
        if case .nothing = found { return found }
        self.count += 1
        return found
    }
}

extension Batch where Language == FrameLanguage {
    /// Reads a frame like ``next(into:)``, for a receiver whose link ends on invalid bytes.
    package mutating func nextFrame(into frame: inout ArrivedFrame) throws(LinkError) -> FrameDecoder.Found {
        do throws(FrameError) {
            return try self.next(into: &frame)
        } catch {
            throw LinkError(error)
        }
    }
}

extension Link where Language == FrameLanguage {
    /// Sets the flags that the types of frames may have from now on, for checking their plausibility.
    package func expectFlags(_ flags: UInt32) {
        self.hot.language.decoder.agreedFlags = flags
    }

    /// Sets the largest payload of the frames whose headers have not been read yet, in bytes.
    package func accept(payloadsUpTo length: Int) {
        self.hot.language.decoder.accept(payloadsUpTo: length)
    }

    /// The incomplete frame at the end of the bytes received so far.
    package func arriving() -> FrameDecoder.Arriving? { self.hot.language.decoder.arriving() }

    /// The bytes that have arrived on this link, for the error of a call that times out. Nil once a frame has arrived.
    package var silence: String? {
        guard self.hot.traffic.framesReceived == 0 else { return nil }
        let count = self.hot.traffic.bytesReceived
        guard count > 0 else { return "no byte has arrived on this connection" }
        let reading = self.hot.language.decoder.unfinishedReading.map { "; \($0)" } ?? ""
        return "the \(count) bytes that have arrived on this connection form no frame\(reading)"
    }

    /// Abandons the incomplete frame at the end of the received bytes, in a format with separators, and offers the
    /// receiver the bytes that its length withholds.
    ///
    /// - Parameter isWanted: Whether it is that frame.
    /// - Returns: Whether a frame was abandoned.
    @discardableResult
    package func giveUp(in turn: inout Turn, where isWanted: (FrameDecoder.Arriving) -> Bool) -> Bool {
        guard self.hot.phase != .ended, self.hot.language.decoder.giveUp(where: isWanted) else { return false }
        self.offerWhatIsHere(in: &turn)
        return true
    }

    /// Whether a frame of the standard format with a payload of `length` bytes is sent with this turn's flush.
    package func canSendOnFastPath(length: Int) -> Bool {
        self.hot.canSend && length <= self.hot.language.largestCopied && self.hot.language.encoder.isStandard
    }

    /// Sends a frame of the standard format, without making one, which ``canSendOnFastPath(length:)`` allows.
    package func sendOnFastPath(
        type: UInt32,
        serial: UInt32,
        status: Status,
        _ payload: UnsafeRawBufferPointer,
        in turn: inout Turn
    ) {
        self.hot.out.bytes.prepare()
        FrameEncoder.encode(
            type: type,
            serial: serial,
            status: status,
            payload,
            self.hot.language.encoder.direction,
            into: &self.hot.out.bytes.gathered
        )
        self.unitWasTaken(in: &turn)
    }

    /// Sends a request of the standard format, without making a frame, which ``canSendOnFastPath(length:)`` allows.
    package func sendOnFastPath(_ type: UInt32, serial: UInt32, _ payload: ByteBuffer, in turn: inout Turn) {
        payload.withUnsafeReadableBytes {
            self.sendOnFastPath(type: type, serial: serial, status: .ok, $0, in: &turn)
        }
    }
}

extension LinkError {
    /// Converts the error of bytes that are no valid frames.
    package init(_ error: FrameError) {
        self.init(
            "\(error)",
            underlying: error,
            reason: error.code == .payloadTooLarge ? .tooLarge : .protocolViolation
        )
    }
}
