import SwiftProtobuf
import SwiftProtobufPluginLibrary

extension FileDescriptor {
    /// Those of the file, and those that lie in them; without the entries of maps, which nobody wrote.
    var allMessages: [Descriptor] { self.messages.flatMap(\.withNested) }
    /// Those of the file, and those that lie in messages.
    var allEnums: [EnumDescriptor] { self.enums + self.allMessages.flatMap(\.enums) }
}

extension Descriptor {
    /// The messages declared in this one that are not entries of maps.
    var nested: [Descriptor] { self.messages.filter { !$0.options.mapEntry } }
    var withNested: [Descriptor] { [self] + self.nested.flatMap(\.withNested) }
    /// In the order of their numbers, which is the order of records.
    var sortedFields: [FieldDescriptor] { self.fields.sorted { $0.number < $1.number } }
}

extension FieldDescriptor {
    /// Whether it holds one message, or none.
    var isSingularMessage: Bool { self.type == .message && !self.isRepeated }
}

extension EnumDescriptor {
    /// The values that are the first of their number, in the order of the file.
    var canonicalValues: [EnumValueDescriptor] {
        var seen: Set<Int32> = []
        return self.values.filter { seen.insert($0.number).inserted }
    }
}
