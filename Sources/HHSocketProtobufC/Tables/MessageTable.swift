// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketMessage

/// The plans of a message and of all that can be in it, linked with each other.
final class MessageTable: AtomicReference, @unchecked Sendable {
    // Proof of Sendable: only the initialiser writes the memory of the plans, before anything else has the table.

    /// The plan of the message itself.
    let root: UnsafePointer<MessagePlan>
    /// Whether libprotobuf-c can serve the messages. It has no groups.
    let isPlain: Bool
    private var plans: [ObjectIdentifier: UnsafeMutablePointer<MessagePlan>] = [:]
    private var tables: [ProtobufCDescriptor] = []
    /// The descriptors, to which the plans refer without owning them.
    private var descriptors: [MessageDescriptor] = []

    init(_ root: MessageDescriptor) {
        var pending = [root]
        var tables: [ObjectIdentifier: ProtobufCDescriptor] = [:]
        while let descriptor = pending.popLast() {
            let id = ObjectIdentifier(descriptor)
            guard self.plans[id] == nil else { continue }
            let (plan, table) = Self.plan(descriptor)
            self.plans[id] = plan
            tables[id] = table
            self.descriptors.append(descriptor)
            pending += descriptor.fields.compactMap(\.message)
        }
        for descriptor in self.descriptors {
            let id = ObjectIdentifier(descriptor)
            for (index, field) in descriptor.fields.enumerated() {
                guard let inner = field.message.map({ ObjectIdentifier($0) }), let plan = self.plans[inner],
                    let table = tables[inner]
                else { continue }
                self.plans[id]?.pointee.fields[index].message = UnsafePointer(plan)
                tables[id]?.link(index, to: table)
            }
        }
        self.tables = Array(tables.values)
        self.isPlain = !self.descriptors.contains { $0.fields.contains(where: \.isGroup) }
        // It was the first to be added.
        self.root = UnsafePointer(self.plans[ObjectIdentifier(root)].unsafelyUnwrapped)
    }

    deinit {
        for table in self.tables { table.deallocate() }
        for plan in self.plans.values {
            plan.pointee.fields.deallocate()
            plan.deallocate()
        }
    }

    private static func plan(
        _ descriptor: MessageDescriptor
    ) -> (UnsafeMutablePointer<MessagePlan>, ProtobufCDescriptor) {
        let fields = descriptor.fields
        var layout = RecordLayout(oneofs: descriptor.oneofs.count)
        var messages: UInt8 = 0
        let plans = UnsafeMutablePointer<FieldPlan>.allocate(capacity: fields.count)
        for (index, field) in fields.enumerated() {
            (plans + index).initialize(to: FieldPlan(field, at: layout.position(field), messages: &messages))
        }
        let table = ProtobufCDescriptor(plans, count: fields.count, recordLength: layout.length)
        let plan = UnsafeMutablePointer<MessagePlan>.allocate(capacity: 1)
        plan.initialize(
            to: MessagePlan(
                fields: plans,
                count: fields.count,
                recordLength: layout.length,
                isEntryOfValues: descriptor.isMapEntry && !fields.contains { $0.kind == .message },
                protobufC: table.memory,
                descriptor: descriptor
            )
        )
        return (plan, table)
    }
}
