/// Which bodies are compressed before they are sent, and how hard, where hello has agreed on
/// ``ProtocolFeature/compression``.
///
/// What is compressed, and by which format, `Docs/Protocol.md` says. A body that does not become smaller is sent as it
/// is.
public struct CompressionPolicy: Hashable, Sendable {
    /// Bodies of fewer bytes are sent as they are. 1,024 by default: a smaller one fits a packet anyway.
    public var minimumLength: Int
    /// zlib's level: 1 is the fastest, 9 the smallest; others count as the nearest of these. 1 by default: of 64 KiB of
    /// JSON it was measured to make 38 % three times as fast as level 6 makes 34 %.
    public var level: Int

    /// - Parameters:
    ///   - minimumLength: Bodies of fewer bytes are sent as they are; 1,024 by default.
    ///   - level: zlib's level, 1 to 9; 1 by default.
    public init(minimumLength: Int = 1_024, level: Int = 1) {
        self.minimumLength = minimumLength
        self.level = level
    }
}
