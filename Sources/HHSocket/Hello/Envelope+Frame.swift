import HHSocketMessage
import NIOCore

extension Envelope {
    /// A frame that has come as it was meant, and the metadata that stood before its body. Otherwise as
    /// ``open(type:payload:agreedFlags:maximumBodyLength:maximumMetadataLength:)``.
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

    /// What is sent for a frame. Otherwise as ``seal(type:body:metadata:compression:)``.
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
