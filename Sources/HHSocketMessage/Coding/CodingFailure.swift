// SPDX-License-Identifier: Apache-2.0
/// The first error of a decoder or an encoder. Stored separately, since errors are rare.
@usableFromInline
final class CodingFailure {
    @usableFromInline var error: MessageError
    /// The number of the field that contains it.
    var field: UInt32 = 0

    @usableFromInline
    init(_ error: MessageError) { self.error = error }
}
