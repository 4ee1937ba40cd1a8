// SPDX-License-Identifier: Apache-2.0
/// The reason why a layout is invalid.
public struct WireFormatError: Error, Hashable, Sendable, CustomStringConvertible {
    /// A rule of layouts. Cases may be added; have a default when you switch over it.
    public enum Rule: Hashable, Sendable {
        /// Requests have a type. A response without one has the type of its call.
        case typeMissing
        /// Both headers have a serial: nothing else joins a response to its request.
        case serialMissing
        /// Both headers have a length, because nothing else determines the end of a frame.
        case lengthMissing
        /// Type, serial, status, length, flags and the header's length occur at most once in a header.
        case fieldTwice
        /// A status describes the outcome of a request: if requests have one, so have responses.
        case statusInRequestsOnly
        /// A constant has at least one byte.
        case constantEmpty
        /// A custom field has a name.
        case customNameEmpty
        /// The custom fields of a header have different names.
        case customNameTwice
        /// A custom field is 1 byte wide at least, and has the same width in requests and responses.
        case customWidth
        /// A header has 1,024 bytes at most.
        case headerTooLong
        /// The header length that is still accepted is at least the header's own, and at most 1,024.
        case headerLengthLimit
        /// A checksum has 32 bits, and its field at least as many.
        case checksumTooWide
        /// A checksum's field is 4 or 8 bytes wide.
        case checksumFieldWidth
        /// The tail repeats the type: if there is a tail, both headers have a type.
        case tailWithoutType
        /// No request has serial 0.
        case serialZero
        /// At least one type remains for applications.
        case noApplicationTypes
        /// A status for success, or any other that means something, needs responses that have a status.
        case okStatusWithoutStatus
        /// If both sides ping, a status or a different type distinguishes pings from answers.
        case bothPingWithoutStatus
        /// A ping's status is neither 200 nor the one that means success, where both sides ping.
        case pingResemblesAnswer
        /// The serial of a ping is one of the serials that heartbeats may have.
        case heartbeatSerial
        /// Heartbeat and cancel have different types.
        case heartbeatIsCancel
        /// A push can be distinguished from a response: its serial is not one that a request may have, or its flag not
        /// one of a response.
        case pushIsResponse
        /// If there are pushes, responses have a type.
        case pushWithoutType
        /// If pushes are identified by a flag, responses have flags.
        case pushWithoutFlags
        /// The types that identify pushes are among those of applications.
        case pushTypes
        /// An integer has 1, 2, 3, 4 or 8 bytes, and a number of a fixed width 1 to 20 digits.
        case numberWidth
        /// A number with as many digits as it needs is followed by a constant that does not begin with a digit.
        case numberWithoutEnd
        /// A length that counts the whole frame has a fixed width.
        case lengthCountsItself
        /// A header that announces its length has fields of fixed widths.
        case headerLengthVariable
        /// The separator at the end of a frame has 1 to 64 bytes.
        case bodyEndLength
        /// A type, serial, status or flag that the layout names can be written in its field.
        case valueTooLarge
        /// The status that means success means nothing else.
        case statusMeansTwo
        /// A ``FrameCodec`` supports the pings and cancels of its rules, and reads what it has written.
        case codec
        /// The JSON is as `Docs/WireFormat.md` describes.
        case malformed
    }

    /// The rule that was broken.
    public let rule: Rule
    /// The fault and its remedy, in one line.
    public let message: String

    package init(_ rule: Rule, _ message: String) {
        self.rule = rule
        self.message = message
    }

    /// The message, and the name of the rule in parentheses; `Docs/WireFormat.md` lists the rules.
    public var description: String { "\(self.message) (\(self.rule))" }
}
