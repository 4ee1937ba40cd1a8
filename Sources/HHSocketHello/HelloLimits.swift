/// What both ends of a hello keep to.
package enum HelloLimits {
    /// The newest version of the protocol that is known here.
    package static let version: UInt32 = 1
    /// How long a session token may be, in bytes.
    package static let maximumTokenLength = 64 << 10
    /// Of so many features a server takes notice; others are as if they were not there.
    package static let maximumFeatures = 64
}
