// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketFoundation
import NIOCore

/// A server's answer with status 200. Answers with another status are errors.
public struct SocketResponse: Sendable, Hashable {
    /// Properties that few callers read, behind one reference, which the answers of one connection share so that
    /// copying is cheap.
    final class Origin: Sendable, Hashable {
        let header: [String: [UInt8]]
        let endpoint: Endpoint
        let metadata: [String: String]
        /// The agreement between the two ends of the connection; only in an origin that the answers of a connection
        /// share. No part of an answer.
        let agreement: Agreement?

        init(
            header: [String: [UInt8]] = [:],
            endpoint: Endpoint,
            metadata: [String: String] = [:],
            agreement: Agreement? = nil
        ) {
            self.header = header
            self.endpoint = endpoint
            self.metadata = metadata
            self.agreement = agreement
        }

        static func == (one: Origin, other: Origin) -> Bool {
            one === other
                || (one.header == other.header && one.endpoint == other.endpoint && one.metadata == other.metadata)
        }

        func hash(into hasher: inout Hasher) {
            hasher.combine(self.header)
            hasher.combine(self.endpoint)
            hasher.combine(self.metadata)
        }
    }

    /// The request's type, as the server repeated it.
    public package(set) var type: UInt32
    /// The serial that joined the answer to its request.
    public package(set) var serial: UInt32
    public package(set) var status: Status
    /// The payload.
    public var body: ByteBuffer
    private(set) var origin: Origin

    /// The custom fields of the answer's header, by name; empty in formats that have none.
    public var header: [String: [UInt8]] {
        get { self.origin.header }
        set { self.origin = Origin(header: newValue, endpoint: self.endpoint, metadata: self.metadata) }
    }

    /// The metadata that the server sent with the body, by name; empty if it sent none, as without an agreement on
    /// ``/HHSocket/ProtocolFeature/metadata``.
    public var metadata: [String: String] {
        get { self.origin.metadata }
        set { self.origin = Origin(header: self.header, endpoint: self.endpoint, metadata: newValue) }
    }

    /// The server that answered.
    public var endpoint: Endpoint {
        get { self.origin.endpoint }
        set { self.origin = Origin(header: self.header, endpoint: newValue, metadata: self.metadata) }
    }

    init(_ frame: consuming ArrivedFrame, _ origin: Origin) {
        self.type = frame.type
        self.serial = frame.serial
        self.status = frame.status
        self.body = frame.takePayload().lend()
        self.origin = origin
    }

    init(_ header: FrameHeader, body: consuming ByteBuffer, origin: Origin) {
        self.type = header.type
        self.serial = header.serial
        self.status = header.status
        self.body = body
        self.origin = origin
    }

    /// Creates an answer that no server gave, such as an interceptor's.
    public init(
        type: UInt32,
        serial: UInt32 = 0,
        status: Status = .ok,
        body: ByteBuffer,
        header: [String: [UInt8]] = [:],
        metadata: [String: String] = [:],
        endpoint: Endpoint
    ) {
        self.type = type
        self.serial = serial
        self.status = status
        self.body = body
        self.origin = Origin(header: header, endpoint: endpoint, metadata: metadata)
    }

    /// The payload as `Data`.
    public var data: Data { Data(self.body.readableBytesView) }

    /// The payload as text; bytes that are not UTF-8 are replaced.
    public var string: String { String(buffer: self.body) }
}
