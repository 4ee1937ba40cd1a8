// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// Finds the application protocols that a client offers (ALPN, RFC 7301) in the first bytes of its TLS.
struct ClientHelloReader {
    enum Result: Equatable {
        /// More bytes are needed.
        case incomplete
        /// The names of the protocols; none if the client offers none.
        case offered([[UInt8]])
        /// These bytes do not begin with a readable hello: TLS will report the fault, or read it.
        case unknown
    }

    /// The length of the longest hello that is read, equal to BoringSSL's.
    static let maximumLength = 16_384

    private static let handshakeRecord: UInt8 = 22
    private static let clientHello: UInt8 = 1
    private static let protocolExtension: UInt16 = 16

    /// The hello as it arrives, without the headers of its records.
    private var message = ByteBuffer()

    /// Reads the next bytes, each once.
    ///
    /// - Parameter records: Bytes that are not a complete record stay in it.
    mutating func read(_ records: inout ByteBuffer) -> Result {
        while true {
            let start = records.readerIndex
            guard let type = records.getInteger(at: start, as: UInt8.self) else { return .incomplete }
            guard type == Self.handshakeRecord else { return .unknown }
            guard let length = records.getInteger(at: start + 3, as: UInt16.self) else { return .incomplete }
            guard length > 0, Int(length) <= Self.maximumLength else { return .unknown }
            guard records.readableBytes >= 5 + Int(length) else { return .incomplete }
            records.moveReaderIndex(forwardBy: 5)
            guard var fragment = records.readSlice(length: Int(length)) else { return .unknown }
            self.message.writeBuffer(&fragment)
            let result = self.parse()
            guard result == .incomplete else { return result }
        }
    }

    private func parse() -> Result {
        var message = self.message
        guard let head = message.readInteger(as: UInt32.self) else { return .incomplete }
        let length = Int(head & 0xFF_FFFF)
        guard head >> 24 == UInt32(Self.clientHello), length <= Self.maximumLength else { return .unknown }
        guard var hello = message.readSlice(length: length) else { return .incomplete }
        // The version, the random bytes, the session, the cipher suites, the compression methods.
        guard hello.readSlice(length: 2 + 32) != nil,
            hello.readLengthPrefixedSlice(as: UInt8.self) != nil,
            hello.readLengthPrefixedSlice(as: UInt16.self) != nil,
            hello.readLengthPrefixedSlice(as: UInt8.self) != nil
        else { return .unknown }
        guard hello.readableBytes > 0 else { return .offered([]) }
        guard var extensions = hello.readLengthPrefixedSlice(as: UInt16.self) else { return .unknown }
        while let type = extensions.readInteger(as: UInt16.self) {
            guard var content = extensions.readLengthPrefixedSlice(as: UInt16.self) else { return .unknown }
            guard type == Self.protocolExtension else { continue }
            guard var list = content.readLengthPrefixedSlice(as: UInt16.self) else { return .unknown }
            var names: [[UInt8]] = []
            while let name = list.readLengthPrefixedSlice(as: UInt8.self) {
                names.append(Array(name.readableBytesView))
            }
            return .offered(names)
        }
        return .offered([])
    }
}

/// Precedes TLS, and refuses clients that offer none of some protocols with the corresponding alert. (BoringSSL would
/// send it, but NIOSSL continues without a protocol.)
final class ApplicationProtocolGate: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// A record with the fatal alert 120, `no_application_protocol`.
    static let alert: [UInt8] = [21, 3, 3, 0, 2, 2, 120]
    /// The largest number of bytes that are held: a hello in records of a few bytes has more.
    private static let maximumHeldBytes = 64 << 10

    private let protocols: Set<[UInt8]>
    private var reader = ClientHelloReader()
    private var received = ByteBuffer()
    /// The charge for what has arrived, until this handler is removed.
    private var hold: Hold
    private var rest = ByteBuffer()
    private var isRejecting = false

    init(_ protocols: Set<[UInt8]>, account: (any LinkAccount)?) {
        self.protocols = protocols
        self.hold = Hold(.memory(0), of: account)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isRejecting else { return }
        var bytes = self.unwrapInboundIn(data)
        self.rest.writeImmutableBuffer(bytes)
        self.received.writeBuffer(&bytes)
        self.hold.change(to: self.received.storageCapacity + self.rest.storageCapacity)
        switch self.reader.read(&self.rest) {
        case .incomplete where self.received.readableBytes <= Self.maximumHeldBytes:
            return
        case .offered(let names) where !names.contains(where: self.protocols.contains):
            self.isRejecting = true
            self.received = ByteBuffer()
            let alert = context.channel.allocator.buffer(bytes: Self.alert)
            let context = NIOLoopBound(context, eventLoop: context.eventLoop)
            context.value.writeAndFlush(self.wrapOutboundOut(alert))
                .assumeIsolated()
                .whenComplete { _ in context.value.close(promise: nil) }
        case .incomplete, .offered, .unknown:
            let received = self.received
            self.received = ByteBuffer()
            context.fireChannelRead(self.wrapInboundOut(received))
            context.fireChannelReadComplete()
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
        }
    }
}
