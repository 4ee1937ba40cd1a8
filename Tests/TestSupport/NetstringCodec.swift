// SPDX-License-Identifier: Apache-2.0
package import HHSocket
package import NIOCore

/// Frames as netstrings, `16:101 50 200 hello,…`: numbers in ASCII between spaces, after a length of the whole, which
/// no layout has. Only responses have a status.
package struct NetstringCodec: FrameCodec {
    package struct Illegal: Error, CustomStringConvertible {
        package var description: String

        package init(description: String) {
            self.description = description
        }
    }

    /// A format with all features.
    package static func format(_ codec: some FrameCodec = NetstringCodec()) throws(WireFormatError) -> WireFormat {
        try WireFormat(
            codec: codec,
            rules: WireFormat.Rules(
                name: "netstring",
                hasStatus: true,
                heartbeat: .init(type: 0, pingedBy: .both),
                push: .init(serial: 1),
                cancel: .init(type: 2)
            )
        )
    }

    package init() {}

    package mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        var rest = bytes
        let digits = bytes.readableBytesView.prefix { $0 >= 0x30 && $0 <= 0x39 }
        guard digits.count < 10, let length = digits.isEmpty ? 0 : Int(String(decoding: digits, as: UTF8.self)),
            length <= maximumPayloadLength + 33
        else { throw Illegal(description: "the length has \(digits.count) digits, or is too large") }
        rest.moveReaderIndex(forwardBy: digits.count)
        guard let colon = rest.readInteger(as: UInt8.self) else { return nil }
        guard colon == UInt8(ascii: ":"), !digits.isEmpty else {
            throw Illegal(description: "\(colon) is where a digit or a colon belongs")
        }
        guard var content = rest.readSlice(length: length), let end = rest.readInteger(as: UInt8.self) else {
            return nil
        }
        guard end == UInt8(ascii: ",") else { throw Illegal(description: "\(end) is where a comma belongs") }
        let (type, serial) = (try content.readNumber(), try content.readNumber())
        let status = direction == .response ? try content.readNumber() : Status.ok.rawValue
        bytes = rest
        return Frame(type: type, serial: serial, status: Status(rawValue: status), payload: content)
    }

    package func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        var numbers = "\(frame.type) \(frame.serial) "
        if direction == .response { numbers += "\(frame.status) " }
        bytes.writeString("\(numbers.utf8.count + frame.payload.readableBytes):\(numbers)")
        bytes.writeImmutableBuffer(frame.payload)
        bytes.writeString(",")
    }
}

extension ByteBuffer {
    /// Reads a number and the space after it.
    fileprivate mutating func readNumber() throws -> UInt32 {
        let digits = self.readableBytesView.prefix { $0 != 0x20 }
        guard let number = UInt32(String(decoding: digits.prefix(20), as: UTF8.self)), digits.count < 20 else {
            throw NetstringCodec.Illegal(description: "a number of 32 bits is missing")
        }
        let hasEnd = self.readableBytes > digits.count
        guard hasEnd else { throw NetstringCodec.Illegal(description: "a space is missing") }
        self.moveReaderIndex(forwardBy: digits.count + 1)
        return number
    }
}
