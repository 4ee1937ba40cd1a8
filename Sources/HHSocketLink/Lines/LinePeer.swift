// SPDX-License-Identifier: Apache-2.0
/// The receiver of a link that speaks lines. On the socket's thread.
package final class LinePeer: MessagePeer {
    package typealias Language = LineLanguage

    /// The number of bytes above which lines are dropped that arrive while the link closes and readers are behind.
    private static let maximumLeftBytes = 32 << 20

    package let link: Link<LineLanguage>
    private let endpoint: Endpoint
    private let delivery: MessageDelivery<ReceivedLine>
    /// Receives the units whose sending has not begun.
    private let ended: ([LineUnit]) -> Void
    package let begun: BegunMessages<LineLanguage>

    package init(
        _ link: Link<LineLanguage>,
        to endpoint: Endpoint,
        delivery: MessageDelivery<ReceivedLine>,
        ended: @escaping ([LineUnit]) -> Void
    ) {
        self.link = link
        self.endpoint = endpoint
        self.delivery = delivery
        self.ended = ended
        self.begun = BegunMessages(link)
    }

    package func received(_ batch: inout Batch<LineLanguage>, in turn: inout Turn) throws(LinkError) {
        let isLast = !self.link.mayDeferUnits
        var isFull = (self.link.hasDeferredUnits || isLast) && self.delivery.isFull
        while batch.continues {
            if isFull, self.link.deferRest(of: self.delivery, isFull: true) || self.keepsRest { return }
            guard let bytes = try batch.next() else { return }
            isFull = self.delivery.deliver(
                ReceivedLine(bytes: bytes),
                isLast: isLast,
                on: self.link.loop,
                in: &turn
            )
        }
    }

    /// Whether the remaining lines go to the inbox when the link ends.
    private var keepsRest: Bool {
        guard case .inbox = self.delivery else { return false }
        return self.link.unfinishedBytes <= Self.maximumLeftBytes
    }

    /// A line that is too long is not a violation of a protocol, so the error describes it. The same holds for an
    /// incomplete line at the end.
    package func explain(_ end: LinkEnd) -> LinkEnd {
        let cause: LinkEnd.Cause
        switch end.cause {
        case .protocolViolation(let error):
            guard let tooLong = error.underlying as? LineDecoder.TooLong else { return end }
            cause = self.said(.frameTooLarge, "given up: \(tooLong)")
        case .closedByPeer(_, let hasReceived):
            let unfinished = self.link.hot.language.decoder.unfinishedBytes
            guard unfinished > 0 else {
                return LinkEnd(.closedByPeer(unfinishedBytes: 0, hasReceived: hasReceived), end.verdict)
            }
            cause = self.said(
                .connectionLost,
                "lost: the server closed it in the middle of a line, after \(unfinished) bytes of it"
            )
        default:
            return end
        }
        return LinkEnd(cause, end.verdict)
    }

    private func said(_ code: SocketError.Code, _ what: String) -> LinkEnd.Cause {
        .said(
            SocketError(code, message: "the connection to \(self.endpoint) was \(what)", delivery: .sentUnknown)
        )
    }

    package func linkEnded(returning units: [LineUnit], in turn: inout Turn) {
        self.begun.fail()
        self.ended(units)
        if case .inbox(let inbox) = self.delivery {
            inbox.append(rest: LineRest(decoder: self.link.hot.language.decoder))
        }
    }
}

/// The remaining lines of an ended link.
private struct LineRest: InboxRest {
    var decoder: LineDecoder

    var memory: Int { self.decoder.heldBytes }

    mutating func next() -> ReceivedLine? {
        // One that is too long is none.
        (try? self.decoder.next()).map { ReceivedLine(bytes: $0) }
    }
}
