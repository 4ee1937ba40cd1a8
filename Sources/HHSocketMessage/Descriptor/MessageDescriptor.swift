import Atomics
import NIOConcurrencyHelpers

/// The descriptor of a message type: its fields, and the offset of each in a record.
///
/// A record is memory with the layout of protobuf-c, whichever engine is used. Generated code declares one descriptor
/// for each message type; on first use it is linked with those of the message types nested in it.
public final class MessageDescriptor: @unchecked Sendable {
    // Proof of Sendable: the only mutable state is the memory of the plan. The initialiser writes it, and `link` once
    // more under a lock. It is read only after `isLinked` is found true, which is set after the last write.

    /// The full name, such as `chat.Note`.
    public let name: String
    /// The fields, in ascending order of their numbers.
    public let fields: [FieldDescriptor]

    private static let linking = NIOLock()

    private let lastLength = ManagedAtomic(0)

    private let memory: UnsafeMutablePointer<MessagePlan>
    private let isLinked = ManagedAtomic(false)
    #if ProtobufC && canImport(CProtobufC)
    private let protobufC: ProtobufCDescriptor
    #endif

    /// - Parameters:
    ///   - name: The full name, such as `chat.Note`.
    ///   - oneofs: The number of oneofs; 0 by default.
    ///   - fields: The fields, in any order; no two with the same number.
    public convenience init(_ name: String, oneofs: Int = 0, _ fields: [FieldDescriptor]) {
        self.init(name, oneofs: oneofs, fields, isEntry: false)
    }

    /// - Parameter isEntry: Whether the message is an entry of a map.
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

    /// The length of the last message of this type that was encoded and was not short, in bytes: a guess at that of the
    /// next. A wrong one costs time and no more.
    @usableFromInline
    var expectedLength: Int {
        get { self.lastLength.load(ordering: .relaxed) }
        set { self.lastLength.store(newValue, ordering: .relaxed) }
    }

    /// The plan that the engines use. It is valid as long as the descriptor.
    @usableFromInline
    var plan: UnsafePointer<MessagePlan> {
        if !self.isLinked.load(ordering: .acquiring) { self.link() }
        return UnsafePointer(self.memory)
    }

    /// Links this descriptor, and all that can be reached from it, with those of the messages nested in them.
    private func link() {
        Self.linking.withLock {
            // Another thread may have linked it meanwhile, and other threads may already read it.
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
            // Only at the end: a linked descriptor may be used at once, with all that can be reached from it.
            for descriptor in found.values { descriptor.isLinked.store(true, ordering: .releasing) }
        }
    }
}

extension MessageDescriptor {
    /// Sets `mayLackRequired` if it is set for a nested message. Returns whether that is a change.
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
    /// - Parameter messages: The number of singular message fields before this one; updated for this one.
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
