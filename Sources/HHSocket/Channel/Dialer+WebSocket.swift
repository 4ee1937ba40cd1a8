// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOCore

/// Opening a WebSocket on a connection that is made.
extension Dialer {
    /// Opens a WebSocket, or follows the server to where it redirects.
    ///
    /// - Returns: The channel on which the carriage is, which is another one after a redirect.
    func open(
        _ channel: any Channel,
        for id: ConnectionID,
        plan: Plan,
        redirects: RedirectRules
    ) -> EventLoopFuture<any Channel> {
        self.openings.begin(id, on: self.eventLoop)
            .flatMap { self.request(id, redirects) }
            .flatMap { request in self.open(channel, with: request, for: id, redirects: redirects) }
            .flatMap { location in
                guard let location else { return self.eventLoop.makeSucceededFuture(channel) }
                channel.close(promise: nil)
                do {
                    var redirects = redirects
                    try redirects.follow(to: location)
                    let plan = try self.plan(plan.endpoint, to: Endpoint(location), redirects: redirects)
                    return self.reach(id, plan)
                } catch {
                    return self.eventLoop.makeFailedFuture(error)
                }
            }
    }

    /// Makes the request, which the user may change.
    private func request(_ id: ConnectionID, _ redirects: RedirectRules) -> EventLoopFuture<OpeningRequest> {
        guard self.attempts[id] != nil else { return self.eventLoop.makeFailedFuture(CancellationError()) }
        self.attempts[id]?.stage = .opening
        let options = self.configuration.webSocket
        let target = redirects.target
        let request = WebSocketRequest(
            url: target.url,
            path: target.requestTarget,
            headers: redirects.isOfOneOrigin ? options.headers : [],
            isRedirected: redirects.count > 0
        )
        guard let prepare = options.prepare else {
            return self.eventLoop.makeCompletedFuture { try self.request(request, target) }
        }
        let prepared = AbandonableResult<WebSocketRequest>(on: self.eventLoop)
        self.begin(.preparing, of: id, awaiting: prepared)
        prepared.complete { try await prepare(request) }
        return prepared.futureResult.flatMapThrowing { request in
            self.attempts[id]?.stage = .opening
            return try self.request(request, target)
        }
    }

    private func offer() throws(SocketError) -> WebSocketOffer {
        if let offer = try self.maker.webSocketOffer() { return offer }
        throw .invalid("this language is not spoken on WebSockets; use a host and a port")
    }

    private func request(_ request: WebSocketRequest, _ target: WebSocketTarget) throws -> OpeningRequest {
        let offer = try self.offer()
        var generator = DriverGenerator(self.world)
        return try OpeningRequest(
            target: target.requesting(request.path),
            key: OpeningKey(using: &generator),
            headers: HTTPFields(request.headers.map { HTTPField(name: $0.name, value: $0.value) }),
            subprotocols: offer.subprotocols,
            origin: self.configuration.webSocket.origin,
            deflate: offer.compression?.policy
        )
    }

    /// - Returns: The place to which the server redirects; nil if the WebSocket is open.
    private func open(
        _ channel: any Channel,
        with request: OpeningRequest,
        for id: ConnectionID,
        redirects: RedirectRules
    ) -> EventLoopFuture<WebSocketTarget?> {
        guard self.attempts[id] != nil else { return self.eventLoop.makeFailedFuture(CancellationError()) }
        let done = self.eventLoop.makePromise(of: WebSocketTarget?.self)
        let opening = WebSocketOpening(
            request,
            clock: Self.secondsSince1970,
            time: self.configuration.time,
            eventLoop: self.eventLoop
        ) { result in
            switch result {
            case .success(.accepted(var agreement)):
                agreement.isOfAnotherOrigin = !redirects.isOfOneOrigin
                do {
                    try self.accept(agreement, on: channel, for: id)
                    // The callback of this promise adds the link.
                    done.succeed(nil)
                } catch {
                    done.fail(error)
                }
            case .success(.redirect(let target)):
                done.succeed(target)
            case .failure(let error):
                done.fail(error)
            }
        }
        self.attempts[id]?.opening = opening
        do {
            try channel.pipeline.syncOperations.addHandler(opening)
        } catch {
            // It has been closed already.
            done.fail(OpeningError.closedEarly)
        }
        return done.futureResult
    }

    private func accept(_ agreement: OpeningAgreement, on channel: any Channel, for id: ConnectionID) throws {
        let offer = try self.offer()
        guard agreement.subprotocol != nil || !offer.requiresSubprotocol else {
            throw OpeningError.subprotocolMissing(offer.subprotocols)
        }
        self.attempts[id]?.agreement = agreement
        guard offer.isCarriage else { return }
        try channel.pipeline.syncOperations.addHandler(
            WebSocketCarriage(
                role: .client,
                acceptsText: offer.acceptsText,
                deflate: agreement.deflate,
                compression: offer.compression,
                time: self.configuration.time,
                account: nil
            )
        )
    }

    private static func secondsSince1970() -> Int64 { Int64(time(nil)) }
}
