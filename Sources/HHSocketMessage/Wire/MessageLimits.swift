/// What bounds messages.
@usableFromInline
enum MessageLimits {
    /// How deep messages may lie within messages, the outermost counted; entries of maps to what is no message are not.
    /// The source is swift-protobuf's limit. That of C++ and Java is one more: they do not count the outermost.
    @usableFromInline static let depth = 100
    /// The length of the longest message in bytes: protobuf's own limit, less than 2 GiB, which fits in 32 bits.
    static let length = Int(Int32.max)

    /// How much memory reading a message of this length may take for its records, in bytes: 32 MiB, so that lists of
    /// messages that hold little of what they could are read, and eight times the length. Two bytes can ask for a
    /// record of many hundreds.
    static func memory(forLength length: Int) -> Int { Int(clamping: (32 << 20) + 8 * Int64(length)) }
}
