// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import NIOEmbedded
import Testing

/// The end of a link within a turn of its own.
@Suite struct LinkEndTests {
    /// A transport that breaks when it is written to: like NIO's, it closes the channel within the write.
    private final class BrokenTransport: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        func flush(context: ChannelHandlerContext) { context.close(promise: nil) }
    }

    /// A peer that answers each text, and flushes at once.
    private final class Peer: LinkReceiver, LinkHost {
        typealias Language = NoteLanguage

        var link: Link<NoteLanguage>?
        var log: [String] = []

        func received(_ batch: inout Batch<NoteLanguage>, in turn: inout Turn) throws(LinkError) {
            while let note = try batch.next() {
                self.link?.send(note, in: &turn)
                self.link?.flush(in: &turn)
                self.log.append("answered \(note.text)")
            }
        }

        func linkEnded(returning units: [Note], in turn: inout Turn) { self.log.append("returned \(units.count)") }

        func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
            switch change {
            case .ended: self.log.append("ended")
            case .gone: self.log.append("gone")
            case .active, .inputClosed, .alive, .beat, .beatSent, .beatFailed: break
            }
        }
    }

    private func bytes(of note: Note) -> ByteBuffer {
        var bytes = SendBytes()
        var language = NoteLanguage()
        _ = language.begin(note, into: &bytes)
        return bytes.takeGathered() ?? ByteBuffer()
    }

    /// The channel reports no end of the read whose answer has closed it.
    @Test func anEndWithinAReadIsReportedBeforeTheChannelIsGone() throws {
        let channel = EmbeddedChannel(handler: BrokenTransport())
        let peer = Peer()
        let link = Link(
            id: ConnectionID(number: 1),
            loop: SocketLoop(eventLoop: channel.embeddedEventLoop),
            language: NoteLanguage(),
            settings: LinkSettings<Note>(maximumQueuedBytes: .max, beats: { _, _ in nil }, makeBeat: { .beat }),
            host: peer
        )
        peer.link = link
        link.receiver = peer
        try channel.pipeline.syncOperations.addHandler(link)
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.pipeline.fireChannelRead(self.bytes(of: .text("one")))
        #expect(peer.log == ["answered one"])
        channel.embeddedEventLoop.run()
        #expect(peer.log == ["answered one", "returned 0", "ended", "gone"])
    }
}
