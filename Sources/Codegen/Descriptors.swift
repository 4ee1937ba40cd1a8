import SwiftProtobuf
import SwiftProtobufPluginLibrary

extension FileDescriptor {
    /// The messages of the file, with nested ones; without the entries of maps, which are synthesised.
    var allMessages: [Descriptor] { self.messages.flatMap(\.withNested) }
    /// The enums of the file, with those nested in messages.
    var allEnums: [EnumDescriptor] { self.enums + self.allMessages.flatMap(\.enums) }
}

extension Descriptor {
    /// The messages declared in this one that are not entries of maps.
    var nested: [Descriptor] { self.messages.filter { !$0.options.mapEntry } }
    var withNested: [Descriptor] { [self] + self.nested.flatMap(\.withNested) }
    /// The fields in the order of their numbers, which is the order of records.
    var sortedFields: [FieldDescriptor] { self.fields.sorted { $0.number < $1.number } }
}

extension FieldDescriptor {
    /// Whether the field is a singular message field.
    var isSingularMessage: Bool { self.type == .message && !self.isRepeated }
}

extension EnumDescriptor {
    /// The first value of each number, in the order of the file.
    var canonicalValues: [EnumValueDescriptor] {
        var seen: Set<Int32> = []
        return self.values.filter { seen.insert($0.number).inserted }
    }
}
