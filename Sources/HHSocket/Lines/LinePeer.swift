import NIOCore

/// The receiver of a link that speaks lines. On the socket's thread.
final class LinePeer: MessagePeer {
    typealias Language = LineLanguage

    let link: Link<LineLanguage>
    private let delivery: MessageDelivery<LineLink.Line>
    /// Told the units that have not begun to leave.
    private let ended: ([LineUnit]) -> Void
    private let leaving: LeavingMessages<LineLanguage>

    init(
        _ link: Link<LineLanguage>,
        _ delivery: MessageDelivery<LineLink.Line>,
        ended: @escaping ([LineUnit]) -> Void
    ) {
        self.link = link
        self.delivery = delivery
        self.ended = ended
        self.leaving = LeavingMessages(link)
    }

    func send(_ unit: LineUnit, in turn: inout Turn) -> Bool { self.leaving.send(unit, in: &turn) }

    func unitWillBeSent(_ unit: LineUnit, in turn: inout Turn) -> Bool { self.leaving.willBeSent(unit) }

    func unitProgressed(_ outgoing: Outgoing<LineUnit>, in turn: inout Turn) { self.leaving.progressed(outgoing) }

    func hasRoom(in turn: inout Turn) -> Bool {
        self.leaving.completeSent()
        return false
    }

    func hasLeft(in turn: inout Turn) { self.leaving.completeSent() }

    func received(_ batch: inout Batch<LineLanguage>, in turn: inout Turn) throws(LinkError) {
        var isFull = self.link.hasLeftUnits && self.delivery.isFull
        while batch.goesOn {
            if isFull, self.link.leaveRest(of: self.delivery, isFull: true) { return }
            guard let bytes = try batch.next() else { return }
            isFull = self.delivery.deliver(
                LineLink.Line(bytes: bytes),
                isLast: !self.link.mayLeaveUnits,
                on: self.link.loop,
                in: &turn
            )
        }
    }

    /// A line that is too long is no violation of a protocol: the error says what it is.
    func explain(_ end: LinkEnd) -> LinkEnd {
        guard case .protocolViolation(let error) = end.cause, let tooLong = error.underlying as? LineDecoder.TooLong
        else { return end }
        let reason = SocketError(
            .frameTooLarge,
            message: "the connection was given up: \(tooLong)",
            delivery: .sentUnknown
        )
        return LinkEnd(.said(reason), end.verdict)
    }

    func linkEnded(returning units: [LineUnit], in turn: inout Turn) {
        self.leaving.fail()
        self.ended(units)
    }
}
