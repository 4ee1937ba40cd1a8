/// Checks that a record, and those nested in it, have all their required fields.
enum RequiredFields {
    static func check(_ record: UnsafeRawPointer, _ plan: UnsafePointer<MessagePlan>) throws(MessageError) {
        let reader = RecordReader(record, plan)
        for index in 0..<plan.pointee.count {
            let field = plan.pointee.fields + index
            if field.pointee.shape == .required, reader.flag(index) == 0 {
                throw MessageError(
                    .missingRequiredField(field: plan.pointee.name(of: index)),
                    in: plan.pointee.descriptor.name
                )
            }
            guard let inner = field.pointee.message, inner.pointee.mayLackRequired else { continue }
            switch field.pointee.shape {
            case .repeated, .packed:
                for record in reader.records(index) { try Self.check(record, inner) }
            case .oneof where reader.oneof(index) != field.pointee.number:
                continue
            case .singular, .required, .oneof:
                if let record = reader.slot(index).load(as: UnsafeRawPointer?.self) { try Self.check(record, inner) }
            }
        }
    }
}
