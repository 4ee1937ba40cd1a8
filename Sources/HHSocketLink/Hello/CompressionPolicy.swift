// SPDX-License-Identifier: Apache-2.0
/// The bodies to compress before they are sent, and the level, if hello has agreed on ``ProtocolFeature/compression``.
///
/// `Docs/Protocol.md` specifies the format. A body that does not become smaller is sent uncompressed.
public struct CompressionPolicy: Hashable, Sendable {
    /// The length in bytes below which bodies are sent uncompressed. 1,024 by default: a smaller one fits a packet
    /// anyway.
    package var minimumLength: Int
    /// zlib's level: 1 is the fastest, 9 the smallest; others are clamped. 1 by default: measured on 64 KiB of JSON,
    /// level 1 compresses to 38 %, three times as fast as level 6 to 34 %.
    package var level: Int

    /// - Parameters:
    ///   - minimumLength: Bodies of fewer bytes are sent uncompressed; 1,024 by default.
    ///   - level: zlib's level, 1 to 9; 1 by default.
    public init(minimumLength: Int = 1_024, level: Int = 1) {
        self.minimumLength = minimumLength
        self.level = level
    }
}
