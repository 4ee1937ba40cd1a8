// SPDX-License-Identifier: Apache-2.0
import CProtobufC
import HHSocketMessage

/// The tables that describe a message to protobuf-c, as its own generator would write them in C.
struct ProtobufCDescriptor {
    /// An empty name for everything: protobuf-c uses names only to look up fields by name.
    // Proof that this is safe: it is never written after its initialisation.
    private nonisolated(unsafe) static let noName: UnsafePointer<CChar> = {
        let name = UnsafeMutablePointer<CChar>.allocate(capacity: 1)
        name.initialize(to: 0)
        return UnsafePointer(name)
    }()

    private let descriptor: UnsafeMutablePointer<ProtobufCMessageDescriptor>
    private let fields: UnsafeMutablePointer<ProtobufCFieldDescriptor>

    var memory: UnsafeMutableRawPointer { UnsafeMutableRawPointer(self.descriptor) }

    /// - Parameter plans: The fields, in ascending order of their numbers.
    init(_ plans: UnsafePointer<FieldPlan>, count: Int, recordLength: Int) {
        self.descriptor = .allocate(capacity: 1)
        self.fields = .allocate(capacity: max(1, count))
        for index in 0..<count {
            (self.fields + index).initialize(to: Self.field(plans[index]))
        }
        // Runs of numbers without a gap, and a terminator where the last run ends.
        var ranges: [ProtobufCIntRange] = []
        for index in 0..<count where index == 0 || plans[index].number != plans[index - 1].number + 1 {
            ranges.append(ProtobufCIntRange(start_value: Int32(plans[index].number), orig_index: UInt32(index)))
        }
        let runs = ranges.count
        ranges.append(ProtobufCIntRange(start_value: 0, orig_index: UInt32(count)))
        let memory = UnsafeMutablePointer<ProtobufCIntRange>.allocate(capacity: ranges.count)
        memory.initialize(from: ranges, count: ranges.count)

        self.descriptor.initialize(
            to: ProtobufCMessageDescriptor(
                magic: UInt32(PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC),
                name: Self.noName,
                short_name: Self.noName,
                c_name: Self.noName,
                package_name: Self.noName,
                sizeof_message: recordLength,
                n_fields: UInt32(count),
                // NULL if there are none, like protoc-gen-c: protobuf-c compares the first tag with the first field
                // unless this is NULL, whatever `n_fields` is.
                fields: count == 0 ? nil : self.fields,
                fields_sorted_by_name: nil,
                n_field_ranges: UInt32(runs),
                field_ranges: memory,
                message_init: nil,
                reserved1: nil,
                reserved2: nil,
                reserved3: nil
            )
        )
    }

    func deallocate() {
        self.descriptor.pointee.field_ranges.deallocate()
        self.fields.deallocate()
        self.descriptor.deallocate()
    }

    /// Sets the descriptor of a field's messages.
    func link(_ field: Int, to message: ProtobufCDescriptor) {
        self.fields[field].descriptor = UnsafeRawPointer(message.descriptor)
    }

    private static func field(_ plan: FieldPlan) -> ProtobufCFieldDescriptor {
        var field = ProtobufCFieldDescriptor()
        field.name = Self.noName
        field.id = plan.number
        // Strings are declared as bytes, whose encoding is the same, so that a NUL in a string survives.
        field.type = ProtobufCType(rawValue: UInt32((plan.kind == .string ? FieldKind.bytes : plan.kind).rawValue))
        field.quantifier_offset = UInt32(plan.quantifier)
        field.offset = UInt32(plan.value)
        switch plan.shape {
        case .singular:
            field.label = PROTOBUF_C_LABEL_OPTIONAL
        case .required:
            field.label = PROTOBUF_C_LABEL_REQUIRED
        case .repeated:
            field.label = PROTOBUF_C_LABEL_REPEATED
        case .packed:
            field.label = PROTOBUF_C_LABEL_REPEATED
            field.flags = PROTOBUF_C_FIELD_FLAG_PACKED.rawValue
        case .oneof:
            field.label = PROTOBUF_C_LABEL_OPTIONAL
            field.flags = PROTOBUF_C_FIELD_FLAG_ONEOF.rawValue
        }
        return field
    }
}
