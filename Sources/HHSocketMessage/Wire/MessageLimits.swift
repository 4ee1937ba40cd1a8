/// The limits of messages.
@usableFromInline
enum MessageLimits {
    /// The maximum nesting depth of messages, including the outermost; entries of maps whose values are not messages do
    /// not count. The source is swift-protobuf's limit. C++ and Java allow one more: they do not count the outermost.
    @usableFromInline static let depth = 100
    /// The maximum length of a message, in bytes: protobuf's own limit, less than 2 GiB, which fits in 32 bits.
    static let length = Int(Int32.max)

    /// The maximum memory, in bytes, for the records of a message of this encoded length: eight times the length plus
    /// 32 MiB, which allows for lists of sparse messages. Two bytes can require a record of many hundreds.
    static func memory(forLength length: Int) -> Int { Int(clamping: (32 << 20) + 8 * Int64(length)) }
}
