extension Google_Protobuf_Duration {
    /// A length of time, cut off to nanoseconds.
    public init(_ duration: Duration) {
        self.init()
        let (seconds, attoseconds) = duration.components
        self.seconds = seconds
        self.nanos = Int32(attoseconds / 1_000_000_000)
    }

    /// The length of time.
    public var duration: Duration { .seconds(self.seconds) + .nanoseconds(self.nanos) }
}
