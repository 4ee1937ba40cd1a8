/// The layout of the frames of a connection: the standard one, or that of a server which has its own.
///
/// A format is a value made from a ``Layout``, which is data: in Swift, or read from JSON. A layout that cannot work is
/// refused when the format is made, so that a format that exists can encode and decode.
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
/// Whichever the format is, an integer in it is unsigned and 32 bits wide, and a frame is a header, a payload, the
/// checksum if there is one, and the tail if there is one.
public struct WireFormat: Sendable, Hashable, CustomStringConvertible {
    /// Values that are computed once, so that a format costs one reference.
    @usableFromInline
    final class Storage: Sendable {
        let layout: Layout
        @usableFromInline let isStandard: Bool
        let request: HeaderPlan
        let response: HeaderPlan
        // What every frame is asked, as plain numbers. One beyond 32 bits is no frame's.
        let applicationTypes: ClosedRange<UInt64>
        let heartbeatType: UInt64
        let cancelType: UInt64
        let pushSerial: UInt64

        init(_ layout: Layout) {
            self.layout = layout
            let types = layout.applicationTypes
            self.applicationTypes = UInt64(types.lowerBound)...UInt64(types.upperBound)
            self.heartbeatType = layout.heartbeat.map { UInt64($0.type) } ?? .max
            self.cancelType = layout.cancel.map { UInt64($0.type) } ?? .max
            self.pushSerial = layout.push.map { UInt64($0.serial) } ?? .max
            self.isStandard = layout.matches(.standard)
            self.request = HeaderPlan(layout, .request)
            self.response = HeaderPlan(layout, .response)
        }
    }

    @usableFromInline let storage: Storage

    /// - Throws: ``WireFormatError``, which names the rule that `layout` breaks.
    public init(_ layout: Layout) throws(WireFormatError) {
        try layout.validate()
        self.storage = Storage(layout)
    }

    /// A layout that is known to break no rule; the tests see to that.
    init(known layout: Layout) {
        self.storage = Storage(layout)
    }

    /// The layout that the format was made from.
    public var layout: Layout { self.storage.layout }

    /// The layout's name.
    public var description: String { self.layout.name }

    public static func == (one: WireFormat, other: WireFormat) -> Bool {
        one.storage === other.storage || one.layout == other.layout
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(self.layout)
    }

    func plan(for direction: FrameDirection) -> HeaderPlan {
        switch direction {
        case .request: self.storage.request
        case .response: self.storage.response
        }
    }

    /// The plan of a format that needs one: the standard format is decoded by code of its own.
    func specialPlan(for direction: FrameDirection) -> HeaderPlan? {
        self.storage.isStandard ? nil : self.plan(for: direction)
    }

    // MARK: What a frame is

    /// Whether calls and pushes may have this type: it is in ``Layout/applicationTypes``, and neither a heartbeat's nor
    /// a cancel's.
    public func isApplicationType(_ type: UInt32) -> Bool {
        let type = UInt64(type)
        return self.storage.applicationTypes.contains(type) && type != self.storage.heartbeatType
            && type != self.storage.cancelType
    }

    /// Whether a frame of this type belongs to the connection and not to a call: a heartbeat, a cancel, or a type below
    /// those of applications.
    public func isControlType(_ type: UInt32) -> Bool {
        let type = UInt64(type)
        return type < self.storage.applicationTypes.lowerBound || type == self.storage.heartbeatType
            || type == self.storage.cancelType
    }

    /// Whether a response with this serial is a push.
    public func isPush(serial: UInt32) -> Bool { UInt64(serial) == self.storage.pushSerial }

    /// Whether a client answers this frame with a heartbeat of the same serial.
    package func isServerPing(_ frame: Frame) -> Bool {
        guard let heartbeat = self.storage.layout.heartbeat, frame.type == heartbeat.type,
            heartbeat.serials?.contains(frame.serial) ?? !self.storage.layout.requestSerials.contains(frame.serial)
        else { return false }
        switch heartbeat.pingedBy {
        case .client: return false
        case .server: return true
        case .both: return frame.status == heartbeat.pingStatus
        }
    }

    /// Whether this frame of a server's is a go-away: it is about to end. Only formats that keep the types up to 15 for
    /// control frames have it.
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
        // Where a ping's status means success on the wire, it is success here.
        let isOk = heartbeat.pingStatus.rawValue == self.storage.layout.okStatus
        return Frame(type: heartbeat.type, serial: heartbeat.serverSerial, status: isOk ? .ok : heartbeat.pingStatus)
    }

    /// Returns the frame that tells a server to stop working on the request with this serial; nil where the format has
    /// no such frame.
    package func cancel(serial: UInt32) -> Frame? {
        self.storage.layout.cancel.map { Frame(type: $0.type, serial: serial) }
    }

    /// Whether responses carry a status. Where they do not, every response is taken for ``Status/ok``, and a server
    /// cannot answer with an error.
    public var hasStatus: Bool { self.storage.response.hasStatus }

    // MARK: Custom fields

    /// The names and widths, in bytes, of the custom fields of a header, in their order.
    package func customFieldWidths(in direction: FrameDirection) -> [(name: String, bytes: Int)] {
        self.plan(for: direction).customs.map { ($0.name, $0.width) }
    }

    /// The byte order of a request's length: that in which the command line writes numbers into custom fields, which
    /// are raw bytes.
    package var lengthOrder: ByteOrder {
        for field in self.layout.request {
            if case .word(.length, let order) = field.kind { return order }
        }
        return .big
    }

    /// The length of ``Frame/customFields`` in bytes.
    package func customFieldLength(in direction: FrameDirection) -> Int { self.plan(for: direction).customLength }

    /// The bytes of a header's custom fields, one after another, as ``Frame/customFields`` wants them. Fields that
    /// `values` does not name are as in `base`, or zero.
    ///
    /// - Returns: Nil, which stands for zeros, if there is nothing to write.
    /// - Throws: ``SocketError`` with code `invalidArgument` when a name is not in the layout or a value is not as wide
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

    /// The custom fields of the response to a request with these: those of the same name are repeated, the others are
    /// as in `base`.
    package func responseFields(answering request: [UInt8]?, over base: [UInt8]? = nil) -> [UInt8]? {
        guard let request else { return base }
        return self.storage.response.customFields(echoing: request, of: self.storage.request, over: base)
    }
}
