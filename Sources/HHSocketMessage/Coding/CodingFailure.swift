// SPDX-License-Identifier: Apache-2.0
/// The first error of a decoder or an encoder. Apart from it, since there is hardly ever one.
@usableFromInline
final class CodingFailure {
    @usableFromInline var error: MessageError
    /// The number of the field that it is in.
    var field: UInt32 = 0

    @usableFromInline
    init(_ error: MessageError) { self.error = error }
}
