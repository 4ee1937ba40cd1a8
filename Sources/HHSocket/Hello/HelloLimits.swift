/// What both ends of a hello keep to.
package enum HelloLimits {
    /// The newest version of the protocol that is known here.
    package static let version: UInt32 = 1
    /// How long a session token may be, in bytes.
    package static let maximumTokenLength = 64 << 10
    /// The number of features that a server reads; it ignores further ones.
    package static let maximumFeatures = 64
}
