// SPDX-License-Identifier: Apache-2.0
/// Bytes that break the rules of STOMP or our limits. The bytes after them cannot be read, so they end the connection.
package struct STOMPViolation: Error, Hashable, Sendable {
    /// The rule that was broken.
    package struct Kind: Hashable, Sendable, CustomStringConvertible {
        /// The first line is no command.
        package static let malformedCommand = Kind("malformedCommand")
        /// A header without a colon.
        package static let malformedHeader = Kind("malformedHeader")
        /// A header without a name.
        package static let emptyHeaderName = Kind("emptyHeaderName")
        /// A backslash that begins no escape of the version.
        package static let undefinedEscape = Kind("undefinedEscape")
        /// A zero byte before the blank line that ends the headers.
        package static let nulInHeaders = Kind("nulInHeaders")
        /// A `content-length` that is no number.
        package static let malformedContentLength = Kind("malformedContentLength")
        /// A body that ends without a zero byte.
        package static let missingEnd = Kind("missingEnd")
        /// A body of a frame that must have none.
        package static let unexpectedBody = Kind("unexpectedBody")
        /// A `CONNECTED` whose version is none of 1.0, 1.1 and 1.2.
        package static let unknownVersion = Kind("unknownVersion")
        /// More headers than ``STOMPLimits/maximumHeaders``.
        package static let tooManyHeaders = Kind("tooManyHeaders")
        /// Headers that are longer than ``STOMPLimits/maximumHeaderLength``.
        package static let headersTooLong = Kind("headersTooLong")
        /// A body that is longer than ``STOMPLimits/maximumBodyLength``.
        package static let bodyTooLong = Kind("bodyTooLong")

        /// The name of the kind.
        package let description: String

        private init(_ name: String) {
            self.description = name
        }

        /// Whether one of our limits was exceeded, rather than a rule of STOMP broken.
        package var isLimit: Bool { self == .tooManyHeaders || self == .headersTooLong || self == .bodyTooLong }
    }

    /// The rule that was broken.
    package let kind: Kind
    /// The bytes that broke the rule, what is wrong with them, and the rule, in one line.
    package let description: String

    init(_ kind: Kind, _ description: String) {
        self.kind = kind
        self.description = description
    }
}

extension STOMPViolation: CustomStringConvertible {}

extension STOMPViolation {
    static func command(_ line: some Collection<UInt8>) -> STOMPViolation {
        STOMPViolation(
            .malformedCommand,
            """
            a frame begins with "\(STOMPText.shown(line))", which is not a command: commands are in upper-case letters
            """
        )
    }

    static func noColon(_ line: UnsafeRawBufferPointer) -> STOMPViolation {
        STOMPViolation(
            .malformedHeader,
            "the header \"\(STOMPText.shown(line))\" has no colon between a name and a value"
        )
    }

    static func noName(_ line: UnsafeRawBufferPointer) -> STOMPViolation {
        STOMPViolation(.emptyHeaderName, "the header \"\(STOMPText.shown(line))\" has no name before its colon")
    }

    static func escape(_ line: UnsafeRawBufferPointer, _ version: STOMPVersion) -> STOMPViolation {
        let escapes = version == .v1_1 ? "\\n, \\c and \\\\" : "\\r, \\n, \\c and \\\\"
        return STOMPViolation(
            .undefinedEscape,
            "the header \"\(STOMPText.shownLine(line))\" has an undefined escape: STOMP \(version) has \(escapes)"
        )
    }

    static func nul(_ line: UnsafeRawBufferPointer) -> STOMPViolation {
        STOMPViolation(
            .nulInHeaders,
            "a zero byte follows \"\(STOMPText.shownLine(line))\", before the blank line that ends the headers"
        )
    }

    static func contentLength(_ value: some Collection<UInt8>) -> STOMPViolation {
        STOMPViolation(
            .malformedContentLength,
            "the content-length \"\(STOMPText.shown(value))\" is not a decimal number"
        )
    }

    static func end(length: Int, _ byte: UInt8) -> STOMPViolation {
        STOMPViolation(
            .missingEnd,
            "the body of \(length) bytes, as its content-length says, ends with \"\(STOMPText.shown([byte]))\" "
                + "instead of a zero byte"
        )
    }

    static func body(_ command: STOMPCommand, _ version: STOMPVersion) -> STOMPViolation {
        STOMPViolation(
            .unexpectedBody,
            "a frame \(command) has a body: in STOMP \(version) only SEND, MESSAGE and ERROR may have one"
        )
    }

    static func version(_ value: some Collection<UInt8>) -> STOMPViolation {
        let known = STOMPVersion.allCases.map(\.rawValue).joined(separator: ", ")
        return STOMPViolation(
            .unknownVersion,
            "CONNECTED has the version \"\(STOMPText.shown(value))\", which is none of \(known)"
        )
    }

    static func tooManyHeaders(_ limits: STOMPLimits) -> STOMPViolation {
        STOMPViolation(.tooManyHeaders, "a frame has more than \(limits.maximumHeaders) headers")
    }

    static func headersTooLong(_ limits: STOMPLimits) -> STOMPViolation {
        STOMPViolation(
            .headersTooLong,
            "the command and headers of a frame have more than \(limits.maximumHeaderLength) bytes"
        )
    }

    /// - Parameter length: Nil if it was not announced.
    static func bodyTooLong(_ length: Int?, _ limits: STOMPLimits) -> STOMPViolation {
        let length = length.map { "of \($0)" } ?? "of more than \(limits.maximumBodyLength)"
        return STOMPViolation(
            .bodyTooLong,
            "a body \(length) bytes is over the limit of \(limits.maximumBodyLength) (maximumBodyLength)"
        )
    }
}
