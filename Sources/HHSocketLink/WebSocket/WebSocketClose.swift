// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The payload of a close frame (RFC 6455, section 5.5.1).
package struct WebSocketClose: Hashable, Sendable {
    /// The longest reason, in bytes of UTF-8: a control frame has 125 bytes, two of which are for the code.
    package static let maximumReasonLength = 123

    /// The code; nil if the frame has none.
    package var code: UInt16?
    /// The reason, for people to read; empty if the frame has none.
    package var reason: String

    package init(code: UInt16? = nil, reason: String = "") {
        self.code = code
        self.reason = reason
    }

    /// Whether a close frame may have the code: those that are registered for the wire, and those that libraries and
    /// applications may choose (RFC 6455, section 7.4). 1004, 1005, 1006 and 1015 are never sent.
    package static func isValid(code: UInt16) -> Bool {
        switch code {
        case 1_000...1_003, 1_007...1_014, 3_000...4_999: true
        default: false
        }
    }

    /// Reads the payload of a close frame.
    init(_ payload: ByteBuffer) throws(WebSocketViolation) {
        var payload = payload
        guard payload.readableBytes > 0 else {
            self.init()
            return
        }
        guard let code = payload.readInteger(as: UInt16.self) else { throw .closePayloadOfOneByte }
        guard Self.isValid(code: code) else { throw .closeCode(code) }
        guard payload.isUTF8 else { throw .closeReasonNotUTF8 }
        self.init(code: code, reason: String(buffer: payload))
    }

    /// Writes the payload. The reason is truncated to ``maximumReasonLength`` at a character; without a code it is
    /// omitted.
    func write(to payload: inout ByteBuffer) {
        guard let code = self.code else { return }
        payload.writeInteger(code)
        // From the front: the beginning of a character cannot always be determined from the back, such as in a row of
        // flags, and a reason may be very long.
        var length = 0
        let reason = self.reason.prefix { character in
            length += character.utf8.count
            return length <= Self.maximumReasonLength
        }
        payload.writeSubstring(reason)
    }
}
