// SPDX-License-Identifier: Apache-2.0
/// Whether the next message of a type is expected to be so short that it is encoded on the stack.
@usableFromInline
package struct LengthExpectation: Sendable {
    /// Nil for messages of other libraries, of which nothing is expected.
    private let descriptor: MessageDescriptor?

    @usableFromInline
    package init(of type: any MessageBody.Type) {
        self.descriptor = (type as? any ProtobufMessage.Type)?.messageDescriptor
    }

    @usableFromInline
    package var isShort: Bool { self.descriptor?.expectsShortMessages ?? false }
}
