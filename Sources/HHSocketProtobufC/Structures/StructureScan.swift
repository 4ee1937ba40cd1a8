// SPDX-License-Identifier: Apache-2.0
import CProtobufC
import HHSocketMessage

/// Checks bytes before libprotobuf-c decodes them into a structure: it recurses without a limit, and accepts any
/// bytes as text.
struct StructureScan {
    /// The maximum number of levels of messages.
    let depth: Int

    func check(
        _ bytes: UnsafeRawBufferPointer,
        _ descriptor: UnsafePointer<ProtobufCMessageDescriptor>
    ) throws(MessageError) {
        guard bytes.count <= MessageLimits.length else {
            throw MessageError(.tooLarge, in: String(cString: descriptor.pointee.name))
        }
        var reader = WireReader(bytes)
        try self.check(&reader, descriptor, depth: 1)
    }

    private func check(
        _ reader: inout WireReader,
        _ descriptor: UnsafePointer<ProtobufCMessageDescriptor>,
        depth: Int
    ) throws(MessageError) {
        while !reader.isAtEnd {
            var inner: (reader: WireReader, descriptor: UnsafePointer<ProtobufCMessageDescriptor>)?
            do throws(WireFailure) {
                inner = try self.checkField(&reader, descriptor)
            } catch {
                throw MessageError(error.reason, in: String(cString: descriptor.pointee.name), at: error.offset)
            }
            guard var inner else { continue }
            guard depth < self.depth else {
                throw MessageError(
                    .tooDeep(limit: self.depth),
                    in: String(cString: descriptor.pointee.name)
                )
            }
            try self.check(&inner.reader, inner.descriptor, depth: depth + 1)
        }
    }

    /// Checks one field. Returns a reader of the message in it, if there is one.
    private func checkField(
        _ reader: inout WireReader,
        _ descriptor: UnsafePointer<ProtobufCMessageDescriptor>
    ) throws(WireFailure) -> (WireReader, UnsafePointer<ProtobufCMessageDescriptor>)? {
        let (number, type) = try reader.tag()
        guard type == .lengthDelimited, let field = Self.field(number, descriptor) else {
            try reader.skip(type)
            return nil
        }
        let value = try reader.delimited()
        switch field.pointee.type {
        case PROTOBUF_C_TYPE_MESSAGE:
            let inner = field.pointee.descriptor?.assumingMemoryBound(to: ProtobufCMessageDescriptor.self)
            return inner.map { (value, $0) }
        case PROTOBUF_C_TYPE_STRING:
            guard value.isText else {
                throw value.failure(.invalidUTF8(field: String(cString: field.pointee.name)))
            }
            return nil
        default: return nil
        }
    }

    /// Returns the field with this number.
    private static func field(
        _ number: UInt32,
        _ descriptor: UnsafePointer<ProtobufCMessageDescriptor>
    ) -> UnsafePointer<ProtobufCFieldDescriptor>? {
        guard let fields = descriptor.pointee.fields else { return nil }
        var (low, high) = (0, Int(descriptor.pointee.n_fields))
        while low < high {
            let middle = (low + high) / 2
            if fields[middle].id < number { low = middle + 1 } else { high = middle }
        }
        return low < descriptor.pointee.n_fields && fields[low].id == number ? fields + low : nil
    }
}
