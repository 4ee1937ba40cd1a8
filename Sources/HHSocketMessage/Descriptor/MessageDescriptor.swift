import Atomics
import NIOConcurrencyHelpers

/// A kind of message: its fields, and where each lies in a record.
///
/// A record is memory laid out as protobuf-c has it, whichever engine works on it. Generated code declares one
/// descriptor for each message; it is linked with those of the messages within it when it is first used.
public final class MessageDescriptor: @unchecked Sendable {
    // Proof of Sendable: what can change is the memory of the plan, which is written here, and once more by `link`, one
    // thread at a time. It is read after `isLinked` was found true, which is set when all is written.

    /// The full name, such as `chat.Note`.
    public let name: String
    /// By their numbers, upwards.
    public let fields: [FieldDescriptor]

    private static let linking = NIOLock()

    private let memory: UnsafeMutablePointer<MessagePlan>
    private let isLinked = ManagedAtomic(false)
    #if ProtobufC && canImport(CProtobufC)
    private let protobufC: ProtobufCDescriptor
    #endif

    /// - Parameters:
    ///   - name: The full name, such as `chat.Note`.
    ///   - oneofs: How many oneofs there are; none by default.
    ///   - fields: In any order; no two with the same number.
    public convenience init(_ name: String, oneofs: Int = 0, _ fields: [FieldDescriptor]) {
        self.init(name, oneofs: oneofs, fields, isEntry: false)
    }

    /// - Parameter isEntry: Whether it is an entry of a map.
    init(_ name: String, oneofs: Int = 0, _ fields: [FieldDescriptor], isEntry: Bool) {
        self.name = name
        self.fields = fields.sorted { $0.number < $1.number }
        precondition(
            zip(self.fields, self.fields.dropFirst()).allSatisfy { $0.number < $1.number },
            "\(name) has two fields with the same number"
        )
        var layout = RecordLayout(oneofs: oneofs)
        var messages: UInt8 = 0
        let plans = UnsafeMutablePointer<FieldPlan>.allocate(capacity: self.fields.count)
        for (index, field) in self.fields.enumerated() {
            (plans + index).initialize(to: FieldPlan(field, layout.place(field), &messages))
        }
        let dense = zip(self.fields, 1...).prefix { $0.number == $1 }.count
        self.memory = .allocate(capacity: 1)
        #if ProtobufC && canImport(CProtobufC)
        self.protobufC = ProtobufCDescriptor(plans, count: self.fields.count, recordLength: layout.length)
        #endif
        self.memory.initialize(
            to: MessagePlan(
                fields: plans,
                count: self.fields.count,
                dense: UInt32(dense),
                recordLength: layout.length,
                isEntryOfValues: isEntry && !fields.contains { $0.kind == .message },
                mayLackRequired: self.fields.contains { $0.presence == .required },
                protobufC: nil,
                descriptor: self
            )
        )
        #if ProtobufC && canImport(CProtobufC)
        self.memory.pointee.protobufC = self.protobufC.memory
        #endif
    }

    deinit {
        #if ProtobufC && canImport(CProtobufC)
        self.protobufC.deallocate()
        #endif
        self.memory.pointee.fields.deallocate()
        self.memory.deallocate()
    }

    /// What the engines work by. It is there as long as the descriptor.
    @usableFromInline
    var plan: UnsafePointer<MessagePlan> {
        if !self.isLinked.load(ordering: .acquiring) { self.link() }
        return UnsafePointer(self.memory)
    }

    /// Joins this descriptor and all that can be reached from it with those of the messages in them.
    private func link() {
        Self.linking.withLock {
            // Another thread may have linked it meanwhile, and others read it by now.
            guard !self.isLinked.load(ordering: .relaxed) else { return }
            var found = [ObjectIdentifier(self): self]
            var pending = [self]
            while let descriptor = pending.popLast() {
                for (index, field) in descriptor.fields.enumerated() {
                    guard let inner = field.message?() else { continue }
                    descriptor.memory.pointee.fields[index].message = UnsafePointer(inner.memory)
                    #if ProtobufC && canImport(CProtobufC)
                    descriptor.protobufC.link(index, to: inner.protobufC)
                    #endif
                    guard !inner.isLinked.load(ordering: .relaxed),
                        found.updateValue(inner, forKey: ObjectIdentifier(inner)) == nil
                    else { continue }
                    pending.append(inner)
                }
            }
            while found.values.contains(where: { $0.inheritsRequired() }) {}
            // Only now: each may be used as soon as it says that it is linked, and with it all that is in it.
            for descriptor in found.values { descriptor.isLinked.store(true, ordering: .releasing) }
        }
    }
}

extension MessageDescriptor {
    /// Notes that a message in this one may lack required fields; true if that was not known.
    private func inheritsRequired() -> Bool {
        guard !self.memory.pointee.mayLackRequired else { return false }
        let plan = self.memory.pointee
        guard (0..<plan.count).contains(where: { plan.fields[$0].message?.pointee.mayLackRequired == true }) else {
            return false
        }
        self.memory.pointee.mayLackRequired = true
        return true
    }
}

extension FieldPlan {
    /// - Parameter messages: How many fields before hold one message.
    init(_ field: FieldDescriptor, _ place: RecordLayout.Place, _ messages: inout UInt8) {
        self.value = Int32(place.value)
        self.quantifier = Int32(place.quantifier)
        self.number = field.number
        self.kind = field.kind
        self.isMap = field.isMap
        self.isClosed = field.knows != nil
        switch field.presence {
        case .implicit, .explicit: self.shape = .singular
        case .required: self.shape = .required
        case .repeated: self.shape = .repeated
        case .packed: self.shape = .packed
        case .oneof: self.shape = .oneof
        }
        if field.kind == .message, self.shape != .repeated, messages < 64 {
            self.ordinal = messages
            messages += 1
        } else {
            self.ordinal = 255
        }
        self.message = nil
    }
}
