// SPDX-License-Identifier: Apache-2.0
extension WireFormat.Layout {
    /// Refuses layouts that violate a ``WireFormatError/Rule``.
    func validate() throws(WireFormatError) {
        try self.validateHeader(.request)
        try self.validateHeader(.response)
        try self.validateAgreement()
        try self.validateEnds()
        try self.validateReserved()
        try self.validateStatuses()
        try self.validatePush()
        try self.validateHeartbeat()
        try self.validateTypesLeft()
    }

    // MARK: Headers

    private func validateHeader(_ direction: FrameDirection) throws(WireFormatError) {
        let fields = self.header(direction)
        let part = direction == .request ? "the request's header" : "the response's header"
        try Self.validateFields(fields, part)
        if self.tail != nil, fields.number(of: .type) == nil {
            throw WireFormatError(.tailWithoutType, "the tail repeats the type, but \(part) has none")
        }
        var needed: [(WireFormat.Field.Word, WireFormatError.Rule)] = [
            (.serial, .serialMissing), (.length, .lengthMissing),
        ]
        if direction == .request { needed.insert((.type, .typeMissing), at: 0) }
        for (word, rule) in needed where fields.number(of: word) == nil {
            throw WireFormatError(rule, "\(part) has no \(word.rawValue); every frame needs one")
        }
        try self.validateLengths(fields, part)
    }

    private static func validateFields(_ fields: [WireFormat.Field], _ part: String) throws(WireFormatError) {
        var once: Set<String> = []
        var names: Set<String> = []
        var length = 0
        for (index, field) in fields.enumerated() {
            let name: String?
            switch field.kind {
            case .word(let word, _):
                name = word.rawValue
            case .headerLength:
                name = "headerLength"
            case .flags:
                name = "flags"
            case .constant(let bytes):
                name = nil
                try require(!bytes.isEmpty, or: .constantEmpty, "a constant in \(part) has no bytes; leave it out")
            case .custom(let custom, let width):
                name = nil
                guard !custom.isEmpty else {
                    throw WireFormatError(.customNameEmpty, "a custom field in \(part) has no name to fill it in by")
                }
                guard names.insert(custom).inserted else {
                    throw WireFormatError(.customNameTwice, "\(part) has two custom fields called \(custom)")
                }
                try require(
                    width > 0,
                    or: .customWidth,
                    "the custom field \(custom) in \(part) is \(width) bytes wide; 1 is the least"
                )
            }
            if let name, !once.insert(name).inserted {
                throw WireFormatError(.fieldTwice, "\(part) has the field \(name) twice")
            }
            if let number = field.number {
                try Self.validate(
                    number,
                    named: name ?? "number",
                    in: part,
                    followedBy: fields.dropFirst(index + 1).first
                )
            }
            // Each summand is checked, so that the sum cannot overflow.
            guard field.largestWidth <= WireFormat.maximumHeaderLength else { throw Self.tooLong(part) }
            length += field.largestWidth
            guard length <= WireFormat.maximumHeaderLength else { throw Self.tooLong(part) }
        }
    }

    private static func tooLong(_ part: String) -> WireFormatError {
        WireFormatError(.headerTooLong, "\(part) has more than \(WireFormat.maximumHeaderLength) bytes")
    }

    private static func validate(
        _ number: WireFormat.Number,
        named name: String,
        in part: String,
        followedBy next: WireFormat.Field?
    ) throws(WireFormatError) {
        switch number.kind {
        case .integer(let bytes, _):
            try require(
                [1, 2, 3, 4, 8].contains(bytes),
                or: .numberWidth,
                "the \(name) in \(part) is an integer of \(bytes) bytes; 1, 2, 3, 4 and 8 are possible"
            )
        case .digits(_, let count?):
            try require(
                (1...20).contains(count),
                or: .numberWidth,
                "the \(name) in \(part) is a number of \(count) digits; 1 to 20 are possible"
            )
        case .digits(let radix, nil):
            guard case .constant(let separator)? = next?.kind, let first = separator.first,
                radix.digit(first) == nil
            else {
                throw WireFormatError(
                    .numberWithoutEnd,
                    """
                    the \(name) in \(part) has as many digits as it needs; behind it goes a constant that begins with \
                    no \(radix.rawValue) digit, so that it can be told where the number ends
                    """
                )
            }
        }
    }

    /// The length, and the length of the header.
    private func validateLengths(_ fields: [WireFormat.Field], _ part: String) throws(WireFormatError) {
        let isVariable = fields.contains { $0.width == nil }
        if self.lengthCounts == .frame, fields.number(of: .length)?.width == nil {
            throw WireFormatError(
                .lengthCountsItself,
                """
                the length in \(part) counts the whole frame, and so its own digits, of which there are as many as it \
                needs; give it a fixed width
                """
            )
        }
        let length = fields.reduce(0) { $0 + $1.largestWidth }
        for case .headerLength(let upTo, let number) in fields.map(\.kind) {
            try require(
                !isVariable,
                or: .headerLengthVariable,
                "\(part) announces its own length, but has a number without a fixed width"
            )
            try require(
                (length...WireFormat.maximumHeaderLength).contains(upTo) && upTo <= number.largest,
                or: .headerLengthLimit,
                """
                \(part) has \(length) bytes, and header lengths up to \(upTo) are accepted; that must be from \
                \(length) to \(min(WireFormat.maximumHeaderLength, Int(number.largest)))
                """
            )
        }
    }

    private func validateAgreement() throws(WireFormatError) {
        try require(
            self.hasStatus(.response) || !self.hasStatus(.request),
            or: .statusInRequestsOnly,
            "requests have a status and responses have none; it is the response that says how a request fared"
        )
        var widths: [String: Int] = [:]
        for case .custom(let name, let width) in self.request.map(\.kind) { widths[name] = width }
        for case .custom(let name, let width) in self.response.map(\.kind) where widths[name] ?? width != width {
            throw WireFormatError(
                .customWidth,
                "the custom field \(name) is \(widths[name] ?? 0) bytes wide in requests and \(width) in responses"
            )
        }
    }

    private func hasStatus(_ direction: FrameDirection) -> Bool {
        self.header(direction).number(of: .status) != nil
    }

    // MARK: Fields after the payload

    private func validateEnds() throws(WireFormatError) {
        if let end = self.bodyEnd, !(1...64).contains(end.count) {
            throw WireFormatError(
                .bodyEndLength,
                "the separator at the end of a frame has \(end.count) bytes; 1 to 64 are possible"
            )
        }
        guard let checksum = self.checksum else { return }
        try require(
            checksum.width >= 4,
            or: .checksumTooWide,
            "\(checksum.algorithm) has 4 bytes, and its field has \(checksum.width); 4 or 8 are possible"
        )
        try require(
            checksum.width == 4 || checksum.width == 8,
            or: .checksumFieldWidth,
            "the checksum's field has \(checksum.width) bytes; 4 or 8 are possible"
        )
    }

    // MARK: Values

    private func validateReserved() throws(WireFormatError) {
        guard self.requestSerials.lowerBound > 0 else {
            throw WireFormatError(.serialZero, "serial 0 cannot be a request's; let requests begin with 1 or later")
        }
        try self.check(self.requestSerials.upperBound, "the last serial of requests", fits: .serial)
        try self.check(self.applicationTypes.upperBound, "the last type of applications", fits: .type)
        if let cancel = self.cancel { try self.check(cancel.type, "the type of a cancel", fits: .type, in: [.request]) }
    }

    private func validateTypesLeft() throws(WireFormatError) {
        let pushTypes = self.push?.types
        let taken = Set([self.heartbeat?.type, self.heartbeat?.answerType, self.cancel?.type].compactMap { $0 })
            .filter { self.applicationTypes.contains($0) && pushTypes?.contains($0) != true }
        let pushes = pushTypes.map { Int($0.upperBound - $0.lowerBound) + 1 } ?? 0
        let types = Int(self.applicationTypes.upperBound - self.applicationTypes.lowerBound) + 1
        try require(
            taken.count + pushes < types,
            or: .noApplicationTypes,
            "heartbeat, cancel and push take all of the types from \(self.applicationTypes.lowerBound) to "
                + "\(self.applicationTypes.upperBound); none is left to calls"
        )
    }

    /// Refuses a value that does not fit its field in some header. A header without the field is not checked.
    private func check(
        _ value: UInt32,
        _ name: String,
        fits word: WireFormat.Field.Word,
        in directions: [FrameDirection] = [.request, .response]
    ) throws(WireFormatError) {
        for direction in directions {
            guard let largest = self.header(direction).number(of: word)?.largest, value > largest else { continue }
            throw WireFormatError(
                .valueTooLarge,
                "\(name) is \(value), but the \(word.rawValue) of a \(direction) is \(largest) at most"
            )
        }
    }

    private func validateStatuses() throws(WireFormatError) {
        guard self.hasStatus(.response) else {
            try require(
                self.okStatus == Status.ok.rawValue,
                or: .okStatusWithoutStatus,
                "status \(self.okStatus) is said to mean success, but responses have no status"
            )
            try require(
                self.statuses.isEmpty,
                or: .okStatusWithoutStatus,
                "statuses are said to mean something, but responses have no status"
            )
            return
        }
        try self.check(self.okStatus, "the status of success", fits: .status)
        for (number, status) in self.statuses.sorted(by: { $0.key < $1.key }) {
            try self.check(number, "a status with a meaning", fits: .status, in: [.response])
            try require(
                number != self.okStatus || status == .ok,
                or: .statusMeansTwo,
                "status \(number) on the wire means both success (okStatus) and \(status)"
            )
        }
    }

    private func validatePush() throws(WireFormatError) {
        guard let push = self.push else { return }
        try require(
            self.response.number(of: .type) != nil,
            or: .pushWithoutType,
            "the response's header has no type, so a push would have none; let pushes be none, or give it a type"
        )
        try self.check(push.serial, "the serial of a push", fits: .serial, in: [.response])
        switch push.mark {
        case .serials(let serials):
            guard !serials.overlaps(self.requestSerials) else {
                let both = serials.clamped(to: self.requestSerials)
                throw WireFormatError(
                    .pushIsResponse,
                    "a push with serial \(both.lowerBound) could not be told from the response to a request with that "
                        + "serial"
                )
            }
        case .types(let types):
            guard self.applicationTypes.lowerBound <= types.lowerBound,
                types.upperBound <= self.applicationTypes.upperBound
            else {
                throw WireFormatError(
                    .pushTypes,
                    """
                    pushes have types from \(types.lowerBound) to \(types.upperBound), which must be among those of \
                    applications, \(self.applicationTypes.lowerBound) to \(self.applicationTypes.upperBound)
                    """
                )
            }
        case .flag(let flag, let mask):
            let fields = self.response.compactMap { field -> (value: UInt32, number: WireFormat.Number)? in
                if case .flags(let value, let number) = field.kind { (value, number) } else { nil }
            }
            guard let field = fields.first else {
                throw WireFormatError(
                    .pushWithoutFlags,
                    "a push is known by a flag, but the response's header has no flags"
                )
            }
            try require(
                flag <= field.number.largest && field.value <= field.number.largest,
                or: .valueTooLarge,
                "the flags \(max(flag, field.value)) are too large: the field holds \(field.number.largest) at most"
            )
            try require(
                mask & flag != mask & field.value,
                or: .pushIsResponse,
                """
                a push with flags \(flag) could not be told from a response, whose flags are \(field.value), by the \
                bits of the mask \(mask)
                """
            )
        }
    }

    private func validateHeartbeat() throws(WireFormatError) {
        guard let heartbeat = self.heartbeat else { return }
        try self.check(heartbeat.type, "the type of a heartbeat", fits: .type)
        if let answer = heartbeat.answerType { try self.check(answer, "the type of its answer", fits: .type) }
        for type in [heartbeat.type, heartbeat.answerType] where type != nil && type == self.cancel?.type {
            throw WireFormatError(.heartbeatIsCancel, "heartbeat and cancel are both of type \(heartbeat.type)")
        }
        if heartbeat.pingedBy == .both, heartbeat.answerType ?? heartbeat.type == heartbeat.type {
            try require(
                self.hasStatus(.response),
                or: .bothPingWithoutStatus,
                "both sides ping, but without a status a client cannot tell a ping from an answer"
            )
            try require(
                heartbeat.pingStatus != .ok && heartbeat.pingStatus.rawValue != self.okStatus,
                or: .pingResemblesAnswer,
                "both sides ping, and a ping's status, \(heartbeat.pingStatus), is that of success"
            )
        }
        let serials: [UInt32] =
            switch heartbeat.pingedBy {
            case .client: [heartbeat.clientSerial]
            case .server: [heartbeat.serverSerial]
            case .both: [heartbeat.clientSerial, heartbeat.serverSerial]
            }
        for serial in serials {
            try self.check(serial, "the serial of a ping", fits: .serial)
            if let range = heartbeat.serials {
                try require(
                    range.contains(serial),
                    or: .heartbeatSerial,
                    "a ping has serial \(serial), but heartbeats are known by \(range.lowerBound) to "
                        + "\(range.upperBound)"
                )
            } else if self.requestSerials.contains(serial) {
                throw WireFormatError(
                    .heartbeatSerial,
                    "a ping has serial \(serial), which is a request's; choose another one, or say by which serials "
                        + "heartbeats are known"
                )
            }
        }
    }
}

extension WireFormat.Number.Radix {
    /// The value of a digit in ASCII; nil if it is not a digit.
    @inline(__always)
    func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f") where self == .hexadecimal: byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F") where self == .hexadecimal: byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

private func require(
    _ isMet: Bool,
    or rule: WireFormatError.Rule,
    _ message: @autoclosure () -> String
) throws(WireFormatError) {
    if !isMet { throw WireFormatError(rule, message()) }
}
