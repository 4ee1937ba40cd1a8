// SPDX-License-Identifier: Apache-2.0
/// A feature that both ends may agree on by hello, identified by its name there.
public struct ProtocolFeature: Hashable, Sendable, CustomStringConvertible {
    /// The name in hello.
    package let rawValue: String

    package init(rawValue: String) {
        self.rawValue = rawValue
    }

    /// Frames may carry metadata before their body, and with it a deadline.
    public static let metadata = ProtocolFeature(rawValue: "metadata")
    /// Bodies may be compressed, with zlib's format (RFC 1950).
    public static let compression = ProtocolFeature(rawValue: "compression")
    /// A request may have a key, and the server answers a repeat of it with the first answer.
    public static let idempotency = ProtocolFeature(rawValue: "idempotency")
    /// Calls may be streams, with flow control, and large payloads may be sent in pieces.
    public static let streams = ProtocolFeature(rawValue: "streams")

    public var description: String { self.rawValue }
}
