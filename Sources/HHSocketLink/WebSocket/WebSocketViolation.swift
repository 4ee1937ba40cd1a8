// SPDX-License-Identifier: Apache-2.0
/// A breach of RFC 6455 by the peer, or of our limits: the connection is closed with ``code``.
package enum WebSocketViolation: Error, Hashable, Sendable {
    case unmaskedFrame
    case maskedFrame
    case reservedBits(UInt8)
    case opcode(UInt8)
    /// A length in a longer form than it needs.
    case lengthForm(UInt64)
    /// A length of 64 bits whose top bit is set.
    case lengthSign
    case fragmentedControlFrame
    case longControlFrame(Int)
    /// A continuation without a message that it continues.
    case strayContinuation
    /// A new message within an unfinished one.
    case interruptedMessage
    case closePayloadOfOneByte
    case closeCode(UInt16)
    case closeReasonNotUTF8
    case textNotUTF8
    /// A compressed message that cannot be inflated, with zlib's reason.
    case notDeflate(String)
    /// A text message where only binary ones have a meaning.
    case unexpectedText
    case messageTooLong(length: UInt64, limit: Int)
    case tooManyFragments(limit: Int)

    /// The code of our close frame (RFC 6455, section 7.4.1).
    package var code: UInt16 {
        switch self {
        case .unexpectedText: 1_003
        case .textNotUTF8, .closeReasonNotUTF8, .notDeflate: 1_007
        case .messageTooLong, .tooManyFragments: 1_009
        default: 1_002
        }
    }
}

extension WebSocketViolation: CustomStringConvertible {
    /// The fault that was seen and the rule, in one line.
    package var description: String {
        switch self {
        case .unmaskedFrame: "a frame of the client's is not masked"
        case .maskedFrame: "a frame of the server's is masked"
        case .reservedBits(let bits): "a frame has the reserved bits \(bits), for which no extension was agreed on"
        case .opcode(let opcode): "a frame has the opcode \(opcode), which is reserved"
        case .lengthForm(let length): "a length of \(length) is written in a longer form than it needs"
        case .lengthSign: "a length of 64 bits has its top bit set"
        case .fragmentedControlFrame: "a control frame is fragmented"
        case .longControlFrame(let length): "a control frame has \(length) bytes; at most 125 are allowed"
        case .strayContinuation: "a continuation belongs to no message"
        case .interruptedMessage: "a message begins within another that is not finished"
        case .closePayloadOfOneByte: "a close frame has one byte; its code has two"
        case .closeCode(let code): "a close frame has the code \(code), which is not sent"
        case .closeReasonNotUTF8: "the reason of a close frame is not UTF-8"
        case .textNotUTF8: "a text message is not UTF-8"
        case .notDeflate(let reason): "a compressed message cannot be inflated: \(reason)"
        case .unexpectedText: "a text message arrived where only binary ones are expected"
        // The setting has this name on both sides.
        case .messageTooLong(let length, let limit):
            "a message has \(length) bytes or more; the limit is \(limit) (maximumMessageLength)"
        case .tooManyFragments(let limit): "a message has more than \(limit) fragments (maximumFragments)"
        }
    }
}
