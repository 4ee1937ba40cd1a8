// SPDX-License-Identifier: Apache-2.0
extension WireFormat {
    /// The part of a frame that the length field counts.
    public enum LengthScope: String, Sendable, Hashable, Codable, CaseIterable {
        /// Only the payload.
        case payload
        /// Every byte of the frame: header (with bytes that a longer header has beyond the layout), payload, checksum,
        /// tail and end.
        case frame
        /// Every byte after the length field itself: the rest of the header, payload, checksum, tail and end.
        case rest
    }

    /// A checksum of the payload, directly after it.
    public struct Checksum: Sendable, Hashable {
        public enum Algorithm: String, Sendable, Hashable, Codable, CaseIterable {
            /// RFC 1950, seed 1.
            case adler32
            /// The crc32 of zlib, gzip and Ethernet: polynomial 0x04C11DB7.
            case crc32
            /// Castagnoli's checksum, used by iSCSI (RFC 3720): polynomial 0x1EDC6F41.
            case crc32c
        }

        package var algorithm: Algorithm
        /// The width of the field: 4 or 8 bytes. In 8 the checksum is an integer of 64 bits, whose upper half is zero.
        package var width: Int
        package var order: ByteOrder

        /// - Parameters:
        ///   - algorithm: How it is computed.
        ///   - width: 4, the default, or 8 bytes.
        ///   - order: Big-endian by default.
        public init(_ algorithm: Algorithm, width: Int = 4, _ order: ByteOrder = .big) {
            self.algorithm = algorithm
            self.width = width
            self.order = order
        }
    }

    /// The heartbeats of a format.
    public struct Heartbeat: Sendable, Hashable {
        public enum Pinger: String, Sendable, Hashable, Codable, CaseIterable {
            /// The client pings; a heartbeat that it receives is the answer.
            case client
            /// The server pings; the client answers each with a heartbeat of the same serial.
            case server
            /// Both sides ping. A heartbeat that the client receives is a ping if its status is
            /// `pingStatus`, and otherwise an answer.
            case both
        }

        package var type: UInt32
        /// The type of the answer to a ping, with the ping's serial; nil for the type of the ping. A different type
        /// alone distinguishes a ping from an answer.
        package var answerType: UInt32?
        package var pingedBy: Pinger
        /// The serial of a client's ping.
        package var clientSerial: UInt32
        /// The serial of a ping of our server. A client answers others too.
        package var serverSerial: UInt32
        /// The serials that, together with the type, identify a heartbeat. Nil: a server treats every frame of the type
        /// as a heartbeat, a client answers those whose serial is not that of a request.
        package var serials: ClosedRange<UInt32>?
        /// The status of a server's ping on the wire, in formats with statuses.
        package var pingStatus: Status

        /// - Parameters:
        ///   - type: The type of a heartbeat.
        ///   - answerType: The type of the answer to a ping; nil, the default, for the type of the ping.
        ///   - pingedBy: The side that pings.
        ///   - clientSerial: The serial of a client's ping; 0 by default.
        ///   - serverSerial: The serial of our server's ping; 5 by default.
        ///   - serials: The serials that, together with the type, identify a heartbeat; nil, the default, for any
        ///     reserved one.
        ///   - pingStatus: The status of a server's ping; 0 by default.
        public init(
            type: UInt32,
            answerType: UInt32? = nil,
            pingedBy: Pinger,
            clientSerial: UInt32 = FrameSerial.clientPing,
            serverSerial: UInt32 = FrameSerial.serverPing,
            serials: ClosedRange<UInt32>? = nil,
            pingStatus: Status = .ping
        ) {
            self.type = type
            self.answerType = answerType
            self.pingedBy = pingedBy
            self.clientSerial = clientSerial
            self.serverSerial = serverSerial
            self.serials = serials
            self.pingStatus = pingStatus
        }
    }

    /// The mark by which a client recognises pushes: their serial, their type, or a flag. A push has a type of the
    /// application.
    public struct Push: Sendable, Hashable {
        package enum Mark: Sendable, Hashable {
            case serials(ClosedRange<UInt32>)
            case types(ClosedRange<UInt32>)
            case flag(UInt32, mask: UInt32)
        }

        package let mark: Mark
        /// The serial of our server's pushes.
        package let serial: UInt32

        /// A push has this serial, which no request has.
        public init(serial: UInt32) {
            self.init(serials: serial...serial)
        }

        /// A push has one of these serials, which no request has, such as a counter of the server's. Our server's have
        /// the first.
        public init(serials: ClosedRange<UInt32>) {
            self.mark = .serials(serials)
            self.serial = serials.lowerBound
        }

        /// A push has one of these types, which no request has, and any serial. Responses have a type.
        ///
        /// - Parameters:
        ///   - types: The types of pushes, among ``Layout/applicationTypes``.
        ///   - serial: The serial of our server's pushes; 0 by default.
        public init(types: ClosedRange<UInt32>, serial: UInt32 = 0) {
            self.mark = .types(types)
            self.serial = serial
        }

        /// A push has this flag, and any serial.
        ///
        /// - Parameters:
        ///   - flag: The value of ``Field/flags(_:bytes:_:)`` in the headers of responses, under the mask.
        ///   - mask: The bits of the field that are compared; nil, the default: those that `flag` has.
        ///   - serial: The serial of our server's pushes; 0 by default.
        public init(flag: UInt32, mask: UInt32? = nil, serial: UInt32 = 0) {
            self.mark = .flag(flag, mask: mask ?? flag)
            self.serial = serial
        }

        /// The types that only pushes have; nil if a push is recognised otherwise.
        package var types: ClosedRange<UInt32>? {
            if case .types(let types) = self.mark { types } else { nil }
        }

        /// The serials that only pushes have; nil if a push is recognised otherwise.
        package var serials: ClosedRange<UInt32>? {
            if case .serials(let serials) = self.mark { serials } else { nil }
        }
    }

    /// The frame with which a client cancels a request, whose serial it has.
    public struct Cancel: Sendable, Hashable {
        package var type: UInt32

        public init(type: UInt32) {
            self.type = type
        }
    }

    /// A format as data.
    public struct Layout: Sendable, Hashable {
        /// The name of the format in messages.
        public var name: String
        /// The header of a client's frames, in order.
        public var request: [Field]
        /// The header of a server's frames, in order.
        public var response: [Field]
        public var lengthCounts: LengthScope
        /// The checksum after the payload; nil for none.
        public var checksum: Checksum?
        /// The byte order of a tail that repeats the type in 4 bytes, after the payload and its checksum; nil for none.
        public var tail: ByteOrder?
        /// The separator at the end of a frame; nil for none.
        ///
        /// The length determines the end, so a payload may contain these bytes. A frame without the separator at its
        /// end is malformed, and reading continues after the next separator: only one frame is lost, not the
        /// connection.
        public var bodyEnd: [UInt8]?
        /// The types that applications may use. Types below are reserved for the connection, and ignored if they have
        /// no meaning; a type above, after a wrong checksum, is a sign that the stream is out of sync.
        public var applicationTypes: ClosedRange<UInt32>
        /// The serials of requests: counted from the first one to the last, and then from the first again. 0 is none.
        public var requestSerials: ClosedRange<UInt32>
        /// The status on the wire that means success, ``Status/ok`` in the program.
        public var okStatus: UInt32
        /// The meanings of other statuses on the wire, by their numbers there. Several may have one meaning; the
        /// smallest of them is written. An unlisted status has the same number in the program, unless that number is
        /// the meaning of another one; then it gets a number that became free.
        public var statuses: [UInt32: Status]
        /// Nil: neither side pings.
        public var heartbeat: Heartbeat?
        /// Nil: the server sends nothing unasked.
        public var push: Push?
        /// The cancels; nil if a server is not notified that an answer is no longer needed.
        public var cancel: Cancel?

        /// - Parameters:
        ///   - name: The name in messages.
        ///   - request: The header of a client's frames, in order.
        ///   - response: The header of a server's frames, in order.
        ///   - lengthCounts: The bytes that the length field counts; the payload by default.
        ///   - checksum: The checksum after the payload; none by default.
        ///   - tail: The byte order of a tail that repeats the type; nil, the default, for no tail.
        ///   - bodyEnd: The separator at the end of a frame; nil, the default, for none.
        ///   - applicationTypes: The types that applications may use; nil, the default, for 16 to 0x1FFFFFFF, as far as
        ///     their fields hold them.
        ///   - requestSerials: The serials of requests; nil, the default, for 50 to 0xFFFFFFFF, as far as their fields
        ///     hold them.
        ///   - okStatus: The status on the wire that means success; 200 by default.
        ///   - statuses: The meanings of other statuses on the wire; none by default.
        ///   - heartbeat: The heartbeats; nil, the default, for none.
        ///   - push: The pushes; nil, the default, for none.
        ///   - cancel: The cancels; nil, the default, for none.
        public init(
            name: String,
            request: [Field],
            response: [Field],
            lengthCounts: LengthScope = .payload,
            checksum: Checksum? = nil,
            tail: ByteOrder? = nil,
            bodyEnd: [UInt8]? = nil,
            applicationTypes: ClosedRange<UInt32>? = nil,
            requestSerials: ClosedRange<UInt32>? = nil,
            okStatus: UInt32 = Status.ok.rawValue,
            statuses: [UInt32: Status] = [:],
            heartbeat: Heartbeat? = nil,
            push: Push? = nil,
            cancel: Cancel? = nil
        ) {
            self.name = name
            self.request = request
            self.response = response
            self.lengthCounts = lengthCounts
            self.checksum = checksum
            self.tail = tail
            self.bodyEnd = bodyEnd
            let headers = [request, response]
            self.applicationTypes = applicationTypes ?? Self.values(FrameType.application, of: .type, in: headers)
            self.requestSerials =
                requestSerials ?? Self.values(FrameSerial.firstRequest...UInt32.max, of: .serial, in: headers)
            self.okStatus = okStatus
            self.statuses = statuses
            self.heartbeat = heartbeat
            self.push = push
            self.cancel = cancel
        }

        /// The values of a range of the standard format that the fields of these headers hold; from 1 on if they hold
        /// none.
        private static func values(
            _ standard: ClosedRange<UInt32>,
            of word: Field.Word,
            in headers: [[Field]]
        ) -> ClosedRange<UInt32> {
            let largest = headers.compactMap { $0.number(of: word)?.largest }.min() ?? .max
            if standard.contains(largest) { return standard.lowerBound...largest }
            return largest > standard.upperBound ? standard : 1...max(1, largest)
        }

        func header(_ direction: FrameDirection) -> [Field] {
            switch direction {
            case .request: self.request
            case .response: self.response
            }
        }

        /// Whether the frames are the same, regardless of the name.
        func matches(_ other: Layout) -> Bool {
            var copy = self
            copy.name = other.name
            return copy == other
        }
    }
}
