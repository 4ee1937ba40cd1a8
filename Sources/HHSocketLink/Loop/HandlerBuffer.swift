// SPDX-License-Identifier: Apache-2.0
/// Handlers of any types that wait for their turn's end, first in, first out, in memory that is used again.
///
/// A handler is moved in and moved out, so that waiting counts no references: an array of closures allocates for each
/// and an array of enumerations copies them.
@usableFromInline
package struct HandlerBuffer: ~Copyable {
    /// The header before each handler.
    @usableFromInline
    struct Header {
        /// The type of the handler.
        @usableFromInline let type: any TurnHandler.Type
        /// The distance to the next header, in bytes.
        @usableFromInline let stride: Int

        @inlinable
        init(type: any TurnHandler.Type, stride: Int) {
            self.type = type
            self.stride = stride
        }
    }

    /// No handler is aligned to more.
    @usableFromInline static var alignment: Int { 16 }
    /// The largest buffer that is kept: 1 MiB.
    private static var largestKept: Int { 1 << 20 }

    @usableFromInline var memory: UnsafeMutableRawPointer?
    @usableFromInline var capacity = 0
    @usableFromInline var start = 0
    @usableFromInline var end = 0

    package init() {}

    deinit {
        // The owner has run all handlers.
        self.memory?.deallocate()
    }

    @inlinable package var isEmpty: Bool { self.start == self.end }

    @inlinable
    static func roundedUp(_ count: Int) -> Int { (count + (Self.alignment - 1)) & ~(Self.alignment - 1) }

    @inlinable
    package mutating func append<Handler: TurnHandler>(_ handler: consuming Handler) {
        assert(MemoryLayout<Handler>.alignment <= Self.alignment)
        let offset = Self.roundedUp(MemoryLayout<Header>.size)
        let stride = offset + Self.roundedUp(MemoryLayout<Handler>.size)
        if self.capacity - self.end < stride { self.grow(by: stride) }
        guard let pointer = self.memory?.advanced(by: self.end) else { return }
        pointer.initializeMemory(as: Header.self, to: Header(type: Handler.self, stride: stride))
        (pointer + offset).initializeMemory(as: Handler.self, to: handler)
        self.end += stride
    }

    @usableFromInline
    mutating func grow(by stride: Int) {
        let capacity = max(4_096, self.capacity * 2, self.end + stride)
        let memory = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: Self.alignment)
        // Swift's values may be moved byte by byte.
        if let old = self.memory {
            memory.copyMemory(from: old, byteCount: self.end)
            old.deallocate()
        }
        self.memory = memory
        self.capacity = capacity
    }

    /// A handler that was removed from the queue, but is still in its memory: nothing may be appended before it runs.
    struct First {
        fileprivate let type: any TurnHandler.Type
        fileprivate let pointer: UnsafeMutableRawPointer

        func run() { self.type.run(at: self.pointer) }
    }

    /// The first handler, which the caller runs at once. Not run here, since it may append others.
    mutating func takeFirst() -> First? {
        guard self.start < self.end, let pointer = self.memory?.advanced(by: self.start) else {
            self.reset()
            return nil
        }
        let header = pointer.assumingMemoryBound(to: Header.self).pointee
        self.start += header.stride
        return First(type: header.type, pointer: pointer + Self.roundedUp(MemoryLayout<Header>.size))
    }

    private mutating func reset() {
        self.start = 0
        self.end = 0
        guard self.capacity > Self.largestKept else { return }
        self.memory?.deallocate()
        self.memory = nil
        self.capacity = 0
    }
}
