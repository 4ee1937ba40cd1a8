// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// Settings that the connections of one listener share.
final class ListenerSettings: Sendable {
    /// The time that a client may continue sending after the server has closed its direction. Closing immediately would
    /// reset the connection, and lose answers that the client has not read yet.
    static let lingerTime = TimeAmount.seconds(1)

    /// Its place among the listeners.
    let index: Int
    let sharedEndpoint: SharedEndpoint
    let proxies: ServerProxies
    let format: WireFormat
    /// The custom header fields of frames that answer no request, and of fields that a request does not have.
    let customFields: [UInt8]?
    let times: SessionWatch.Times
    let encoder: FrameEncoder
    let linkSettings: LinkSettings<Frame>
    /// Whether the system's bytes are read into buffers that the connections of an event loop share.
    let sharesReceiveBuffers: Bool
    /// The memory that a connection costs by itself, in bytes.
    let connectionCost: Int
    /// Whether clients understand frames of type 4 even without a hello.
    let isStandard: Bool
    let supportsHello: Bool
    private let maximumPushLength: Int

    /// The address that it is configured to listen on.
    var endpoint: Endpoint { self.sharedEndpoint.value }

    /// - Throws: An error if the header has a field that the format does not have, or a value of another width.
    init(
        index: Int,
        _ listener: ServerListener,
        _ configuration: ServerConfiguration
    ) throws(SocketError) {
        self.index = index
        self.sharedEndpoint = SharedEndpoint(listener.endpoint)
        self.proxies = listener.proxies
        self.format = listener.wireFormat
        self.customFields = try listener.wireFormat.customFields(listener.header, in: .response)
        let limits = configuration.limits
        var times = SessionWatch.Times(limits)
        if listener.tls != nil || configuration.hello.isRequired {
            times.firstFrame = limits.firstFrameTimeout.map { TimeAmount(clamping: $0) }
        }
        times.acquaintance = limits.strangers.timeToBecomeKnown.map { TimeAmount(clamping: $0) }
        self.times = times
        self.encoder = FrameEncoder(direction: .response, format: self.format, customFields: self.customFields)
        self.sharesReceiveBuffers = listener.tls == nil
        self.linkSettings = Self.linkSettings(
            self.format,
            configuration,
            // The channel that carries the frames of WebSockets reads into its own buffers.
            sharesReceiveBuffers: listener.tls == nil && listener.webSocket == nil
        )
        self.connectionCost = listener.tls == nil ? ConnectionCost.plain : ConnectionCost.tls
        self.isStandard = self.encoder.isStandard
        self.supportsHello = self.format.supportsHello
        self.maximumPushLength = limits.maximumAnswerLength
    }

    /// The settings of links; ``ServerLimits`` bounds what a link holds and for how long.
    private static func linkSettings(
        _ format: WireFormat,
        _ configuration: ServerConfiguration,
        sharesReceiveBuffers: Bool
    ) -> LinkSettings<Frame> {
        var settings = LinkSettings(
            maximumQueuedBytes: .max,
            heartbeat: format.serverPing == nil ? nil : configuration.heartbeat,
            ping: format.serverPing,
            maximumPayloadLength: configuration.limits.maximumAnswerLength
        )
        // One system call for the answers to a read, as long as no more than 1 MiB is held for it.
        settings.outputLimit = 1 << 20
        settings.gathersPieces = true
        // The link then finds out what the client has not taken.
        settings.reportsRoomAfter = LinkChannel.uncheckedBytes
        settings.sharesReceiveBuffers = sharesReceiveBuffers
        settings.partingTime = nil
        settings.lingerTime = self.lingerTime
        return settings
    }

    /// Encodes a push. Nil if the format has no pushes, if the type is reserved for the protocol, if clients do not
    /// accept the push, or if a codec does not encode it.
    func push(type: UInt32, body: ByteBuffer) -> PushQueue.Push? {
        guard body.readableBytes <= self.maximumPushLength, let push = self.format.push(type: type, payload: body)
        else { return nil }
        var bytes = ByteBuffer()
        self.encoder.encode(push, into: &bytes)
        guard bytes.readableBytes > 0 else { return nil }
        return PushQueue.Push(bytes: OwnedBytes(made: bytes), cut: self.cut(push))
    }

    /// The pieces of a long push where streams are agreed on; nil for a push that is sent whole.
    private func cut(_ push: Frame) -> PushQueue.Cut? {
        guard push.payload.readableBytes > StreamFrames.maximumPieceLength, self.supportsHello, !push.isMarkedAsPush,
            push.serial == FrameSerial.push, !self.encoder.usesCodec
        else { return nil }
        var header = ByteBuffer()
        self.encoder.encodeHeader(of: push, into: &header)
        return PushQueue.Cut(
            type: push.type,
            serial: push.serial,
            start: UInt32(header.readableBytes),
            length: UInt32(clamping: push.payload.readableBytes)
        )
    }

    /// Whether a frame to the client is a push, or a piece of one.
    func isPush(_ frame: Frame) -> Bool { frame.serial == FrameSerial.push }
}
