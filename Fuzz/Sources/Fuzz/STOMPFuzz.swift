// SPDX-License-Identifier: Apache-2.0
import InstrumentedHHSocketSTOMP
import NIOCore

/// Any bytes as frames of STOMP, in pieces and whole; and the frames encoded and decoded again.
enum STOMPFuzz {
    /// The output of a decoder.
    private struct Decoded: Equatable {
        /// The frames, with the versions in which they were read.
        var frames: [STOMPFrame] = []
        var versions: [STOMPVersion?] = []
        var rest = 0
        var violation: STOMPViolation?
    }

    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        let limits = self.limits(&input)
        let version = input.choice([nil, .v1_0, .v1_1, .v1_2] as [STOMPVersion?])
        let pieces = input.pieceSizes()
        let stream = Array(input.rest)
        let whole = self.decode(stream, version, limits, pieces: [])
        let split = self.decode(stream, version, limits, pieces: pieces)
        require(whole == split, "whole \(whole)\nin pieces \(split)")
        let single = self.decode(stream, version, limits, pieces: [1])
        require(whole == single, "whole \(whole)\nbyte by byte \(single)")
        for (frame, version) in zip(whole.frames, whole.versions) {
            self.checkThatItIsReadAsItIsWritten(frame, version)
        }
    }

    private static func limits(_ input: inout Input) -> STOMPLimits {
        var limits = STOMPLimits()
        switch input.byte() % 4 {
        case 0, 3:
            break
        case 1:
            limits.maximumHeaders = Int(input.byte() % 4)
            limits.maximumHeaderLength = Int(input.byte())
            limits.maximumBodyLength = Int(input.byte() % 64)
        default:
            limits.maximumHeaders = .max
            limits.maximumHeaderLength = .max
            limits.maximumBodyLength = .max
        }
        return limits
    }

    private static func decode(
        _ stream: [UInt8],
        _ version: STOMPVersion?,
        _ limits: STOMPLimits,
        pieces sizes: [Int]
    ) -> Decoded {
        var decoder = STOMPDecoder(limits: limits)
        if let version { decoder.agree(on: version) }
        var decoded = Decoded()
        var received = 0
        for piece in Pieces(stream[...], sizes) {
            received += piece.count
            decoder.append(ByteBuffer(bytes: piece))
            do throws(STOMPViolation) {
                while true {
                    let version = decoder.version
                    guard let frame = try decoder.next() else { break }
                    decoded.frames.append(frame)
                    decoded.versions.append(version)
                }
            } catch {
                decoded.violation = error
                self.checkThatItStays(error, decoder)
                return decoded
            }
            require(decoder.bufferedBytes <= received, "\(decoder.bufferedBytes) bytes are kept of \(received)")
        }
        decoded.rest = decoder.bufferedBytes
        return decoded
    }

    private static func checkThatItStays(_ violation: STOMPViolation, _ decoder: STOMPDecoder) {
        var decoder = decoder
        decoder.append(ByteBuffer(string: "RECEIPT\n\n\0"))
        require(decoder.bufferedBytes == 0, "bytes are kept after \(violation)")
        do throws(STOMPViolation) {
            let frame = try decoder.next()
            fatalError("behind \(violation) came \(String(describing: frame))")
        } catch {
            require(error == violation, "\(violation) was followed by \(error)")
        }
        let text = violation.description
        require(!text.isEmpty && !text.contains("\n") && text.utf8.count < 1_000, "\(text) is not a line")
    }

    private static func checkThatItIsReadAsItIsWritten(_ frame: STOMPFrame, _ version: STOMPVersion?) {
        var frame = frame
        frame.omitsContentLength = !frame.headers.contains(name: "content-length")
        var written = ByteBuffer()
        do throws(STOMPRefusal) {
            try STOMPEncoder.encode(frame, version: version, into: &written)
        } catch {
            require(written.readableBytes == 0, "\(error), but bytes were written")
            // Receivers accept frames that senders must not send: with a CR in a value, or a body before the agreement.
            let isUnescapable = error.reason == .unescapableHeader && version != .v1_2
            let isPlain = error.reason == .unescapableHeader && [.connect, .stomp, .connected].contains(frame.command)
            let isEarly = error.reason == .unexpectedBody && version == nil
            require(
                isUnescapable || isPlain || isEarly || error.reason.isLimit,
                "\(frame) was received, and is refused: \(error)"
            )
            return
        }
        let read = self.decode(Array(written.readableBytesView), version, STOMPLimits(), pieces: [])
        frame.omitsContentLength = false
        require(read.frames == [frame] && read.violation == nil && read.rest == 0, "wrote \(frame)\nread \(read)")
        require(!"\(frame)".contains("\n"), "\(frame) is not a line")
    }
}
