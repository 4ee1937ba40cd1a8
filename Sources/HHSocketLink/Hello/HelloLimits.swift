// SPDX-License-Identifier: Apache-2.0
/// Limits for both ends of a hello.
package enum HelloLimits {
    /// The newest version of the protocol that this library speaks.
    package static let version: UInt32 = 1
    /// The largest payload of a hello, in bytes.
    package static let maximumLength = 128 << 10
    /// The longest session token, in bytes.
    package static let maximumTokenLength = 64 << 10
    /// The number of features that a server reads; it ignores further ones.
    package static let maximumFeatures = 64
}
