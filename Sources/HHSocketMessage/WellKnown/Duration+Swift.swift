// SPDX-License-Identifier: Apache-2.0
extension Google_Protobuf_Duration {
    /// Creates a duration, truncated to nanoseconds.
    public init(_ duration: Duration) {
        self.init()
        let (seconds, attoseconds) = duration.components
        self.seconds = seconds
        self.nanos = Int32(attoseconds / 1_000_000_000)
    }

    /// The value as Swift's `Duration`.
    public var duration: Duration { .seconds(self.seconds) + .nanoseconds(self.nanos) }
}
