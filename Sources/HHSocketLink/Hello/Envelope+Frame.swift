// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

extension Envelope {
    /// Opens the envelope of a received frame. See
    /// ``open(type:payload:agreedFlags:maximumBodyLength:maximumMetadataLength:)``.
    ///
    /// - Returns: The frame without flags and envelope, and the metadata that preceded its body.
    package static func open(
        _ frame: Frame,
        agreedFlags: UInt32,
        maximumBodyLength: Int
    ) throws(EnvelopeError) -> (frame: Frame, metadata: WireMetadata?) {
        let envelope = try Self.open(
            type: frame.type,
            payload: frame.payload,
            agreedFlags: agreedFlags,
            maximumBodyLength: maximumBodyLength
        )
        var opened = frame
        opened.type = envelope.type
        opened.payload = envelope.body
        return (opened, envelope.metadata)
    }

    /// Returns the frame in its envelope, as it is sent. See ``seal(type:body:metadata:compression:)``.
    package static func seal(
        _ frame: Frame,
        metadata: WireMetadata?,
        compression: CompressionPolicy?
    ) throws(EnvelopeError) -> Frame {
        var sealed = frame
        (sealed.type, sealed.payload) = try Self.seal(
            type: frame.type,
            body: frame.payload,
            metadata: metadata,
            compression: compression
        )
        return sealed
    }
}
