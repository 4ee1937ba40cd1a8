// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// A link without its units, as ``ServerPeer`` uses it.
protocol PeerLink: AnyObject {
    var id: ConnectionID { get }
    var isOpen: Bool { get }
    var context: ChannelHandlerContext? { get }
    var isWritable: Bool { get }
    /// Whether the link has ended, and its channel closes.
    var isOver: Bool { get }
    var bytesReceived: Int { get }
    var state: PeerWatch.LinkState { get }
    func charge(to account: any LinkAccount)
    func settleNow()
    func discardIncoming(in turn: inout Turn)
    func releaseRest() -> Int
    func kill()
}

extension Link: PeerLink {
    var isOpen: Bool { self.phase == .open }
    var isOver: Bool { self.phase == .ended }
    var bytesReceived: Int { self.traffic.bytesReceived }

    var state: PeerWatch.LinkState {
        let (traffic, channelBytes) = (self.traffic, self.knownChannelBytes)
        var taken = 0
        if channelBytes > 0 {
            taken =
                self.context.flatMap { AcknowledgedBytes.count(of: $0.channel) } ?? traffic.bytesSent - channelBytes
        }
        return PeerWatch.LinkState(
            bytesReceived: traffic.bytesReceived,
            bytesSent: traffic.bytesSent,
            unfinishedBytes: self.unfinishedBytes,
            channelBytes: channelBytes,
            bytesTaken: taken,
            isReadingHeld: self.isReadingHeld
        )
    }
}
