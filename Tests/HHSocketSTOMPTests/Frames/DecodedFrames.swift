// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocketSTOMP

/// The output of a decoder for a stream.
struct DecodedFrames: Equatable, CustomStringConvertible {
    var frames: [STOMPFrame] = []
    var violation: STOMPViolation?
    /// The number of remaining bytes.
    var rest = 0

    var description: String {
        "\(self.frames.map { "\($0) \(String(buffer: $0.body).debugDescription)" }), rest \(self.rest)"
            + (self.violation.map { ", \($0.kind): \($0)" } ?? "")
    }

    /// Decodes pieces of a stream, and checks the decoder after each.
    ///
    /// - Parameter version: The version that the owner agrees on at first; nil for none.
    init(
        _ pieces: some Sequence<ArraySlice<UInt8>>,
        _ version: STOMPVersion? = nil,
        limits: STOMPLimits = STOMPLimits()
    ) {
        var decoder = STOMPDecoder(limits: limits)
        if let version { decoder.agree(on: version) }
        var fed = 0
        for piece in pieces {
            decoder.append(ByteBuffer(bytes: piece))
            fed += piece.count
            do throws(STOMPViolation) {
                while let frame = try decoder.next() { self.frames.append(frame) }
            } catch {
                self.violation = error
                #expect(decoder.bufferedBytes == 0)
                decoder.append(ByteBuffer(string: "RECEIPT\n\n\0"))
                #expect(throws: error) { try decoder.next() }
                #expect(decoder.bufferedBytes == 0)
                return
            }
            #expect(decoder.bufferedBytes <= fed)
        }
        self.rest = decoder.bufferedBytes
    }

    init(_ stream: String, _ version: STOMPVersion? = nil, limits: STOMPLimits = STOMPLimits()) {
        self.init([Array(stream.utf8)[...]], version, limits: limits)
    }
}

extension STOMPFrame {
    /// A frame with this text as body.
    init(_ command: STOMPCommand, _ headers: STOMPHeaders = [:], text: String) {
        self.init(command, headers, body: ByteBuffer(string: text))
    }

    var text: String { String(buffer: self.body) }

    /// The frame's bytes.
    func encoded(_ version: STOMPVersion?, limits: STOMPLimits = STOMPLimits()) throws -> String {
        var bytes = ByteBuffer()
        try STOMPEncoder.encode(self, version: version, limits: limits, into: &bytes)
        return String(buffer: bytes)
    }
}
