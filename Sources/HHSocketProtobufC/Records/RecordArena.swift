// SPDX-License-Identifier: Apache-2.0
/// An arena for the records of one message with their strings and arrays: allocated piece by piece, freed all at once.
///
/// The first block is on the stack, so that most messages require no heap allocation.
struct RecordArena {
    /// The length of the block on the stack, in bytes. Swift allocates larger ones on the heap.
    private static let firstBlock = 1 << 10

    /// The length to which further blocks grow, in bytes. It bounds the memory that is allocated and not used.
    private static let largestBlock = 256 << 10

    private struct State {
        var next: UnsafeMutableRawPointer
        var end: UnsafeMutableRawPointer
        /// The newest heap block; each begins with a pointer to the one before.
        var newest: UnsafeMutableRawPointer?
        var blockLength: Int
        /// The total length of the heap blocks, in bytes.
        var held = 0

        init(next: UnsafeMutableRawPointer, end: UnsafeMutableRawPointer) {
            self.next = next
            self.end = end
            self.newest = nil
            self.blockLength = RecordArena.firstBlock
        }
    }

    private let state: UnsafeMutablePointer<State>

    private init(_ state: UnsafeMutablePointer<State>) {
        self.state = state
    }

    /// Calls `body` with an arena, which is freed when `body` returns.
    static func with<Value>(_ body: (RecordArena) -> Value) -> Value {
        withUnsafeTemporaryAllocation(byteCount: Self.firstBlock, alignment: 16) { block in
            // It is not empty, so it has an address.
            let start = block.baseAddress.unsafelyUnwrapped
            var state = State(next: start, end: start + Self.firstBlock)
            return withUnsafeMutablePointer(to: &state) { state in
                let arena = RecordArena(state)
                defer { if state.pointee.newest != nil { arena.freeBlocks() } }
                return body(arena)
            }
        }
    }

    /// Allocates uninitialised memory, aligned for anything that records hold.
    func take(_ length: Int) -> UnsafeMutableRawPointer {
        let rounded = (length + 7) & ~7
        let start = self.state.pointee.next
        guard self.state.pointee.end - start >= rounded else { return self.takeFromAnother(rounded) }
        self.state.pointee.next = start + rounded
        return start
    }

    /// Allocates zeroed memory.
    func takeZeroed(_ length: Int) -> UnsafeMutableRawPointer {
        let memory = self.take(length)
        memory.initializeMemory(as: UInt8.self, repeating: 0, count: length)
        return memory
    }

    private func takeFromAnother(_ length: Int) -> UnsafeMutableRawPointer {
        // Doubled, so that few blocks suffice for a large message; a piece that is larger still gets its own block.
        let header = 16
        self.state.pointee.blockLength = min(self.state.pointee.blockLength * 2, Self.largestBlock)
        let blockLength = max(self.state.pointee.blockLength, length + header)
        let block = UnsafeMutableRawPointer.allocate(byteCount: blockLength, alignment: 16)
        block.storeBytes(of: self.state.pointee.newest, as: UnsafeMutableRawPointer?.self)
        self.state.pointee.newest = block
        self.state.pointee.held += blockLength
        // The rest of the current block may be larger than that of a block made for one large piece.
        let left = self.state.pointee.end - self.state.pointee.next
        if blockLength - header - length >= left {
            self.state.pointee.next = block + header + length
            self.state.pointee.end = block + blockLength
        }
        return block + header
    }

    /// The total length of the blocks on the heap, in bytes.
    var held: Int { self.state.pointee.held }

    private func freeBlocks() {
        while let block = self.state.pointee.newest {
            self.state.pointee.newest = block.load(as: UnsafeMutableRawPointer?.self)
            block.deallocate()
        }
    }

    /// Copies bytes into the arena.
    func copy(_ bytes: UnsafeRawBufferPointer) -> RecordBytes {
        guard let source = bytes.baseAddress, bytes.count > 0 else { return RecordBytes(count: 0, start: nil) }
        let start = self.take(bytes.count)
        start.copyMemory(from: source, byteCount: bytes.count)
        return RecordBytes(count: bytes.count, start: start)
    }
}
