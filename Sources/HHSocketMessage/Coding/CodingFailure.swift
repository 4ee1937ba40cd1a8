// SPDX-License-Identifier: Apache-2.0
/// The first error of a decoder or an encoder. Stored separately, since errors are rare.
@usableFromInline
final class CodingFailure {
    private var recorded: MessageError
    /// The number of the field that contains it.
    private var field: UInt32 = 0

    @usableFromInline
    init(_ error: MessageError) { self.recorded = error }

    @usableFromInline var error: MessageError { self.recorded }

    /// Whether the message that contains it is not recorded.
    var hasNoMessage: Bool { self.recorded.message.isEmpty }

    /// Records the field that contains it.
    func attribute(toField number: UInt32) { self.field = number }

    /// Records the message that contains it.
    func attribute(to descriptor: MessageDescriptor) {
        self.recorded.message = descriptor.name
        guard case .invalidUTF8 = self.recorded.reason else { return }
        let name = descriptor.fields.first { $0.number == self.field }?.name
        self.recorded.reason = .invalidUTF8(field: name ?? "")
    }
}
