// SPDX-License-Identifier: Apache-2.0
/// A feature that both ends may agree on by hello; the raw value is its name there. Cases may be added; have a default
/// when you switch over it.
public enum ProtocolFeature: String, Hashable, Sendable {
    /// Frames may carry metadata before their body, and with it a deadline.
    case metadata
    /// Bodies may be compressed, with zlib's format (RFC 1950).
    case compression
    /// A request may have a key, and the server answers a repeat of it with the first answer.
    case idempotency
    /// Calls may be streams, with flow control, and large payloads may be sent in pieces.
    case streams
}
