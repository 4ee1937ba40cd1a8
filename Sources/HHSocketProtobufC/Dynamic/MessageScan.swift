// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// Checks bytes before they are passed to libprotobuf-c, which recurses without a limit, accepts any bytes as text,
/// refuses groups and other wire types than declared, does not merge all messages, and does not know closed
/// enumerations.
struct MessageScan {
    private let depth: Int

    /// - Parameter depth: The maximum number of levels of messages.
    init(depth: Int) {
        self.depth = depth
    }

    /// Whether libprotobuf-c may decode the bytes. If not, they are malformed, or contain a feature that it does not
    /// support.
    func isPlain(_ bytes: UnsafeRawBufferPointer, _ plan: UnsafePointer<MessagePlan>) -> Bool {
        guard bytes.count <= MessageLimits.length else { return false }
        var reader = WireReader(bytes)
        return self.isPlain(&reader, plan, depth: 1)
    }

    private func isPlain(_ reader: inout WireReader, _ plan: UnsafePointer<MessagePlan>, depth: Int) -> Bool {
        // The singular message fields that have occurred.
        var seen: UInt64 = 0
        while !reader.isAtEnd {
            guard let (number, type) = try? reader.tag() else { return false }
            guard let index = plan.pointee.index(of: number) else {
                guard (try? reader.skip(type)) != nil else { return false }
                continue
            }
            let field = plan.pointee.fields + index
            let kind = field.pointee.kind
            if type == kind.wireType {
                guard type == .lengthDelimited else {
                    guard Self.isPlainNumber(&reader, type: type, plan: plan, field: index) else { return false }
                    continue
                }
                guard var inner = try? reader.delimited() else { return false }
                guard kind == .message else {
                    guard kind != .string || inner.isText else { return false }
                    continue
                }
                if !field.pointee.isRepeated {
                    // Only the first 64 such fields can be tracked.
                    guard field.pointee.ordinal < 64 else { return false }
                    let bit: UInt64 = 1 << UInt64(field.pointee.ordinal)
                    // Messages that occur again must be merged.
                    guard seen & bit == 0 else { return false }
                    seen |= bit
                }
                guard let message = field.pointee.message else { return false }
                let isLevel = !message.pointee.isEntryOfValues
                guard depth < self.depth || !isLevel,
                    self.isPlain(&inner, message, depth: isLevel ? depth + 1 : depth)
                else { return false }
            } else {
                guard type == .lengthDelimited, field.pointee.isRepeated, kind.isPackable,
                    var packed = try? reader.delimited()
                else { return false }
                while !packed.isAtEnd {
                    guard Self.isPlainNumber(&packed, type: kind.wireType, plan: plan, field: index) else {
                        return false
                    }
                }
            }
        }
        return true
    }

    private static func isPlainNumber(
        _ reader: inout WireReader,
        type: WireType,
        plan: UnsafePointer<MessagePlan>,
        field index: Int
    ) -> Bool {
        guard plan.pointee.fields[index].isClosed else { return (try? reader.skip(type)) != nil }
        guard let number = try? reader.varint() else { return false }
        return plan.pointee.knows(UInt32(truncatingIfNeeded: number), field: index)
    }
}
