// SPDX-License-Identifier: Apache-2.0
import CProtobufC
import HHSocketMessage
import HHSocketSystem

/// A structure that libprotobuf-c has decoded, with all memory that it allocated for it.
final class UnpackedStructure<Structure: ProtobufCStructure>: @unchecked Sendable {
    // Proof of Sendable: the structure is not changed after the initialiser.

    private let message: UnsafeMutablePointer<ProtobufCMessage>

    /// - Throws: ``/HHSocketMessage/MessageError`` if the bytes are not such a message, or it exceeds the limits.
    init(_ bytes: UnsafeRawBufferPointer, _ limits: MessageLimits) throws(MessageError) {
        let descriptor = Structure.descriptor
        try StructureScan(depth: limits.depth).check(bytes, descriptor)
        let limit = limits.memory(forLength: bytes.count)
        var budget = Budget(left: limit)
        let message = withUnsafeMutablePointer(to: &budget) { budget in
            var allocator = ProtobufCAllocator(
                alloc: { budget, length in
                    guard let budget = budget?.assumingMemoryBound(to: Budget.self) else { return nil }
                    // With the header of an allocation.
                    budget.pointee.left -= length + 16
                    return budget.pointee.left < 0 ? nil : malloc(length)
                },
                free: { _, memory in free(memory) },
                allocator_data: UnsafeMutableRawPointer(budget)
            )
            let data = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
            return protobuf_c_message_unpack(descriptor, &allocator, bytes.count, data)
        }
        guard let message else {
            let reason: MessageError.Reason = budget.left < 0 ? .needsTooMuchMemory(limit: limit) : .refusedByLibrary
            throw MessageError(reason, in: String(cString: descriptor.pointee.name))
        }
        self.message = message
    }

    // Nil stands for the allocator of C.
    deinit { protobuf_c_message_free_unpacked(self.message, nil) }

    func withPointer<Result, Failure: Error>(
        _ body: (UnsafePointer<Structure>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(UnsafeRawPointer(self.message).assumingMemoryBound(to: Structure.self))
    }
}

/// The number of bytes that may still be allocated.
private struct Budget {
    var left: Int
}
