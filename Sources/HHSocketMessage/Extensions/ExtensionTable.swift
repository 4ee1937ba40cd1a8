// SPDX-License-Identifier: Apache-2.0
/// Extensions by the names of the messages that they extend, for code that accesses fields by name.
struct ExtensionTable: Sendable {
    struct Entry: Sendable {
        let field: FieldDescriptor
        /// Whether the extended message is a message set.
        let isItem: Bool
        /// A message with the extension as its only field.
        let descriptor: MessageDescriptor

        init(_ extension: MessageExtension) {
            self.field = `extension`.field
            self.isItem = `extension`.isMessageSetItem
            self.descriptor = MessageDescriptor(`extension`.extendedName, [`extension`.field])
        }

        /// Returns the value that is encoded in these bytes; nil if they contain none.
        ///
        /// - Parameter bytes: The fields with the extension's number, one after another; for items their messages,
        ///   which are merged in this way.
        fileprivate func value(_ bytes: [UInt8]) -> Result<DynamicMessage.Field?, MessageError> {
            do throws(MessageError) {
                guard self.isItem, let type = self.field.message else {
                    return .success(try DynamicMessage(self.descriptor, serializedBytes: bytes)[0])
                }
                return .success(.value(.message(try DynamicMessage(type, serializedBytes: bytes))))
            } catch {
                // The offset does not apply to the message that has the extension.
                return .failure(MessageError(error.reason, in: error.message))
            }
        }
    }

    /// Sorted by number.
    private let entries: [String: [Entry]]

    init(_ extensions: [MessageExtension] = []) {
        self.entries = Dictionary(grouping: extensions, by: \.extendedName).mapValues { extensions in
            extensions.map(Entry.init).sorted { $0.field.number < $1.field.number }
        }
    }

    /// Returns the extension of a message with this name in JSON, which is its full name in brackets.
    func entry(of message: MessageDescriptor, jsonName: String) -> Entry? {
        guard jsonName.hasPrefix("[") else { return nil }
        return self.entries[message.name]?.first { $0.field.jsonName == jsonName }
    }

    /// Whether a message has unknown fields, and extensions that may be among them.
    func mayHaveValues(_ message: DynamicMessage) -> Bool {
        !message.unknownFields.isEmpty && self.entries[message.descriptor.name] != nil
    }

    /// Returns the values of a message's extensions, in the order of their numbers, or why they cannot be decoded.
    ///
    /// Each is decoded separately. Callers bound the depth of extensions within extensions, which are nested in each
    /// other's bytes.
    func values(of message: DynamicMessage) -> [(entry: Entry, value: Result<DynamicMessage.Field, MessageError>)] {
        guard self.mayHaveValues(message), let entries = self.entries[message.descriptor.name] else { return [] }
        let bytes = message.unknownFields.extensionBytes(entries)
        return entries.compactMap { entry in
            guard let bytes = bytes[entry.field.number] else { return nil }
            switch entry.value(bytes) {
            case .success(let value?): return (entry, .success(value))
            case .success(nil): return nil
            case .failure(let error): return (entry, .failure(error))
            }
        }
    }

    /// Checks that the extensions of a message, and of those within it, can be decoded.
    ///
    /// - Parameter depth: The maximum depth of nested messages.
    /// - Throws: The error of the first one that cannot.
    func check(_ message: DynamicMessage, depth: Int) throws(MessageError) {
        try self.check(message, levels: depth, of: depth)
    }

    private func check(_ message: DynamicMessage, levels: Int, of depth: Int) throws(MessageError) {
        guard levels > 0 else { throw MessageError(.tooDeep(limit: depth), in: message.descriptor.name) }
        for field in message.fields.values { try self.check(field, levels: levels - 1, of: depth) }
        for (_, value) in self.values(of: message) { try self.check(value.get(), levels: levels - 1, of: depth) }
    }

    private func check(_ field: DynamicMessage.Field, levels: Int, of depth: Int) throws(MessageError) {
        switch field {
        case .value(.message(let message)): try self.check(message, levels: levels, of: depth)
        case .values(let values):
            for case .message(let message) in values {
                // An entry counts as a level only if it contains a message.
                if message.descriptor.isMapEntry, message.descriptor.fields.last?.kind != .message { return }
                try self.check(message, levels: levels, of: depth)
            }
        case .value: break
        }
    }
}

extension UnknownStorage {
    /// Returns the bytes of the extensions that have any, by number.
    fileprivate func extensionBytes(_ entries: [ExtensionTable.Entry]) -> [UInt32: [UInt8]] {
        let numbers = Set(entries.map(\.field.number))
        var bytes: [UInt32: [UInt8]] = [:]
        // Whether a message is a set does not depend on the extension.
        if entries.first?.isItem == true {
            _ = self.readItems { _, number, message in
                if numbers.contains(number) { bytes[number, default: []] += message }
            }
        } else {
            self.forEach { field in
                if numbers.contains(field.number) { bytes[field.number, default: []] += field.bytes }
            }
        }
        return bytes
    }
}
