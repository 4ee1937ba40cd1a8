// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The direction of a frame; the two directions have different headers.
public enum FrameDirection: Sendable, Hashable {
    /// Client to server; in the standard format `type serial length`, 12 bytes.
    case request
    /// Server to client; in the standard format `type serial status length`, 16 bytes.
    case response

    /// The length in bytes of the standard format's header.
    @inlinable
    package var headerLength: Int {
        switch self {
        case .request: 12
        case .response: 16
        }
    }
}

/// One message on the wire.
///
/// In the standard format all words are unsigned 32-bit big-endian, and the header is followed by `length` bytes of
/// payload and the payload's adler32 (RFC 1950, so an empty payload's is 1). A ``WireFormat`` describes the layout in
/// other formats.
public struct Frame: Sendable, Hashable {
    /// A payload, together with custom fields if there are any. Not two properties: every copy of a frame would pay for
    /// a reference that frames of the standard format do not have.
    @usableFromInline
    enum Content: Sendable, Hashable {
        case payload(ByteBuffer)
        indirect case payloadAndFields(ByteBuffer, [UInt8])
    }

    /// The kind of the frame: the number of a call or push, or of a frame of the connection itself, in the standard
    /// format below 16.
    public var type: UInt32
    /// Joins a response to its request.
    public var serial: UInt32
    /// The verdict of a response. Where the wire has none, as in requests of the standard format, it is ``Status/ok``.
    public var status: Status
    /// Whether a flag in the header marks a push, in formats with such a flag. (It fits into padding.)
    @usableFromInline package var isMarkedAsPush = false
    @usableFromInline var content: Content

    public var payload: ByteBuffer {
        @inlinable
        get {
            switch self.content {
            case .payload(let payload), .payloadAndFields(let payload, _): payload
            }
        }
        @inlinable
        set {
            switch self.content {
            case .payload: self.content = .payload(newValue)
            case .payloadAndFields(_, let fields): self.content = .payloadAndFields(newValue, fields)
            }
        }
    }

    /// Moves the payload out of a frame that is no longer needed.
    consuming func takePayload() -> ByteBuffer {
        switch self.content {
        case .payload(let payload), .payloadAndFields(let payload, _): payload
        }
    }

    /// The bytes of the header's custom fields, one after another; ``WireFormat/header(of:in:)`` reads them. Nil in
    /// formats that have none; when such a frame is sent in one that has some, they are the sender's default, or zero.
    public var customFields: [UInt8]? {
        @inlinable
        get {
            if case .payloadAndFields(_, let fields) = self.content { fields } else { nil }
        }
        @inlinable
        set {
            self.content = newValue.map { .payloadAndFields(self.payload, $0) } ?? .payload(self.payload)
        }
    }

    @inlinable
    public init(
        type: UInt32,
        serial: UInt32,
        status: Status = .ok,
        payload: ByteBuffer = ByteBuffer(),
        customFields: [UInt8]? = nil
    ) {
        self.type = type
        self.serial = serial
        self.status = status
        if let customFields {
            self.content = .payloadAndFields(payload, customFields)
        } else {
            self.content = .payload(payload)
        }
    }

    @inlinable
    package init(_ header: FrameHeader, _ payload: ByteBuffer) {
        self.init(type: header.type, serial: header.serial, status: header.status, payload: payload)
    }

    /// The length in bytes of the standard format's checksum.
    @usableFromInline package static let trailerLength = 4
    /// The largest payload that is sent as a whole, gathered with others in one buffer, in bytes. Larger ones are sent
    /// in slices of this length without a copy.
    package static let unslicedLength = 64 << 10
    /// The largest payload accepted by default, in bytes: 16 MiB.
    @usableFromInline package static let defaultMaximumPayloadLength = 16 << 20
}

extension Frame: CustomStringConvertible {
    public var description: String {
        "frame type \(self.type) serial \(self.serial) status \(self.status) \(self.payload.readableBytes) B"
    }
}
