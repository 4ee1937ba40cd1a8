// SPDX-License-Identifier: Apache-2.0
/// The limits of decoding a message, since its bytes may come from an untrusted peer.
public struct MessageLimits: Hashable, Sendable {
    /// The default limits.
    @inlinable
    public static var standard: Self { Self() }

    /// The maximum nesting depth of messages, including the outermost; 100 by default. Entries of maps whose values are
    /// not messages do not count. The default is that of swift-protobuf. C++ and Java allow one more: they do not
    /// count the outermost.
    ///
    /// Each level takes some hundred bytes of the stack.
    public var depth: Int
    /// The number of bytes that decoding may allocate for every message, however short; 32 MiB by default. It may
    /// allocate 8 more for each byte of the message.
    ///
    /// The elements of arrays and maps, messages that are stored separately from enclosing ones, strings that are not
    /// short, bytes and unknown fields are counted. An array that grows may briefly take twice as much.
    public var memory: Int
    /// The number of bytes that decoding may allocate for each byte of the message, beside ``memory``; 8 by default.
    @usableFromInline package var memoryPerByte: Int

    /// The maximum length of a message, in bytes: protobuf's own limit, less than 2 GiB, which fits in 32 bits.
    @inlinable
    package static var length: Int { Int(Int32.max) }
    /// The maximum nesting depth of messages that are encoded.
    @inlinable
    static var encodedDepth: Int { 100 }

    @inlinable
    public init(depth: Int = 100, memory: Int = 32 << 20) {
        self.depth = depth
        self.memory = memory
        self.memoryPerByte = 8
    }

    package init(depth: Int = 100, memory: Int = 32 << 20, memoryPerByte: Int) {
        self.depth = depth
        self.memory = memory
        self.memoryPerByte = memoryPerByte
    }

    /// The number of bytes that decoding a message of this length may allocate.
    @inlinable
    package func memory(forLength length: Int) -> Int {
        let (product, overflows) = length.multipliedReportingOverflow(by: self.memoryPerByte)
        return overflows ? .max : product.addingReportingOverflow(self.memory).overflow ? .max : product + self.memory
    }
}
