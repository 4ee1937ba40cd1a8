import SwiftProtobufPluginLibrary

/// Finds messages that are recursive by singular fields, which a struct cannot store inline.
///
/// Arrays and dictionaries store their elements indirectly, so repeated fields and maps do not count.
final class RecursionFinder {
    /// The messages that a message can contain by singular fields, by its full name.
    private var reachable: [String: Set<String>] = [:]

    /// Whether the field's message can contain the message that declares the field.
    func isRecursive(_ field: FieldDescriptor) -> Bool {
        guard field.isSingularMessage, let inner = field.messageType, let outer = field.containingType else {
            return false
        }
        return inner.fullName == outer.fullName || self.within(inner).contains(outer.fullName)
    }

    /// Whether any field of the oneof is recursive.
    func isRecursive(_ oneof: OneofDescriptor) -> Bool {
        oneof.fields.contains { self.isRecursive($0) }
    }

    private func within(_ message: Descriptor) -> Set<String> {
        if let known = self.reachable[message.fullName] { return known }
        var found: Set<String> = []
        var waiting = [message]
        while let next = waiting.popLast() {
            for field in next.fields where field.isSingularMessage {
                guard let inner = field.messageType, found.insert(inner.fullName).inserted else { continue }
                waiting.append(inner)
            }
        }
        self.reachable[message.fullName] = found
        return found
    }
}
