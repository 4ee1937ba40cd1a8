// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The rules of a configuration for frames that are sent.
package struct FrameRules: Sendable {
    package let configuration: SocketConfiguration
    package let format: WireFormat
    /// The custom fields of every frame without its own; or the fault of this configuration.
    let customFields: Result<[UInt8]?, SocketError>

    /// - Parameter refusal: The reason why the consumer does not support this configuration; nil if it does.
    package init(_ configuration: SocketConfiguration, refusal: SocketError? = nil) {
        self.configuration = configuration
        let format = configuration.wireFormat
        self.format = format
        self.customFields = Result { () throws(SocketError) in
            if let refusal { throw refusal }
            return try format.customFields(configuration.header, in: .request)
        }
    }

    /// The reason why no connection can be made with this configuration.
    package var refusal: SocketError? { self.customFields.error }

    /// The custom fields of a request with these values over the configuration's, for a frame.
    ///
    /// - Throws: `invalidArgument` if the format has no such fields, or if the configuration's are wrong.
    package func customFields(_ header: [String: [UInt8]]) throws(SocketError) -> [UInt8]? {
        let base = try self.customFields.get()
        return try self.format.customFields(header, over: base, in: .request)
    }

    /// Refuses a frame that cannot be sent.
    package func check(_ frame: Frame) throws(SocketError) {
        let largest = self.format.largestPayload(in: .request)
        guard frame.payload.readableBytes <= largest else {
            throw SocketError(
                .frameTooLarge,
                message: """
                    a payload of \(frame.payload.readableBytes) bytes does not fit: the length field of the wire format \
                    \(self.format) announces \(largest) at most
                    """,
                serial: frame.serial
            )
        }
        guard frame.payload.readableBytes <= self.configuration.maximumPayloadLength else {
            throw SocketError(
                .frameTooLarge,
                message: """
                    a payload of \(frame.payload.readableBytes) bytes is over the limit of \
                    \(self.configuration.maximumPayloadLength); raise maximumPayloadLength on both sides or send less
                    """,
                serial: frame.serial
            )
        }
        if self.format.hasCodec, let refusal = self.format.refusal(of: frame, .request) { throw refusal }
        if let fields = frame.customFields, fields.count != self.format.customFieldLength(in: .request) {
            throw SocketError(
                .invalidArgument,
                message: """
                    the custom fields of a request in the wire format \(self.format) have \
                    \(self.format.customFieldLength(in: .request)) bytes; \(fields.count) were given
                    """,
                serial: frame.serial
            )
        }
    }

    /// Sends a frame that ``check(_:)`` has accepted with the turn's flush, or queues it while the server does not
    /// read.
    ///
    /// - Returns: Whether its sending has begun.
    package func send(
        _ frame: Frame,
        _ priority: FramePriority,
        on link: Link<FrameLanguage>,
        to endpoint: Endpoint,
        in turn: inout Turn
    ) throws(SocketError) -> Bool {
        switch link.send(frame, priority, in: &turn) {
        case .sent:
            return true
        case .queued:
            return false
        case .refused:
            throw Self.queueFull(
                frame,
                to: endpoint,
                bound: self.configuration.maximumQueuedBytes,
                named: "maximumQueuedBytes"
            )
        }
    }

    /// Refuses a frame that would be sent in pieces behind this number of bytes, where too much waits already.
    package func check(_ frame: Frame, behind waiting: Int, to endpoint: Endpoint?) throws(SocketError) {
        let limit = self.configuration.maximumQueuedBytes
        guard waiting == 0 || frame.payload.readableBytes <= limit - waiting else {
            throw Self.queueFull(frame, to: endpoint, bound: limit, named: "maximumQueuedBytes")
        }
    }

    static func queueFull(_ frame: Frame, to endpoint: Endpoint?, bound: Int, named name: String) -> SocketError {
        let cause = endpoint.map { "\($0) does not read as fast as frames are sent" } ?? "there is no connection yet"
        return SocketError(
            .queueFull,
            message: "\(cause): no more than \(bound) bytes may wait (\(name)); send less at once",
            endpoint: endpoint,
            serial: frame.serial
        )
    }

    // MARK: Links

    /// The rules of a client's link whose language is frames.
    var linkSettings: LinkSettings<Frame> {
        LinkSettings(
            maximumQueuedBytes: self.configuration.maximumQueuedBytes,
            writeStallTimeout: TimeAmount(clamping: self.configuration.writeStallTimeout),
            // In a format without heartbeats there are no pings, and silence is normal.
            heartbeat: self.format.layout.heartbeat == nil ? nil : self.configuration.heartbeat,
            ping: self.format.clientPing,
            maximumPayloadLength: self.configuration.maximumPayloadLength
        )
    }

    /// The largest body that is copied on its way to a WebSocket, which copies it again for masking, or to TLS,
    /// which does as it encrypts it.
    private static let largestCopiedTwice = 16 << 10

    /// A client's frames on one connection.
    ///
    /// - Parameter isCopiedAgain: Whether a WebSocket or TLS carries them.
    func language(customFields: [UInt8]?, isCopiedAgain: Bool) -> FrameLanguage {
        FrameLanguage(
            decoder: FrameDecoder(
                direction: .response,
                format: self.format,
                maximumPayloadLength: self.configuration.maximumPayloadLength,
                maximumCorruptRun: self.configuration.maximumCorruptRun
            ),
            encoder: FrameEncoder(direction: .request, format: self.format, customFields: customFields),
            largestCopied: isCopiedAgain ? Self.largestCopiedTwice : Frame.unslicedLength
        )
    }
}
