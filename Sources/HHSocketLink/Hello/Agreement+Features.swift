// SPDX-License-Identifier: Apache-2.0
extension Agreement {
    /// Creates the agreement that follows from the features accepted by both ends. ``ProtocolFeature/idempotency``
    /// requires metadata, and is dropped without it.
    ///
    /// - Parameter streams: The terms of streams, which hold if both ends accepted ``ProtocolFeature/streams``.
    package init(
        version: UInt32,
        features: some Sequence<ProtocolFeature>,
        streams: StreamTerms = StreamTerms()
    ) {
        var features = Set(features)
        if !features.contains(.metadata) { features.remove(.idempotency) }
        var flags: UInt32 = 0
        if features.contains(.metadata) { flags |= FrameType.metadataFlag }
        if features.contains(.compression) { flags |= FrameType.compressionFlag }
        let hasStreams = features.contains(.streams)
        if hasStreams { flags |= FrameType.continuesFlag }
        self.init(
            version: version,
            features: Set(features.map(\.rawValue)),
            flags: flags,
            streams: hasStreams ? streams : nil
        )
    }

    package func has(_ feature: ProtocolFeature) -> Bool { self.features.contains(feature.rawValue) }
}
