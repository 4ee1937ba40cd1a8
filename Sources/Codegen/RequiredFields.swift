// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Finds messages that may lack a required field, themselves or in a message in them.
final class RequiredFields {
    /// The results by a message's full name.
    private var known: [String: Bool] = [:]

    func mayBeMissing(in message: Descriptor) -> Bool {
        if let known = self.known[message.fullName] { return known }
        var found = [message.fullName: message]
        var waiting = [message]
        var isFound = false
        while let next = waiting.popLast(), !isFound {
            isFound = next.fields.contains(where: \.isRequired) || self.known[next.fullName] == true
            for inner in next.fields.compactMap(\.messageType) where found[inner.fullName] == nil {
                found[inner.fullName] = inner
                waiting.append(inner)
            }
        }
        self.known[message.fullName] = isFound
        return isFound
    }
}
