import HHSocketMessage

/// What `.proto` files declare, theirs and those that they import.
struct ProtoSchema: Sendable {
    /// In the order in which they import one another.
    var files: [ProtoFile] = []
    /// By their full names.
    var messages: [String: ProtoMessage] = [:]
    var enums: [String: ProtoEnum] = [:]
    var services: [ProtoService] = []

    /// The method of a name such as `chat.Chat/Send`.
    func method(_ name: String) throws(ProtoError) -> ProtoMethod {
        let methods = self.services.flatMap(\.methods)
        if let method = methods.first(where: { $0.name == name || $0.nameWithDots == name }) { return method }
        throw ProtoError(
            "There is no method \(name)\(NearestNames.hint(for: name, among: methods.map(\.name), all: true))."
        )
    }

    /// The message of a type URL, such as `type.googleapis.com/chat.Note`, as an `Any` has it.
    func type(ofURL url: String) -> ProtoMessage? {
        let name = url.split(separator: "/", omittingEmptySubsequences: false).last.map(String.init) ?? ""
        return self.messages[name].flatMap { $0.isMapEntry ? nil : $0 }
    }

    /// The message that servers push in frames of this type.
    func push(_ type: UInt32) -> ProtoMessage? {
        self.messages.values.filter { $0.pushType == type }.min { $0.name < $1.name }
    }
}

/// Why nothing can be made of `.proto` files, or of what was asked of them.
struct ProtoError: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) {
        self.description = description
    }
}

struct ProtoFile: Sendable {
    var name: String
    var package: String
    /// Whether it was asked for, and not only imported.
    var isAskedFor: Bool
    var isProto3: Bool
}

struct ProtoMessage: Sendable {
    /// The full name, such as `chat.Note`.
    var name: String
    var file: String
    var comment: String
    /// By their numbers, as the descriptor's.
    var fields: [ProtoField]
    var isMapEntry: Bool
    /// The type of the frames in which it is pushed.
    var pushType: UInt32?
    var descriptor: MessageDescriptor

    /// The index of the field that JSON calls so: by the name in the `.proto`, or the one in lower camel case.
    func index(ofJSONName name: String) -> Int? {
        self.fields.firstIndex { $0.jsonName == name } ?? self.fields.firstIndex { $0.name == name }
    }
}

struct ProtoField: Sendable {
    var name: String
    var jsonName: String
    var number: UInt32
    var kind: FieldKind
    var presence: FieldDescriptor.Presence
    var comment: String
    /// The full name of the message or the enumeration.
    var typeName: String?
    var isMap = false
    /// The oneof that it is in.
    var oneof: String?

    var isRepeated: Bool { self.presence == .repeated || self.presence == .packed }
}

struct ProtoEnum: Sendable {
    struct Value: Sendable {
        var name: String
        var number: Int32
    }

    var name: String
    var file: String
    var comment: String
    var values: [Value]
    /// Whether it is one of proto2, which has no values but those that are named.
    var isClosed: Bool
}

struct ProtoService: Sendable {
    var name: String
    var file: String
    var comment: String
    var methods: [ProtoMethod]
}

struct ProtoMethod: Sendable {
    /// Such as `chat.Chat/Send`.
    var name: String
    var comment: String
    /// The full names of what is sent and what comes back.
    var request: String
    var response: String
    var requestIsStream: Bool
    var responseIsStream: Bool
    /// The type of the frames.
    var type: UInt32?

    var nameWithDots: String { String(self.name.map { $0 == "/" ? "." : $0 }) }
    var shortName: Substring { self.name.split(separator: "/").last ?? "" }

    var kind: String {
        switch (self.requestIsStream, self.responseIsStream) {
        case (false, false): "unary"
        case (false, true): "serverStream"
        case (true, false): "clientStream"
        case (true, true): "bidirectionalStream"
        }
    }
}
