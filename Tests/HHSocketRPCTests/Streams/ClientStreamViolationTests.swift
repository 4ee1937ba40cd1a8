// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The reactions of a client to a server that violates the rules of streams.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ClientStreamViolationTests {
    private typealias Peer = StreamPeer

    /// Expects that the stream is cancelled with this error, and that the connection and other streams survive.
    private func expect(
        _ code: SocketError.Code,
        of peer: Peer,
        _ kind: StreamKind = .bidirectional,
        upon frames: (UInt32) -> [Frame]
    ) async throws {
        let (other, otherSerial) = try await peer.open()
        let before = peer.server.received.filter { $0.type == Peer.type }.count
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: kind)
        let serial = try await peer.opening(before).serial
        for frame in frames(serial) { try await peer.send(frame) }
        let error = try await socketError { () throws(SocketError) in _ = try await stream.response }
        #expect(error.code == code && error.serial == serial, "\(error)")
        _ = try await peer.frames(1, FrameType.cancel, serial)
        try await peer.send(Peer.item(otherSerial, "sound"), Peer.end(otherSerial))
        #expect(try await other.allTexts().texts == ["sound"])
        try await peer.fence()
        #expect(peer.server.acceptedCount == 1 && peer.frames(FrameType.cancel, serial).count == 1)
    }

    // MARK: Windows

    @Test func overAStreamsWindowThatStreamIsOver() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000))
        try await self.expect(.protocolViolation, of: peer) { serial in
            [Peer.item(serial, "small"), Peer.item(serial, length: 980)]
        }
    }

    @Test func costOfASwallowedExcessIsGrantedOnTheConnection() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000, connectionWindow: 3_000))
        // Together far more than the connection's window.
        for _ in 0..<6 {
            try await self.expect(.protocolViolation, of: peer) { serial in [Peer.item(serial, length: 1_500)] }
        }
    }

    // MARK: Items

    @Test func anItemWithMetadataIsWrong() async throws {
        try await self.expect(.protocolViolation, of: Peer()) { serial in
            [Peer.item(serial, "x", flags: FrameType.metadataFlag)]
        }
    }

    @Test func anItemOfAServerThatDoesNotStreamIsWrong() async throws {
        try await self.expect(.protocolViolation, of: Peer(), .clientStreaming) { serial in [Peer.item(serial, "x")] }
    }

    @Test func piecesThatDifferAreWrong() async throws {
        try await self.expect(.protocolViolation, of: Peer()) { serial in
            [
                Peer.item(serial, "a", flags: FrameType.continuesFlag),
                Peer.item(serial, "b", flags: FrameType.compressionFlag),
            ]
        }
    }

    @Test func anItemThatWasNotCompressedByAgreementIsWrong() async throws {
        let peer = try await Peer(accepting: [.metadata, .streams])
        try await self.expect(.protocolViolation, of: peer) { serial in
            [Peer.item(serial, "x", flags: FrameType.compressionFlag)]
        }
    }

    @Test func anItemThatCannotBeInflatedCancelsItsStream() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        try await peer.send(Peer.item(serial, "before"), Peer.item(serial, "x", flags: FrameType.compressionFlag))
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["before"] && error?.code == .protocolViolation)
        _ = try await peer.frames(1, FrameType.cancel, serial)
        try await peer.fence()
    }

    @Test func anItemInPiecesThatIsTooLongEndsItsStreamAlone() async throws {
        let peer = try await Peer { $0.socket.maximumPayloadLength = 1_000 }
        let part = String(repeating: "x", count: 600)
        try await self.expect(.frameTooLarge, of: peer) { serial in
            [Peer.item(serial, part, flags: FrameType.continuesFlag), Peer.item(serial, part)]
        }
    }

    @Test func moreThanMayBeHeldEndsItsStreamAlone() async throws {
        let peer = try await Peer(policy: StreamPolicy(maximumHeldBytes: 500))
        try await self.expect(.queueFull, of: peer) { serial in [Peer.item(serial, length: 600)] }
    }

    @Test(arguments: [false, true]) func aDamagedPieceEndsItsStream(_ isLast: Bool) async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        try await peer.send(Peer.item(serial, "a", flags: FrameType.continuesFlag))
        let damaged = Peer.item(serial, "b", flags: isLast ? 0 : FrameType.continuesFlag)
        try await peer.server.connection(0).perform(.frame(damaged).corrupted())
        #expect(try await stream.allTexts().error?.code == .checksumMismatch)
        _ = try await peer.frames(1, FrameType.cancel, serial)
        try await peer.fence()
        #expect(peer.server.acceptedCount == 1)
    }

    // MARK: After the end

    @Test func itemsAfterTheEndAreSwallowedHoweverMany() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000, connectionWindow: 2_000))
        let (stream, serial) = try await peer.open()
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial), Peer.item(serial, "late"))
        #expect(try await stream.allTexts().texts == ["1"])
        // Together more than any window: each is granted on the connection at once.
        for _ in 0..<40 {
            try await peer.send(Peer.item(serial, length: 84), Peer.item(serial, length: 84))
            try await peer.fence()
        }
        // The items are not answered, and none counts as an answer.
        #expect(peer.frames(FrameType.cancel, serial).isEmpty && peer.frames(FrameType.credit, serial).isEmpty)
        let statistics = peer.client.statistics
        #expect(statistics.duplicateResponses == 0 && statistics.lateResponses == 0 && statistics.receivedItems == 1)
        #expect(peer.server.acceptedCount == 1)
    }

    @Test func itemsOfNoStreamAreSwallowed() async throws {
        let peer = try await Peer()
        try await peer.fence()
        try await peer.send(
            Peer.item(4_000_000, "x"),
            Peer.item(4_000_000, "half", flags: FrameType.continuesFlag),
            Peer.item(0, "x")
        )
        try await peer.fence()
        #expect(peer.server.acceptedCount == 1 && peer.client.statistics.receivedItems == 0)
        #expect(peer.client.statistics.unknownResponses == 0)
    }

    @Test(arguments: [Status.ok, .database]) func anAnswerInTheMiddleOfAnItemDropsTheHalf(_ status: Status) async throws
    {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        try await peer.send(
            Peer.item(serial, "whole"),
            Peer.item(serial, "half", flags: FrameType.continuesFlag),
            Peer.end(serial, status)
        )
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["whole"] && error?.code == (status == .ok ? nil : .database))
        // Its other half is an item after the end.
        try await peer.send(Peer.item(serial, "other half"))
        try await peer.fence()
        #expect(peer.client.statistics.receivedItems == 1)
        #expect(peer.frames(FrameType.cancel, serial).isEmpty)
    }

    // MARK: Credits

    @Test func malformedCreditsAreIgnored() async throws {
        let peer = try await Peer(windows: StreamWindows(stream: 1_000))
        let (stream, serial) = try await peer.open()
        let wrong: [Frame] = [
            StreamFrames.credit(serial: serial, 999), StreamFrames.credit(serial: serial, 0),
            StreamFrames.credit(serial: 4_000_000, .max),
            StreamFrames.credit(serial: FrameSerial.connectionCredit, 1),
            Frame(type: FrameType.credit, serial: serial, payload: ByteBuffer(repeating: 0xFF, count: 7)),
            Frame(type: FrameType.credit, serial: serial, payload: ByteBuffer(repeating: 0xFF, count: 9)),
            Frame(type: FrameType.credit, serial: serial),
        ]
        for frame in wrong { try await peer.send(frame) }
        try await peer.server.connection(0)
            .perform(.frame(StreamFrames.credit(serial: serial, 9_999)).corrupted())
        let sender = Task { for _ in 0..<11 { try await stream.send(String(repeating: "x", count: 84)) } }
        _ = try await peer.frames(10, FrameType.item, serial)
        try await peer.fence()
        #expect(peer.frames(FrameType.item, serial).count == 10)
        try await peer.send(StreamFrames.credit(serial: serial, .max))
        try await sender.value
        _ = try await peer.frames(11, FrameType.item, serial)
        #expect(peer.server.acceptedCount == 1)
    }
}
