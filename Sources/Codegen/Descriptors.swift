// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

extension FileDescriptor {
    /// The messages of the file, with nested ones; without the entries of maps, which are synthesised.
    var allMessages: [Descriptor] { self.messages.flatMap(\.withNested) }
    /// The extensions that the file declares, with those declared in messages; without those of descriptors, which are
    /// for generators.
    var allExtensions: [FieldDescriptor] {
        (self.extensions + self.allMessages.flatMap(\.extensions)).filter { !$0.extendsDescriptors }
    }
}

extension [FileDescriptor] {
    /// The files and all their imports, each file after its imports.
    var withImports: [FileDescriptor] {
        var seen: Set<String> = []
        var ordered: [FileDescriptor] = []
        func add(_ file: FileDescriptor) {
            guard seen.insert(file.name).inserted else { return }
            for dependency in file.dependencies { add(dependency) }
            ordered.append(file)
        }
        for file in self { add(file) }
        return ordered
    }
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
    var isSingularMessage: Bool { (self.type == .message || self.type == .group) && !self.isRepeated }

    /// Whether the field extends a message of `google/protobuf/descriptor.proto`: options, or features of editions.
    var extendsDescriptors: Bool { self.containingType?.file.name == "google/protobuf/descriptor.proto" }

    /// Whether the field extends a message with the option `message_set_wire_format`. protoc makes sure that it is a
    /// single message.
    var isMessageSetItem: Bool { self.isExtension && self.containingType.options.messageSetWireFormat }
}

extension EnumDescriptor {
    /// The first value of each number, in the order of the file.
    var canonicalValues: [EnumValueDescriptor] {
        var seen: Set<Int32> = []
        return self.values.filter { seen.insert($0.number).inserted }
    }
}
