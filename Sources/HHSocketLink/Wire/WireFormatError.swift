// SPDX-License-Identifier: Apache-2.0
/// The reason why a layout is invalid.
public struct WireFormatError: Error, Hashable, Sendable, CustomStringConvertible {
    /// A rule of layouts.
    package struct Rule: Hashable, Sendable, CustomStringConvertible {
        private enum Name: String, Hashable, Sendable {
            case typeMissing, serialMissing, lengthMissing, fieldTwice, statusInRequestsOnly
            case constantEmpty, customNameEmpty, customNameTwice, customWidth, headerTooLong, headerLengthLimit
            case checksumTooWide, checksumFieldWidth, tailWithoutType
            case serialZero, noApplicationTypes, okStatusWithoutStatus
            case bothPingWithoutStatus, pingResemblesAnswer, heartbeatSerial, heartbeatIsCancel
            case pushIsResponse, pushWithoutType, pushWithoutFlags, pushTypes
            case numberWidth, numberWithoutEnd, lengthCountsItself, headerLengthVariable, bodyEndLength
            case valueTooLarge, statusMeansTwo, codec
            case malformed
        }

        private var name: Name

        private init(_ name: Name) { self.name = name }

        /// The rule's name, such as `pushIsResponse`.
        package var description: String { self.name.rawValue }

        /// Requests have a type. A response without one has the type of its call.
        package static let typeMissing = Self(.typeMissing)
        /// Both headers have a serial: nothing else joins a response to its request.
        package static let serialMissing = Self(.serialMissing)
        /// Both headers have a length, because nothing else determines the end of a frame.
        package static let lengthMissing = Self(.lengthMissing)
        /// Type, serial, status, length, flags and the header's length occur at most once in a header.
        package static let fieldTwice = Self(.fieldTwice)
        /// A status describes the outcome of a request: if requests have one, so have responses.
        package static let statusInRequestsOnly = Self(.statusInRequestsOnly)
        /// A constant has at least one byte.
        package static let constantEmpty = Self(.constantEmpty)
        /// A custom field has a name.
        package static let customNameEmpty = Self(.customNameEmpty)
        /// The custom fields of a header have different names.
        package static let customNameTwice = Self(.customNameTwice)
        /// A custom field is 1 byte wide at least, and has the same width in requests and responses.
        package static let customWidth = Self(.customWidth)
        /// A header has ``WireFormat/maximumHeaderLength`` bytes at most.
        package static let headerTooLong = Self(.headerTooLong)
        /// The header length that is still accepted is at least the header's own, and at most
        /// ``WireFormat/maximumHeaderLength``.
        package static let headerLengthLimit = Self(.headerLengthLimit)
        /// A checksum has 32 bits, and its field at least as many.
        package static let checksumTooWide = Self(.checksumTooWide)
        /// A checksum's field is 4 or 8 bytes wide.
        package static let checksumFieldWidth = Self(.checksumFieldWidth)
        /// The tail repeats the type: if there is a tail, both headers have a type.
        package static let tailWithoutType = Self(.tailWithoutType)
        /// No request has serial 0.
        package static let serialZero = Self(.serialZero)
        /// At least one type remains for applications.
        package static let noApplicationTypes = Self(.noApplicationTypes)
        /// A status for success, or any other that means something, needs responses that have a status.
        package static let okStatusWithoutStatus = Self(.okStatusWithoutStatus)
        /// If both sides ping, a status or a different type distinguishes pings from answers.
        package static let bothPingWithoutStatus = Self(.bothPingWithoutStatus)
        /// A ping's status is neither 200 nor the one that means success, where both sides ping.
        package static let pingResemblesAnswer = Self(.pingResemblesAnswer)
        /// The serial of a ping is one of the serials that heartbeats may have.
        package static let heartbeatSerial = Self(.heartbeatSerial)
        /// Heartbeat and cancel have different types.
        package static let heartbeatIsCancel = Self(.heartbeatIsCancel)
        /// A push can be distinguished from a response: its serial is not one that a request may have, or its flag not
        /// one of a response.
        package static let pushIsResponse = Self(.pushIsResponse)
        /// If there are pushes, responses have a type.
        package static let pushWithoutType = Self(.pushWithoutType)
        /// If pushes are identified by a flag, responses have flags.
        package static let pushWithoutFlags = Self(.pushWithoutFlags)
        /// The types that identify pushes are among those of applications.
        package static let pushTypes = Self(.pushTypes)
        /// An integer has 1, 2, 3, 4 or 8 bytes, and a number of a fixed width 1 to 20 digits.
        package static let numberWidth = Self(.numberWidth)
        /// A number with as many digits as it needs is followed by a constant that does not begin with a digit.
        package static let numberWithoutEnd = Self(.numberWithoutEnd)
        /// A length that counts the whole frame has a fixed width.
        package static let lengthCountsItself = Self(.lengthCountsItself)
        /// A header that announces its length has fields of fixed widths.
        package static let headerLengthVariable = Self(.headerLengthVariable)
        /// The separator at the end of a frame has 1 to 64 bytes.
        package static let bodyEndLength = Self(.bodyEndLength)
        /// A type, serial, status or flag that the layout names can be written in its field.
        package static let valueTooLarge = Self(.valueTooLarge)
        /// The status that means success means nothing else.
        package static let statusMeansTwo = Self(.statusMeansTwo)
        /// A ``FrameCodec`` supports the pings and cancels of its rules, and reads what it has written.
        package static let codec = Self(.codec)
        /// The JSON is as `Docs/WireFormat.md` describes.
        package static let malformed = Self(.malformed)
    }

    /// The rule that was broken.
    package let rule: Rule
    /// The fault and its remedy, in one line.
    public let message: String

    package init(_ rule: Rule, _ message: String) {
        self.rule = rule
        self.message = message
    }

    /// The message, and the name of the rule in parentheses; `Docs/WireFormat.md` lists the rules.
    public var description: String { "\(self.message) (\(self.rule))" }
}
