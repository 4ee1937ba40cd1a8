// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The bodies that the bench sends: printable characters, with the call's number in the first and last one. They may
/// be lines.
struct EchoBody: Sendable {
    /// The lengths of bodies: two bytes hold the number, and no server accepts more than the upper bound by default.
    static let lengths = 2...Frame.defaultMaximumPayloadLength

    /// The type that the server echoes.
    let type: UInt32
    /// The body without a number. Copies share its bytes until they are stamped.
    let template: ByteBuffer

    init(length: Int, type: UInt32 = BuiltIn.echo) {
        var filler = Filler(seed: 2_463_534_242)
        self.type = type
        self.template = ByteBuffer(bytes: filler.bytes(length).readableBytesView.map(Self.sign))
    }

    var length: Int { self.template.readableBytes }

    @inline(__always)
    static func first(_ number: UInt32) -> UInt8 { self.sign(UInt8(truncatingIfNeeded: number)) }

    @inline(__always)
    static func last(_ number: UInt32) -> UInt8 { self.sign(UInt8(truncatingIfNeeded: number >> 6)) }

    /// One of the 64 characters of ASCII from `@`, by the last six bits.
    @inline(__always)
    private static func sign(_ byte: UInt8) -> UInt8 { byte & 0x3F | 0x40 }

    /// Writes a call's number into a copy of the template, in place if its bytes are not shared.
    @inline(__always)
    static func stamp(_ number: UInt32, into body: inout ByteBuffer) {
        body.withUnsafeMutableReadableBytes { bytes in
            bytes[0] = self.first(number)
            bytes[bytes.count - 1] = self.last(number)
        }
    }

    /// Whether `answer` echoes call `number`. Only the length and the two bytes are compared.
    @inline(__always)
    func isEchoed(by answer: ByteBuffer, number: UInt32) -> Bool {
        answer.withUnsafeReadableBytes { bytes in
            bytes.count == self.length && bytes[0] == Self.first(number)
                && bytes[bytes.count - 1] == Self.last(number)
        }
    }

    /// Describes the fault of an answer that is not an echo.
    func reason(about answer: ByteBuffer, number: UInt32) -> String {
        guard answer.readableBytes == self.length else {
            return "wrong answer to call \(number): \(answer.readableBytes) bytes, where \(self.length) were sent"
        }
        let bytes = answer.readableBytesView
        return """
            wrong answer to call \(number): it begins with \(bytes.first ?? 0) and ends with \(bytes.last ?? 0), where \
            \(Self.first(number)) and \(Self.last(number)) were sent
            """
    }
}
