extension Agreement {
    /// Creates the agreement that follows from the features accepted by both ends. ``ProtocolFeature/idempotency``
    /// requires metadata, and is dropped without it.
    package init(version: UInt32, features: some Sequence<ProtocolFeature>) {
        var features = Set(features)
        if !features.contains(.metadata) { features.remove(.idempotency) }
        var flags: UInt32 = 0
        if features.contains(.metadata) { flags |= FrameType.metadataFlag }
        if features.contains(.compression) { flags |= FrameType.compressionFlag }
        self.init(version: version, features: Set(features.map(\.rawValue)), flags: flags)
    }

    package func has(_ feature: ProtocolFeature) -> Bool { self.features.contains(feature.rawValue) }
}
