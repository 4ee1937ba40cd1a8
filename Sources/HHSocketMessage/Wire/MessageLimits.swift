/// What bounds messages.
@usableFromInline
enum MessageLimits {
    /// How deep messages may lie within messages, the outermost counted. The source is protobuf's own limit for C++ and Java.
    @usableFromInline static let depth = 100
    /// How long a message may be in bytes, exclusively: protobuf's own limit.
    static let length = 1 << 31
}
