// SPDX-License-Identifier: Apache-2.0
/// The reason why a frame cannot be sent. Nothing of it was sent.
package struct STOMPRefusal: Error, Hashable, Sendable {
    /// The rule that the frame would break.
    package struct Reason: Hashable, Sendable, CustomStringConvertible {
        /// The command has other characters than upper-case letters, digits, `-` and `_`.
        package static let invalidCommand = Reason("invalidCommand")
        /// A header has no name.
        package static let emptyHeaderName = Reason("emptyHeaderName")
        /// A header has a character that the version cannot express: the end of a line, a CR, or a colon in the name.
        package static let unescapableHeader = Reason("unescapableHeader")
        /// A header has a zero byte, which no version can express.
        package static let nulInHeader = Reason("nulInHeader")
        /// The frame has a `content-length` that is not the length of its body.
        package static let wrongContentLength = Reason("wrongContentLength")
        /// The frame has a body, and its command allows none.
        package static let unexpectedBody = Reason("unexpectedBody")
        /// The body has a zero byte, and ``STOMPFrame/omitsContentLength`` is set.
        package static let nulInBody = Reason("nulInBody")
        /// More headers than ``STOMPLimits/maximumHeaders``.
        package static let tooManyHeaders = Reason("tooManyHeaders")
        /// Headers that are longer than ``STOMPLimits/maximumHeaderLength``.
        package static let headersTooLong = Reason("headersTooLong")
        /// A body that is longer than ``STOMPLimits/maximumBodyLength``.
        package static let bodyTooLong = Reason("bodyTooLong")

        /// The name of the reason.
        package let description: String

        private init(_ name: String) {
            self.description = name
        }

        /// Whether it is a limit that would be exceeded, not a rule of STOMP that would be broken.
        package var isLimit: Bool { self == .tooManyHeaders || self == .headersTooLong || self == .bodyTooLong }
    }

    /// The rule that the frame would break.
    package let reason: Reason
    /// The name of the header that would break it; nil if it is none of the headers.
    package let header: String?
    /// The part of the frame that is refused, and the rule, in one line. It has no header's value and no byte of the
    /// body.
    package let description: String

    init(_ reason: Reason, header: String? = nil, _ description: String) {
        self.reason = reason
        self.header = header
        self.description = description
    }
}

extension STOMPRefusal: CustomStringConvertible {}

extension STOMPRefusal {
    static func command(_ command: STOMPCommand) -> STOMPRefusal {
        STOMPRefusal(
            .invalidCommand,
            "\"\(command)\" is not a command, which has upper-case letters, digits, - and _, and begins with a letter"
        )
    }

    static var noName: STOMPRefusal {
        STOMPRefusal(.emptyHeaderName, header: "", "a header has no name")
    }

    /// - Parameters:
    ///   - byte: The byte that cannot be expressed.
    ///   - escapes: The escapes of the version; nil if it has none.
    static func header(
        _ name: some Collection<UInt8>,
        byte: UInt8,
        isInName: Bool,
        command: STOMPCommand,
        escapes: STOMPEscapes?
    ) -> STOMPRefusal {
        let what =
            switch byte {
            case 0: "a zero byte"
            case UInt8(ascii: "\n"): "a line feed"
            case UInt8(ascii: "\r"): "a carriage return"
            default: "a colon"
            }
        let part = isInName ? "name" : "value"
        let rule =
            if byte == 0 {
                "no version can express"
            } else if let escapes {
                "STOMP \(escapes.version) cannot express"
            } else if command.hasPlainHeaders {
                "\(command) cannot express: it has no escapes in any version"
            } else {
                "STOMP 1.0 cannot express: it has no escapes"
            }
        return STOMPRefusal(
            byte == 0 ? .nulInHeader : .unescapableHeader,
            header: String(decoding: name, as: UTF8.self),
            "the \(part) of the header \"\(STOMPText.shown(name))\" has \(what), which \(rule)"
        )
    }

    static func contentLength(of length: Int) -> STOMPRefusal {
        STOMPRefusal(
            .wrongContentLength,
            header: "content-length",
            "the header \"content-length\" is not the length of the body, which has \(length) bytes; "
                + "without it the right one is sent"
        )
    }

    static func body(_ command: STOMPCommand) -> STOMPRefusal {
        STOMPRefusal(.unexpectedBody, "a frame \(command) has a body: only SEND, MESSAGE and ERROR may have one")
    }

    static var nulInBody: STOMPRefusal {
        STOMPRefusal(.nulInBody, "the body has a zero byte, which would end it: it needs a content-length")
    }

    static func tooManyHeaders(_ count: Int, _ limits: STOMPLimits) -> STOMPRefusal {
        STOMPRefusal(
            .tooManyHeaders,
            "a frame of \(count) headers is over the limit of \(limits.maximumHeaders)"
        )
    }

    static func headersTooLong(_ length: Int, _ limits: STOMPLimits) -> STOMPRefusal {
        STOMPRefusal(
            .headersTooLong,
            "a command and headers of \(length) bytes are over the limit of \(limits.maximumHeaderLength)"
        )
    }

    static func bodyTooLong(_ length: Int, _ limits: STOMPLimits) -> STOMPRefusal {
        STOMPRefusal(
            .bodyTooLong,
            "a body of \(length) bytes is over the limit of \(limits.maximumBodyLength) (maximumBodyLength)"
        )
    }
}
