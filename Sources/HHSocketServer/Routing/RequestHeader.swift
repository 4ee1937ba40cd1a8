// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
public import NIOCore

/// The part of a request that is known before its body is read.
public struct RequestHeader: Sendable {
    /// The RPC's name.
    public let type: UInt32
    /// The number that joins the answer to the request; unique among those in flight on one connection.
    public let serial: UInt32
    /// The length of the body as it has arrived, in bytes. A compressed one becomes longer.
    public let length: Int
    /// Whether the body is compressed.
    package let isCompressed: Bool
    /// The custom fields of the request's header, by name; empty in formats that have none.
    public let fields: [String: [UInt8]]
    /// Whether a handler has the type.
    public let hasHandler: Bool
    private let extras: ServerContext.Extras?

    /// The client's metadata, by lower-case name; empty where hello did not agree on metadata.
    public var metadata: [String: String] { self.extras?.metadata ?? [:] }
    /// The time after which the answer is of no use to the client, by this machine's clock; nil if the client set none.
    public var deadline: NIODeadline? { self.extras?.deadline }
    /// The client's name for the request, by which a repeat of it is recognised; nil where it has none.
    public var idempotencyKey: String? { self.extras?.idempotencyKey }

    init(
        type: UInt32,
        serial: UInt32,
        length: Int,
        isCompressed: Bool = false,
        fields: [String: [UInt8]] = [:],
        hasHandler: Bool,
        extras: ServerContext.Extras? = nil
    ) {
        self.type = type
        self.serial = serial
        self.length = length
        self.isCompressed = isCompressed
        self.fields = fields
        self.hasHandler = hasHandler
        self.extras = extras
    }
}
