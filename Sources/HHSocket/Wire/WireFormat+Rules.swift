extension WireFormat.Layout {
    /// Refuses what cannot work. Which rules there are, ``WireFormatError/Rule`` tells.
    func validate() throws(WireFormatError) {
        try self.validateHeader(.request)
        try self.validateHeader(.response)
        try self.validateAgreement()
        try self.validateChecksum()
        try self.validateReserved()
        try self.validateHeartbeat()
    }

    private func validateHeader(_ direction: FrameDirection) throws(WireFormatError) {
        let fields = self.header(direction)
        let place = direction == .request ? "the request's header" : "the response's header"
        var words: Set<String> = []
        var names: Set<String> = []
        var length = 0
        for field in fields {
            let once: String?
            switch field.kind {
            case .word(let word, _):
                once = word.rawValue
            case .headerLength:
                once = "headerLength"
            case .constant(let bytes):
                once = nil
                guard !bytes.isEmpty else {
                    throw WireFormatError(.constantEmpty, "a constant in \(place) has no bytes; leave it out")
                }
            case .custom(let name, let width):
                once = nil
                guard !name.isEmpty else {
                    throw WireFormatError(.customNameEmpty, "a custom field in \(place) has no name to fill it in by")
                }
                guard names.insert(name).inserted else {
                    throw WireFormatError(.customNameTwice, "\(place) has two custom fields called \(name)")
                }
                guard width > 0 else {
                    throw WireFormatError(
                        .customWidth,
                        "the custom field \(name) in \(place) is \(width) bytes wide; 1 is the least"
                    )
                }
            }
            if let once, !words.insert(once).inserted {
                throw WireFormatError(.fieldTwice, "\(place) has the field \(once) twice")
            }
            // Each summand is checked, so that the sum cannot overflow.
            guard field.width <= WireFormat.maximumHeaderLength else { throw Self.tooLong(place) }
            length += field.width
            guard length <= WireFormat.maximumHeaderLength else { throw Self.tooLong(place) }
        }
        if self.tail != nil, !words.contains("type") {
            throw WireFormatError(.tailWithoutType, "the tail repeats the type, but \(place) has none")
        }
        for (word, rule) in [
            ("type", .typeMissing), ("serial", .serialMissing), ("length", .lengthMissing),
        ] as [(String, WireFormatError.Rule)] where !words.contains(word) {
            throw WireFormatError(rule, "\(place) has no \(word); every frame needs one")
        }
        for case .headerLength(let upTo, _) in fields.map(\.kind)
        where !(length...WireFormat.maximumHeaderLength).contains(upTo) {
            throw WireFormatError(
                .headerLengthLimit,
                """
                \(place) has \(length) bytes, and header lengths up to \(upTo) are accepted; that must be from \(length) \
                to \(WireFormat.maximumHeaderLength)
                """
            )
        }
    }

    private static func tooLong(_ place: String) -> WireFormatError {
        WireFormatError(.headerTooLong, "\(place) has more than \(WireFormat.maximumHeaderLength) bytes")
    }

    private func validateAgreement() throws(WireFormatError) {
        guard self.hasStatus(.response) || !self.hasStatus(.request) else {
            throw WireFormatError(
                .statusInRequestsOnly,
                "requests have a status and responses have none; it is the response that says how a request fared"
            )
        }
        guard self.hasStatus(.response) || self.okStatus == Status.ok.rawValue else {
            throw WireFormatError(
                .okStatusWithoutStatus,
                "status \(self.okStatus) is said to mean success, but responses have no status"
            )
        }
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
        self.header(direction).contains {
            if case .word(.status, _) = $0.kind { true } else { false }
        }
    }

    private func validateChecksum() throws(WireFormatError) {
        guard let checksum = self.checksum else { return }
        guard checksum.width >= 4 else {
            throw WireFormatError(
                .checksumTooWide,
                "\(checksum.algorithm) has 4 bytes, and its field has \(checksum.width); 4 or 8 are possible"
            )
        }
        guard checksum.width == 4 || checksum.width == 8 else {
            throw WireFormatError(
                .checksumFieldWidth,
                "the checksum's field has \(checksum.width) bytes; 4 or 8 are possible"
            )
        }
    }

    private func validateReserved() throws(WireFormatError) {
        guard self.requestSerials.lowerBound > 0 else {
            throw WireFormatError(.serialZero, "serial 0 cannot be a request's; let requests begin with 1 or later")
        }
        let taken = Set([self.heartbeat?.type, self.cancel?.type].compactMap { $0 })
            .filter(self.applicationTypes.contains)
        guard taken.count <= Int(self.applicationTypes.upperBound - self.applicationTypes.lowerBound) else {
            throw WireFormatError(
                .noApplicationTypes,
                "heartbeat and cancel take all of the types from \(self.applicationTypes.lowerBound) to "
                    + "\(self.applicationTypes.upperBound); none is left to applications"
            )
        }
        if let push = self.push, self.requestSerials.contains(push.serial) {
            throw WireFormatError(
                .pushIsResponse,
                "a push with serial \(push.serial) could not be told from the response to a request with that serial"
            )
        }
    }

    private func validateHeartbeat() throws(WireFormatError) {
        guard let heartbeat = self.heartbeat else { return }
        guard heartbeat.type != self.cancel?.type else {
            throw WireFormatError(.heartbeatIsCancel, "heartbeat and cancel are both of type \(heartbeat.type)")
        }
        if heartbeat.pingedBy == .both {
            guard self.hasStatus(.response) else {
                throw WireFormatError(
                    .bothPingWithoutStatus,
                    "both sides ping, but without a status a client cannot tell a ping from an answer"
                )
            }
            guard heartbeat.pingStatus != .ok, heartbeat.pingStatus.rawValue != self.okStatus else {
                throw WireFormatError(
                    .pingLooksLikeAnswer,
                    "both sides ping, and a ping's status, \(heartbeat.pingStatus), is that of success"
                )
            }
        }
        let serials: [UInt32] =
            switch heartbeat.pingedBy {
            case .client: [heartbeat.clientSerial]
            case .server: [heartbeat.serverSerial]
            case .both: [heartbeat.clientSerial, heartbeat.serverSerial]
            }
        for serial in serials {
            if let range = heartbeat.serials {
                guard range.contains(serial) else {
                    throw WireFormatError(
                        .heartbeatSerial,
                        "a ping has serial \(serial), but heartbeats are known by \(range.lowerBound) to "
                            + "\(range.upperBound)"
                    )
                }
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
