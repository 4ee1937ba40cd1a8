// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

@testable import HHSocketServer

/// A language that the server does not have: it echoes lines, and says goodbye in one. It names no rule.
final class EchoOfLines: LinkReceiver, PeerSession {
    typealias Language = LineLanguage

    private let peer: ServerPeer
    private let link: Link<LineLanguage>
    /// Done for each line before it is echoed, with its length.
    private let work: (Int) -> Void

    init(_ peer: ServerPeer, work: @escaping (Int) -> Void) {
        self.peer = peer
        self.work = work
        let language = LineLanguage(delimiter: .lf, maximumLength: 1 << 20)
        self.link = peer.makeLink(language, LinkSettings(maximumQueuedBytes: .max))
        self.link.receiver = self
        peer.serve(self, over: self.link)
    }

    func add(to operations: ChannelPipeline.SynchronousOperations) throws {
        try self.peer.add(self.link, to: operations)
    }

    func received(_ batch: inout Batch<LineLanguage>, in turn: inout Turn) throws(LinkError) {
        while let line = try batch.next() {
            self.work(line.readableBytes)
            self.link.send(LineUnit(line), in: &turn)
        }
    }

    func state() -> PeerState {
        PeerState(
            units: self.link.traffic.framesReceived,
            isIntroduced: true,
            pieceBytes: nil,
            isBusy: false,
            mayListen: false,
            isHeldByUs: false,
            isHeldByPeer: false,
            waitingBytes: self.link.unwrittenBytes + self.link.knownChannelBytes,
            controlFrames: 0
        )
    }

    func say(_ farewell: Farewell, in turn: inout Turn) -> Bool {
        self.link.send(LineUnit(ByteBuffer(string: farewell.reason)), in: &turn)
        self.link.close(.done, in: &turn)
        return true
    }

    func drain(_ policy: ShutdownPolicy, in turn: inout Turn) { self.link.close(.done, in: &turn) }
    func inputClosed(in turn: inout Turn) { self.link.close(.done, in: &turn) }
    func opened(_ port: PeerPort, in turn: inout Turn) {}
    func ended(_ reason: ServerCloseReason) {}
    func beatSent(in turn: inout Turn) {}
    func identityChanged(in turn: inout Turn) {}
    func stop(in turn: inout Turn) -> Bool { false }
    func giveUpPartial(in turn: inout Turn) -> Bool { false }
    func push(_ push: SharedPush, in turn: inout Turn) -> Bool { false }
    func rest() {}
    var streamHost: (any StreamHost)? { nil }
    var workOfOurs: Int { 0 }
}
