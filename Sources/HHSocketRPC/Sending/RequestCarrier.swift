// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The carrier of plain requests: seals them, compresses large bodies on another thread, and sends long ones in pieces.
///
/// While its body is compressed, a call is in the table without an attempt. A smaller request may overtake a large one
/// that was resumed first; large ones keep their order.
final class RequestCarrier: CallCarrier {
    private let driver: any ConnectionDriver
    private let links: ClientLinks
    private let rules: FrameRules
    private let sealer: RequestSealer
    private let bodies: BodyWork
    private let timeouts: CallTimeouts

    init(
        _ rules: FrameRules,
        _ sealer: RequestSealer,
        driver: any ConnectionDriver,
        links: ClientLinks,
        bodies: BodyWork,
        timeouts: CallTimeouts
    ) {
        self.driver = driver
        self.links = links
        self.rules = rules
        self.sealer = sealer
        self.bodies = bodies
        self.timeouts = timeouts
    }

    func check(_ request: SocketRequest, of flight: CallFlight, in turn: inout Turn) throws(SocketError) {
        try self.sealer.check(request, now: turn.now, endpoint: self.driver.currentEndpoint)
    }

    func deadline(of request: SocketRequest, within limit: NIODeadline, now: NIODeadline) -> NIODeadline { limit }

    // MARK: Sending

    func carry(
        _ departure: Departure,
        serial: UInt32,
        on connection: ClientConnection?,
        for engine: CallEngine,
        in turn: inout Turn
    ) throws(SocketError) -> Carried {
        let (flight, request) = (departure.flight, departure.flight.request)
        let peer = connection?.origin
        if flight.state.deflated == nil, let policy = try self.sealer.mustDeflate(request, for: peer) {
            self.bodies.deflate(request.body, by: policy, of: departure, for: engine)
            return .parked
        }
        let sealed = try self.sealer.seal(
            request,
            of: flight,
            for: peer,
            now: turn.now,
            endpoint: self.driver.currentEndpoint
        )
        let frame = Frame(
            type: sealed.type,
            serial: serial,
            payload: sealed.payload,
            customFields: try self.sealer.customFields(of: request)
        )
        let isLong = frame.payload.readableBytes > StreamFrames.maximumPieceLength && frame.customFields == nil
        if isLong, engine.hot.link != nil, let streams = connection?.streams {
            // In pieces, between which other frames may be sent.
            try self.rules.check(frame)
            try self.rules.check(frame, behind: streams.with { $0.waitingBytes }, to: connection?.endpoint)
            // Until its first piece leaves.
            engine.isQueued(departure.key)
            streams.change(in: &turn) { $0.sendPlain(frame, priority: departure.priority) }
            return .reported
        }
        guard engine.hot.link != nil, let connection else { throw self.driver.notConnected() }
        try self.rules.check(frame)
        return try self.rules.send(frame, departure.priority, on: connection.link, to: connection.endpoint, in: &turn)
            ? .sent : .queued
    }

    func abandon(_ attempt: CallAttempt, in turn: inout Turn) {
        guard let serial = attempt.serial else { return }
        let connection = self.links.connection(attempt.connection)
        // A request whose sending has begun is cancelled below.
        connection?.dropPieces(of: serial)
        guard attempt.phase == .sent, var frame = self.rules.format.cancel(serial: serial) else { return }
        let request = attempt.flight.request
        if let body = request.options.cancellationBody { frame.payload = body }
        frame.customFields = try? self.sealer.customFields(of: request)
        // If it cannot be sent, the connection is stuck, and the server will notice that.
        connection?.link.send(frame, .control, in: &turn)
    }

    // MARK: Ends

    func mayRepeat(_ flight: CallFlight) -> Bool { true }

    func attemptFailed(_ flight: CallFlight, _ error: SocketError) {}

    func timedOut(_ attempt: CallAttempt, by limit: TimeLimit, for engine: CallEngine) -> SocketError {
        self.timeouts.error(of: attempt, by: limit, for: engine)
    }

    func completes(_ flight: CallFlight) {}
}

extension RequestSealer {
    /// Puts the request of a call's attempt into its envelope, and notes the length of the payload.
    func seal(
        _ request: SocketRequest,
        of flight: CallFlight,
        for peer: SocketResponse.Origin?,
        now: NIODeadline,
        endpoint: @autoclosure () -> Endpoint?
    ) throws(SocketError) -> Envelope.Sealed {
        let sealed = try self.seal(
            request,
            deflated: flight.state.deflated,
            context: flight.state.span?.context,
            for: peer,
            now: now,
            endpoint: endpoint()
        )
        flight.isSealed(sealed)
        return sealed
    }
}

extension BodyWork {
    /// Compresses the body of a parked call, and then continues the call.
    func deflate(
        _ body: ByteBuffer,
        by policy: CompressionPolicy,
        of departure: Departure,
        for engine: CallEngine
    ) {
        let (flight, key) = (departure.flight, departure.key)
        self.deflate(body, level: policy.level) { deflated, turn in
            // Otherwise the call has completed meanwhile.
            guard engine.isParked(key) else { return }
            flight.isDeflated(deflated.map { .smaller($0) } ?? .notSmaller)
            engine.continueParked(flight, key, in: &turn)
        }
    }
}
