// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a client, from when it is ready until it is closed or lost, with its endpoint and its agreement.
final class ClientConnection: LinkReceiver {
    typealias Language = FrameLanguage

    let id: ConnectionID
    let link: Link<FrameLanguage>
    /// The server, and the agreement that hello has led to. Answers share it, unless their headers have fields of the
    /// server's.
    let origin: SocketResponse.Origin
    /// Outlives this object.
    private unowned let core: ClientCore
    private let pushes: PushCenter
    private let format: WireFormat
    /// The streams, where hello agreed on them.
    let streams: ConnectionStreams?
    private var arrival = StallWatch()
    private var arrivalTimer: SocketLoop.TimerID?

    init(link: Link<FrameLanguage>, origin: SocketResponse.Origin, core: ClientCore) {
        self.id = link.id
        self.link = link
        self.origin = origin
        self.core = core
        self.pushes = core.pushes
        self.format = core.format
        self.streams = core.streams(on: link, origin.agreement)
    }

    var endpoint: Endpoint { self.origin.endpoint }
    var agreement: Agreement? { self.origin.agreement }

    /// Whether a stream has this serial, or there is an incomplete payload with it.
    @inline(__always)
    func hasStreamOrPieces(of serial: UInt32) -> Bool {
        guard let streams = self.streams else { return false }
        return streams.hasStreamOrPieces(of: serial)
    }

    func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        defer {
            self.pushes.handOver(in: &turn)
            self.streams?.finishReceiving(in: &turn)
        }
        while true {
            self.core.receiveOnFastPath(&batch, on: self, in: &turn)
            if batch.isFinished() || !batch.goesOn { return }
            guard try self.receiveNext(&batch, in: &turn) else { return }
        }
    }

    /// - Returns: Whether a frame was received; false if more bytes are needed.
    private func receiveNext(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) -> Bool {
        var frame = Frame(type: 0, serial: 0)
        switch try batch.nextFrame(into: &frame) {
        case .nothing: return false
        case .sound: self.received(frame, in: &turn)
        case .corrupt(let mismatch): self.core.received(corrupt: frame, mismatch, on: self, in: &turn)
        case .malformed(let error): self.core.received(malformed: error, on: self, in: &turn)
        }
        return true
    }

    func received(_ frame: Frame, in turn: inout Turn) {
        guard self.format.isControlType(frame.type) else { return self.core.received(frame, on: self, in: &turn) }
        if let streams = self.streams, streams.receive(frame, in: &turn) { return }
        if self.format.isGoAway(frame), let departure = self.core.receivedGoAway(frame, on: self.id) {
            self.core.driver.perform(.goAway(self.id, departure, isAnnounced: true), in: &turn)
        }
        // A heartbeat that is not a ping is an answer to one of ours.
        if self.format.isServerPing(frame) { self.link.answer(ping: frame, self.format, in: &turn) }
    }

    func finishedReading(in turn: inout Turn) {
        if self.format.resynchronises { self.watchArrival(in: &turn) }
        guard let arriving = self.link.arriving(), !self.format.isControlType(arriving.type) else { return }
        self.core.isReceiving(arriving, after: self.streams?.gatheredBytes(arriving.serial) ?? 0, in: &turn)
    }

    // MARK: Frames without a call

    /// Abandons an incomplete frame to which no call's timeout applies, such as a push, if too few of its bytes arrive.
    /// In formats with separators, where a length that is too large affects only the frames that it withholds.
    private func watchArrival(in turn: inout Turn) {
        let window = TimeAmount(clamping: self.core.configuration.socket.writeStallTimeout)
        let arriving = self.link.arriving()
        let isStalled = self.arrival.isStalled(
            isWaiting: arriving.map { !self.core.isAwaited($0) } ?? false,
            passed: arriving?.receivedBytes ?? 0,
            within: window,
            now: turn.now
        )
        if isStalled {
            self.arrival.stop()
            self.link.giveUp(in: &turn) { !self.core.isAwaited($0) }
        } else if let look = self.arrival.nextLook(within: window), self.arrivalTimer == nil {
            self.arrivalTimer = self.link.loop.setTimer(look) { [weak self] turn in
                guard let self else { return }
                self.arrivalTimer = nil
                self.watchArrival(in: &turn)
            }
        }
    }

    func unitWillBeSent(_ frame: Frame, in turn: inout Turn) -> Bool {
        self.core.frameWillBeSent(type: frame.type, serial: frame.serial, on: self.id, in: &turn)
    }

    func hasRoom(in turn: inout Turn) -> Bool { self.streams?.pull(in: &turn) ?? false }

    func unitProgressed(_ outgoing: Outgoing<Frame>, in turn: inout Turn) {
        self.core.frameProgressed(
            type: outgoing.unit.type,
            serial: outgoing.unit.serial,
            payloadBytes: outgoing.sent,
            in: &turn
        )
    }
}
