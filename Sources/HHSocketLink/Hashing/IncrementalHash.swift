// SPDX-License-Identifier: Apache-2.0
/// A hash of bytes that arrive in pieces. A copy is independent.
package protocol IncrementalHash: Sendable {
    init()
    mutating func update(_ bytes: UnsafeRawBufferPointer)
    /// The digest of all bytes so far. More may be added afterwards.
    func finalize() -> [UInt8]
}

extension IncrementalHash {
    /// The digest of `bytes`.
    package static func hash(of bytes: UnsafeRawBufferPointer) -> [UInt8] {
        var hash = Self()
        hash.update(bytes)
        return hash.finalize()
    }

    /// The digest of `bytes`.
    package static func hash(of bytes: [UInt8]) -> [UInt8] {
        bytes.withUnsafeBytes { self.hash(of: $0) }
    }
}
