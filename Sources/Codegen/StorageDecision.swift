// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Decides which messages keep their fields apart from themselves, on the heap: those in which singular fields, nested
/// ones counted, are many, and those that can lie within themselves by singular fields.
///
/// Inline, a nested message is a part of the one around it, so that the size of messages would be exponential in the
/// depth of their types. Arrays and dictionaries store their elements on the heap anyway.
final class StorageDecision {
    /// The number of fields above which a message is kept on the heap, as in swift-protobuf.
    static let maximumCost = 16

    /// The decisions by a message's full name.
    private var decisions: [String: Bool] = [:]
    /// The messages that a message can contain by singular fields, by its full name.
    private var reachable: [String: Set<String>] = [:]

    func isOnHeap(_ message: Descriptor) -> Bool {
        if let known = self.decisions[message.fullName] { return known }
        let isOnHeap = self.within(message).contains(message.fullName) || self.cost(of: message) > Self.maximumCost
        self.decisions[message.fullName] = isOnHeap
        return isOnHeap
    }

    /// The number of fields that are stored inline.
    private func cost(of message: Descriptor) -> Int {
        var cost = 0
        for field in message.fields where field.realContainingOneof == nil { cost += self.cost(of: field) }
        // A oneof has room for the largest of its fields.
        for oneof in message.realOneofs { cost += oneof.fields.map { self.cost(of: $0) }.max() ?? 0 }
        return cost
    }

    private func cost(of field: FieldDescriptor) -> Int {
        guard field.isSingularMessage, let inner = field.messageType, !self.isOnHeap(inner) else { return 1 }
        return max(1, self.cost(of: inner))
    }

    /// The messages that `message` can contain by singular fields, in any depth.
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
