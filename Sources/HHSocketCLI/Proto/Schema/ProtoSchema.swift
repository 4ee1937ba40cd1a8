// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// The declarations of `.proto` files and of their imports.
struct ProtoSchema: Sendable {
    /// The files, imports first.
    var files: [ProtoFile] = []
    /// The messages, by their full names.
    var messages: [String: ProtoMessage] = [:]
    var enums: [String: ProtoEnum] = [:]
    /// The extensions of the messages, in the order of their files.
    var extensions: [ProtoExtension] = []
    var services: [ProtoService] = []

    /// Returns the method with a name such as `chat.Chat/Send`.
    func method(_ name: String) throws(ProtoError) -> ProtoMethod {
        let methods = self.services.flatMap(\.methods)
        if let method = methods.first(where: { $0.name == name || $0.nameWithDots == name }) { return method }
        throw ProtoError(
            "There is no method \(name)\(NearestNames.hint(for: name, among: methods.map(\.name), all: true))."
        )
    }

    /// Returns the message that servers push in frames of this type.
    func push(_ type: UInt32) -> ProtoMessage? {
        self.messages.values.filter { $0.pushType == type }.min { $0.name < $1.name }
    }
}

/// The reason for which `.proto` files, or a request about them, cannot be used.
struct ProtoError: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) {
        self.description = description
    }
}

struct ProtoFile: Sendable {
    var name: String
    var package: String
    /// Whether the file was requested, not only imported.
    var isAskedFor: Bool
    var features: ProtoFeatures
}

struct ProtoMessage: Sendable {
    /// The full name, such as `chat.Note`.
    var name: String
    var file: String
    var comment: String
    /// The fields in the order of their numbers, like the descriptor's.
    var fields: [ProtoField]
    var isMapEntry: Bool
    /// The type of the frames in which it is pushed.
    var pushType: UInt32?
    var descriptor: MessageDescriptor
    /// Encodes and decodes the message.
    let codec: MessageCodec
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
    /// Whether the messages are encoded between two tags instead of with a length.
    var isGroup = false
    /// The oneof that contains the field.
    var oneof: String?

    var isRepeated: Bool { self.presence == .repeated || self.presence == .packed }
}

/// A field that is declared for a message elsewhere.
struct ProtoExtension: Sendable {
    /// The full name of the extended message.
    var extended: String
    var file: String
    /// The field; its name is the extension's full name.
    var field: ProtoField
    var declaration: MessageExtension
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
    /// Whether only named values are allowed, as in proto2.
    var isClosed: Bool
}

struct ProtoService: Sendable {
    var name: String
    var file: String
    var comment: String
    var methods: [ProtoMethod]
}

struct ProtoMethod: Sendable {
    /// The full name, such as `chat.Chat/Send`.
    var name: String
    var comment: String
    /// The full names of the request and response messages.
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
