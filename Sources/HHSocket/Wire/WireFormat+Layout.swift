extension WireFormat {
    /// The longest header there may be, in bytes.
    public static let maximumHeaderLength = 1_024

    /// Which byte of an integer comes first.
    public enum ByteOrder: String, Sendable, Hashable, Codable, CaseIterable {
        /// The most significant one: network byte order.
        case big
        case little
    }

    /// One field of a header.
    public struct Field: Sendable, Hashable {
        enum Kind: Sendable, Hashable {
            case word(Word, ByteOrder)
            case headerLength(upTo: Int, ByteOrder)
            case constant([UInt8])
            case custom(String, Int)
        }

        enum Word: String, Sendable, Hashable {
            case type, serial, status, length
        }

        let kind: Kind

        /// The kind of the frame; 4 bytes.
        public static func type(_ order: ByteOrder = .big) -> Field { Field(kind: .word(.type, order)) }
        /// The number that joins a response to its request; 4 bytes.
        public static func serial(_ order: ByteOrder = .big) -> Field { Field(kind: .word(.serial, order)) }
        /// The outcome of the request; 4 bytes. In a request it is ``Layout/okStatus``.
        public static func status(_ order: ByteOrder = .big) -> Field { Field(kind: .word(.status, order)) }
        /// The length of the payload, or of the frame: ``Layout/lengthCounts``; 4 bytes.
        public static func length(_ order: ByteOrder = .big) -> Field { Field(kind: .word(.length, order)) }
        /// The header's length in bytes; 4 bytes. It is written as the header is laid out here. One that says more, up
        /// to `upTo` bytes, is accepted, and the bytes after the last field here are skipped.
        public static func headerLength(upTo: Int, _ order: ByteOrder = .big) -> Field {
            Field(kind: .headerLength(upTo: upTo, order))
        }
        /// Bytes that are the same in every frame, such as a magic number or a version. A frame with others is refused.
        public static func constant(_ bytes: [UInt8]) -> Field { Field(kind: .constant(bytes)) }
        /// A number of raw bytes, set per request by name (`SocketRequest.header`), or zero.
        public static func custom(_ name: String, bytes: Int) -> Field { Field(kind: .custom(name, bytes)) }

        /// The field's width in bytes.
        public var width: Int {
            switch self.kind {
            case .word, .headerLength: 4
            case .constant(let bytes): bytes.count
            case .custom(_, let width): width
            }
        }
    }

    /// The part of a frame that the length field counts.
    public enum LengthScope: String, Sendable, Hashable, Codable, CaseIterable {
        /// The payload alone.
        case payload
        /// Every byte of the frame: header (with bytes that a longer header has beyond the layout), payload, checksum
        /// and tail.
        case frame
    }

    /// A checksum of the payload, right behind it.
    public struct Checksum: Sendable, Hashable {
        public enum Algorithm: String, Sendable, Hashable, Codable, CaseIterable {
            /// RFC 1950, seed 1.
            case adler32
            /// The crc32 of zlib, gzip and Ethernet: polynomial 0x04C11DB7.
            case crc32
            /// Castagnoli's, that of iSCSI (RFC 3720): polynomial 0x1EDC6F41.
            case crc32c
        }

        public var algorithm: Algorithm
        /// How wide the field is: 4 or 8 bytes. In 8 the checksum is an integer of 64 bits, whose upper half is zero.
        public var width: Int
        public var order: ByteOrder

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

    /// How a side asks whether the other is there.
    public struct Heartbeat: Sendable, Hashable {
        public enum Pinger: String, Sendable, Hashable, Codable, CaseIterable {
            /// The client pings; a heartbeat that it receives is the answer.
            case client
            /// The server pings; the client answers each with a heartbeat of the same serial.
            case server
            /// Both do. What the client receives is a ping if its status is ``Heartbeat/pingStatus``, and else an
            /// answer.
            case both
        }

        public var type: UInt32
        public var pingedBy: Pinger
        /// The serial of a client's ping.
        public var clientSerial: UInt32
        /// The serial of a ping of our server. A client answers others too.
        public var serverSerial: UInt32
        /// The serials by which a heartbeat is known beside its type. Nil: a server takes every frame of the type for a
        /// heartbeat, a client answers those whose serial is no request's.
        public var serials: ClosedRange<UInt32>?
        /// The status of a server's ping on the wire, where there are statuses.
        public var pingStatus: Status

        /// - Parameters:
        ///   - type: The type of a heartbeat.
        ///   - pingedBy: The side that pings.
        ///   - clientSerial: The serial of a client's ping; 0 by default.
        ///   - serverSerial: The serial of our server's ping; 5 by default.
        ///   - serials: The serials by which a heartbeat is known beside its type; nil, the default: any reserved one.
        ///   - pingStatus: The status of a server's ping; 0 by default.
        public init(
            type: UInt32,
            pingedBy: Pinger,
            clientSerial: UInt32 = FrameSerial.clientPing,
            serverSerial: UInt32 = FrameSerial.serverPing,
            serials: ClosedRange<UInt32>? = nil,
            pingStatus: Status = .ping
        ) {
            self.type = type
            self.pingedBy = pingedBy
            self.clientSerial = clientSerial
            self.serverSerial = serverSerial
            self.serials = serials
            self.pingStatus = pingStatus
        }
    }

    /// How a client knows what the server sends unasked: its type is the application's.
    public struct Push: Sendable, Hashable {
        public var serial: UInt32

        public init(serial: UInt32) {
            self.serial = serial
        }
    }

    /// How a client tells the server to stop working on a request: its serial is the request's.
    public struct Cancel: Sendable, Hashable {
        public var type: UInt32

        public init(type: UInt32) {
            self.type = type
        }
    }

    /// A format as data.
    public struct Layout: Sendable, Hashable {
        /// The name of the format in messages.
        public var name: String
        /// The header of what a client sends, in order.
        public var request: [Field]
        /// The header of what a server sends, in order.
        public var response: [Field]
        public var lengthCounts: LengthScope
        /// The checksum behind the payload; nil: none.
        public var checksum: Checksum?
        /// Set if the frame ends with its type once more, in this byte order.
        public var tail: ByteOrder?
        /// The types that applications may use. Types below are kept for the connection, and ignored where they mean
        /// nothing; after a wrong checksum a type above is a sign that the stream is out of step.
        public var applicationTypes: ClosedRange<UInt32>
        /// The serials of requests: counted from the first one to the last, and then from the first again. 0 is none.
        public var requestSerials: ClosedRange<UInt32>
        /// The status on the wire that means success; ``Status/ok`` in the program, whatever it is here.
        public var okStatus: UInt32
        /// Nil: neither side pings.
        public var heartbeat: Heartbeat?
        /// Nil: the server sends nothing unasked.
        public var push: Push?
        /// Nil: a server is not told that nobody waits any more.
        public var cancel: Cancel?

        /// - Parameters:
        ///   - name: What to call it in messages.
        ///   - request: The header of what a client sends, in order.
        ///   - response: The header of what a server sends, in order.
        ///   - lengthCounts: What the length field counts; the payload by default.
        ///   - checksum: The checksum behind the payload; none by default.
        ///   - tail: The byte order of a tail that repeats the type; nil, the default: there is none.
        ///   - applicationTypes: The types that applications may use; 16 to 0x1FFFFFFF by default.
        ///   - requestSerials: The serials of requests; 50 to 0xFFFFFFFF by default.
        ///   - okStatus: The status on the wire that means success; 200 by default.
        ///   - heartbeat: How a side pings; nil, the default: not at all.
        ///   - push: How a push is known; nil, the default: there are none.
        ///   - cancel: How a request is cancelled; nil, the default: not at all.
        public init(
            name: String,
            request: [Field],
            response: [Field],
            lengthCounts: LengthScope = .payload,
            checksum: Checksum? = nil,
            tail: ByteOrder? = nil,
            applicationTypes: ClosedRange<UInt32> = FrameType.application,
            requestSerials: ClosedRange<UInt32> = FrameSerial.firstRequest...UInt32.max,
            okStatus: UInt32 = Status.ok.rawValue,
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
            self.applicationTypes = applicationTypes
            self.requestSerials = requestSerials
            self.okStatus = okStatus
            self.heartbeat = heartbeat
            self.push = push
            self.cancel = cancel
        }

        func header(_ direction: FrameDirection) -> [Field] {
            switch direction {
            case .request: self.request
            case .response: self.response
            }
        }

        /// Whether frames are the same, by whatever name.
        func matches(_ other: Layout) -> Bool {
            var copy = self
            copy.name = other.name
            return copy == other
        }
    }
}
