extension Agreement {
    /// What follows from the features that both ends accept. ``ProtocolFeature/idempotency`` rides on metadata, and is
    /// dropped where that is not among them.
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
