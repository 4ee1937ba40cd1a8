// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The layout of the frames of a connection: the standard one, or that of an existing server.
///
/// A format is a value made from a ``Layout``, which is data: in Swift, or read from JSON. An invalid layout is refused
/// when the format is made, so every format can encode and decode. A ``FrameCodec`` supports frames that data cannot
/// describe.
///
/// ```swift
/// let format = try WireFormat(
///     WireFormat.Layout(
///         name: "example",
///         request: [.constant([0xCA, 0xFE]), .custom("token", bytes: 8), .type(), .serial(), .length()],
///         response: [.constant([0xCA, 0xFE]), .type(), .serial(), .status(), .length()],
///         checksum: .init(.crc32c)
///     )
/// )
/// ```
/// In every format, a frame is a header, a payload, and then the checksum, the tail and the separator, if the format
/// has them.
public struct WireFormat: Sendable, Hashable, CustomStringConvertible {
    /// Values that are computed once, so that a format costs one reference.
    @usableFromInline
    final class Storage: Hashable, Sendable {
        let layout: Layout
        @usableFromInline let isStandard: Bool
        let request: HeaderPlan
        let response: HeaderPlan
        let hasCodec: Bool
        // Values that every frame is compared with, as plain numbers. One beyond 32 bits matches no frame.
        let applicationTypes: ClosedRange<UInt64>
        let heartbeatType: UInt64
        let heartbeatAnswerType: UInt64
        let cancelType: UInt64
        let pushSerials: ClosedRange<UInt64>
        let pushTypes: ClosedRange<UInt64>

        init(_ layout: Layout, codec: (any FrameCodec)? = nil) {
            self.layout = layout
            self.hasCodec = codec != nil
            let types = layout.applicationTypes
            self.applicationTypes = UInt64(types.lowerBound)...UInt64(types.upperBound)
            self.heartbeatType = layout.heartbeat.map { UInt64($0.type) } ?? .max
            self.cancelType = layout.cancel.map { UInt64($0.type) } ?? .max
            self.heartbeatAnswerType = (layout.heartbeat?.answerType).map { UInt64($0) } ?? self.heartbeatType
            let none = UInt64.max...UInt64.max
            self.pushSerials = (layout.push?.serials).map { UInt64($0.lowerBound)...UInt64($0.upperBound) } ?? none
            self.pushTypes = (layout.push?.types).map { UInt64($0.lowerBound)...UInt64($0.upperBound) } ?? none
            self.isStandard = codec == nil && layout.matches(.standard)
            self.request = HeaderPlan(layout, .request, codec: codec)
            self.response = HeaderPlan(layout, .response, codec: codec)
        }

        /// A format with a codec equals only its copies.
        @usableFromInline
        static func == (one: Storage, other: Storage) -> Bool {
            one === other || !one.hasCodec && !other.hasCodec && one.layout == other.layout
        }

        @usableFromInline
        func hash(into hasher: inout Hasher) {
            hasher.combine(self.layout)
        }
    }

    @usableFromInline let storage: Storage

    /// - Throws: ``WireFormatError``, which names the rule that `layout` breaks.
    public init(_ layout: Layout) throws(WireFormatError) {
        try layout.validate()
        self.storage = Storage(layout)
    }

    /// Creates a format from a layout that is known to violate no rule, which the tests verify.
    init(known layout: Layout) {
        self.storage = Storage(layout)
    }

    /// The layout that the format was made from. For a ``FrameCodec`` it has the ``Rules``, and headers that name the
    /// numbers of its frames, but do not describe their bytes.
    public var layout: Layout { self.storage.layout }

    /// The layout's name.
    public var description: String { self.layout.name }

    func plan(for direction: FrameDirection) -> HeaderPlan {
        switch direction {
        case .request: self.storage.request
        case .response: self.storage.response
        }
    }

    /// The plan of a format that needs one: the standard format has its own decoding code.
    func specialPlan(for direction: FrameDirection) -> HeaderPlan? {
        self.storage.isStandard ? nil : self.plan(for: direction)
    }

    // MARK: Kinds of frames

    /// Whether calls or pushes may have this type: it is in ``Layout/applicationTypes``, and neither a heartbeat's nor
    /// a cancel's.
    package func isApplicationType(_ type: UInt32) -> Bool {
        let number = UInt64(type)
        return self.storage.applicationTypes.contains(number) && !self.isReserved(number)
    }

    /// Whether calls may have this type: an application's type that does not identify pushes.
    package func isCallType(_ type: UInt32) -> Bool {
        self.isApplicationType(type) && !self.storage.pushTypes.contains(UInt64(type))
    }

    /// Whether pushes may have this type: an application's type, and one that identifies pushes if types do.
    package func isPushType(_ type: UInt32) -> Bool {
        guard let push = self.storage.layout.push, self.isApplicationType(type) else { return false }
        return push.types?.contains(type) ?? true
    }

    /// Whether a frame of this type belongs to the connection and not to a call: a heartbeat, a cancel, or a type below
    /// those of applications.
    package func isControlType(_ type: UInt32) -> Bool {
        let number = UInt64(type)
        return number < self.storage.applicationTypes.lowerBound || self.isReserved(number)
    }

    private func isReserved(_ type: UInt64) -> Bool {
        type == self.storage.heartbeatType || type == self.storage.heartbeatAnswerType
            || type == self.storage.cancelType
    }

    /// Whether a frame of a server's is a push: it answers no request.
    public func isPush(_ frame: Frame) -> Bool {
        frame.isMarkedAsPush || self.isPush(type: frame.type, serial: frame.serial)
    }

    /// Whether a response with this type and serial is a push, in a format without a flag for pushes.
    package func isPush(type: UInt32, serial: UInt32) -> Bool {
        self.storage.pushSerials.contains(UInt64(serial)) || self.storage.pushTypes.contains(UInt64(type))
    }

    /// A push of our server's.
    ///
    /// - Returns: Nil in a format without pushes, and for a type that pushes do not have.
    package func push(type: UInt32, payload: ByteBuffer) -> Frame? {
        guard let push = self.storage.layout.push, self.isPushType(type) else { return nil }
        var frame = Frame(type: type, serial: push.serial, payload: payload)
        if case .flag = push.mark { frame.isMarkedAsPush = true }
        return frame
    }

    /// Whether a client answers this frame with ``heartbeatAnswer(to:)``.
    package func isServerPing(_ frame: Frame) -> Bool {
        guard let heartbeat = self.storage.layout.heartbeat, frame.type == heartbeat.type,
            heartbeat.serials?.contains(frame.serial) ?? !self.storage.layout.requestSerials.contains(frame.serial)
        else { return false }
        switch heartbeat.pingedBy {
        case .client: return false
        case .server: return true
        case .both: return self.answersHaveOwnType || frame.status == heartbeat.pingStatus
        }
    }

    /// Whether the type alone distinguishes a ping from its answer.
    private var answersHaveOwnType: Bool { self.storage.heartbeatAnswerType != self.storage.heartbeatType }

    /// Whether a frame of this type that a server receives is the answer to its ping, determined by the type alone.
    package func isHeartbeatAnswer(type: UInt32) -> Bool {
        self.answersHaveOwnType && UInt64(type) == self.storage.heartbeatAnswerType
    }

    /// The answer to a ping.
    package func heartbeatAnswer(to ping: Frame) -> Frame {
        Frame(type: self.storage.layout.heartbeat?.answerType ?? ping.type, serial: ping.serial)
    }

    /// Whether this frame of a server is a go-away, which announces its shutdown. Only formats that reserve the types
    /// up to 15 for control frames have it.
    package func isGoAway(_ frame: Frame) -> Bool {
        frame.type == FrameType.goAway && frame.serial == FrameSerial.goAway && frame.status == .ok
            && self.storage.applicationTypes.lowerBound > UInt64(FrameType.control.upperBound)
            && self.storage.heartbeatType != UInt64(FrameType.goAway)
            && self.storage.cancelType != UInt64(FrameType.goAway)
    }

    /// Whether a request frame with these is a heartbeat.
    package func isHeartbeatRequest(type: UInt32, serial: UInt32) -> Bool {
        guard let heartbeat = self.storage.layout.heartbeat, type == heartbeat.type else { return false }
        return heartbeat.serials?.contains(serial) ?? true
    }

    /// The client's ping; nil where clients do not ping.
    package var clientPing: Frame? {
        guard let heartbeat = self.storage.layout.heartbeat, heartbeat.pingedBy != .server else { return nil }
        return Frame(type: heartbeat.type, serial: heartbeat.clientSerial)
    }

    /// The server's ping; nil where servers do not ping.
    package var serverPing: Frame? {
        guard let heartbeat = self.storage.layout.heartbeat, heartbeat.pingedBy != .client else { return nil }
        // If a ping's status means success on the wire, it is success here.
        let isOk = heartbeat.pingStatus.rawValue == self.storage.layout.okStatus
        return Frame(type: heartbeat.type, serial: heartbeat.serverSerial, status: isOk ? .ok : heartbeat.pingStatus)
    }

    /// Returns the frame that cancels the request with this serial at a server; nil if the format has no such frame.
    package func cancel(serial: UInt32) -> Frame? {
        self.storage.layout.cancel.map { Frame(type: $0.type, serial: serial) }
    }

    /// The largest payload that the length field of this direction can announce, in bytes.
    package func largestPayload(in direction: FrameDirection) -> Int {
        self.storage.isStandard ? Int(Int32.max) : self.plan(for: direction).largestPayload
    }

    /// Whether responses have a type. Where they do not, a response is of the type of its call.
    package var responsesHaveType: Bool { self.storage.response.hasType }

    /// Whether a damaged frame does not affect others, because reading continues after the next separator.
    package var resynchronises: Bool { self.storage.response.resynchronises }

    /// Whether responses carry a status. If they do not, every response counts as ``Status/ok``, and a server cannot
    /// answer with an error.
    package var hasStatus: Bool { self.storage.response.hasStatus }

    // MARK: Custom fields

    /// The names and widths, in bytes, of the custom fields of a header, in their order.
    package func customFieldWidths(in direction: FrameDirection) -> [(name: String, bytes: Int)] {
        self.plan(for: direction).customs.map { ($0.name, $0.width) }
    }

    /// The byte order of a request's length: that in which the command line writes numbers into custom fields, which
    /// are raw bytes.
    package var lengthOrder: ByteOrder {
        if case .integer(_, let order)? = self.layout.request.number(of: .length)?.kind { order } else { .big }
    }

    /// The length of ``Frame/customFields`` in bytes.
    package func customFieldLength(in direction: FrameDirection) -> Int { self.plan(for: direction).customLength }

    /// The bytes of a header's custom fields, one after another, as in ``Frame/customFields``. Fields that `values`
    /// does not name are taken from `base`, or zero.
    ///
    /// - Returns: Nil, which stands for zeros, if there is nothing to write.
    /// - Throws: ``SocketError`` with code `invalidArgument` if a name is not in the layout or a value is not as wide
    ///   as its field.
    package func customFields(
        _ values: [String: [UInt8]],
        over base: [UInt8]? = nil,
        in direction: FrameDirection = .request
    ) throws(SocketError) -> [UInt8]? {
        guard !values.isEmpty else { return base }
        return try self.plan(for: direction).customFields(values, over: base, format: self.storage.layout.name)
    }

    /// The values of a frame's custom fields by their names; empty where the format has none.
    public func header(of frame: Frame, in direction: FrameDirection = .response) -> [String: [UInt8]] {
        if self.storage.isStandard { return [:] }
        return self.plan(for: direction).values(of: frame.customFields)
    }

    package func header(
        of frame: borrowing ArrivedFrame,
        in direction: FrameDirection = .response
    ) -> [String: [UInt8]] {
        if self.storage.isStandard { return [:] }
        return self.plan(for: direction).values(of: frame.customFields)
    }

    package func isPush(_ frame: borrowing ArrivedFrame) -> Bool {
        frame.isMarkedAsPush || self.isPush(type: frame.type, serial: frame.serial)
    }

    /// The custom fields of the response to a request with these: those of the same name are repeated, the others are
    /// taken from `base`.
    package func responseFields(answering request: [UInt8]?, over base: [UInt8]? = nil) -> [UInt8]? {
        guard let request else { return base }
        return self.storage.response.customFields(echoing: request, of: self.storage.request, over: base)
    }
}
