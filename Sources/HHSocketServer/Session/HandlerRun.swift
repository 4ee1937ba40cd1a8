// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The run of one request through an asynchronous handler, on any thread, up to the answer's frame.
struct HandlerRun: Sendable {
    /// The reason for which no handler is run.
    private struct Refusal: Error {
        var status: Status
        var kind: CompletionQueue.Kind
    }

    let handler: Router.Handler
    let executor: HandlerExecutor
    /// The request as received: with a compressed body if ``isCompressed`` is set.
    let request: ServerRequest
    let requestCost: RequestCost
    let isCompressed: Bool
    /// Whether a handler has its type.
    let hasHandler: Bool
    let context: ServerContext
    /// An empty answer with the request's type and serial, and the header's custom fields.
    let emptyAnswer: Frame
    let number: UInt64
    let agreement: Agreement?
    let load: LedgerAccount
    let parts: ServerParts
    let counters: LoopCounters
    let slot: RequestSlot
    /// The stream that the request has opened.
    let exchange: StreamExchange?

    /// - Parameters:
    ///   - handling: The handler of the route.
    ///   - answer: An empty answer.
    init(
        _ handling: Router.Route.Handling,
        for arrival: consuming ReceivedRequest,
        _ gate: RequestGate,
        of session: ServerSession,
        answer: Frame,
        number: UInt64,
        cost: RequestCost,
        agreement: Agreement?,
        peer: ServerPeer,
        slot: RequestSlot,
        exchange: StreamExchange?
    ) {
        switch handling {
        case .asynchronous(let handler, let executor), .stream(let handler, let executor, _):
            (self.handler, self.executor) = (handler, executor)
        case .synchronous(let handler, _):
            (self.handler, self.executor) = ({ try handler($0, $1) }, .connection)
        }
        self.requestCost = cost
        self.isCompressed = arrival.isCompressed
        self.hasHandler = arrival.hasHandler
        var context = ServerContext(session: session, extras: arrival.extras)
        if let exchange { context[ServedStream.self] = exchange }
        self.context = context
        self.request = gate.request(arrival.frame)
        self.emptyAnswer = answer
        self.number = number
        self.agreement = agreement
        self.load = peer.account
        self.parts = peer.parts
        self.counters = peer.loop.counters
        self.slot = slot
        self.exchange = exchange
    }

    /// Runs the handler and returns the answer to be sent. Called in its own task, which is cancelled when the answer
    /// is no longer needed.
    func run() async -> CompletionQueue.Completion {
        let begun = self.slot.begin()
        var kind = CompletionQueue.Kind.ordinary
        var isRun = false
        let kept: KeptAnswer
        do throws(Refusal) {
            let inflated = try await self.inflatedBody()
            var request = self.request
            if let inflated { request.body = inflated.bytes }
            kept = await self.answer(request, kind: &kind, isRun: &isRun)
            // It is charged until here.
            withExtendedLifetime(inflated) {}
        } catch {
            kept = KeptAnswer(status: error.status, body: ByteBuffer(), metadata: [:])
            kind = error.kind
        }
        self.exchange?.handlerHasReturned()
        self.notifyObservers(kind, kept.status)
        var answer = self.emptyAnswer
        answer.status = kept.status
        // A server that streams has no other payload than its items.
        let isStatusOnly = self.exchange?.kind.serverStreams ?? false
        if isStatusOnly, kept.body.readableBytes > 0 { self.logDroppedBody(kept) }
        answer.payload = isStatusOnly ? ByteBuffer() : kept.body
        // Compressed here, because it is slow.
        if answer.payload.readableBytes > AnswerSeal.largestBodyCompressedOnLoop,
            self.agreement?.has(.compression) == true
        {
            answer = await self.executor.elsewhere { [answer] in self.sealed(answer, kept.metadata) }
        } else {
            answer = self.sealed(answer, kept.metadata)
        }
        // The client decides how long a stream lasts.
        self.slot.release(begun: begun, reportsTime: isRun && !Task.isCancelled && self.exchange == nil)
        let held = answer.payload.storageCapacity
        let answerCost = held > ConnectionCost.freeAnswer ? held : 0
        if answerCost > 0 { self.load.held(answerCost) }
        return CompletionQueue.Completion(
            answer: answer,
            run: self.number,
            requestCost: self.requestCost,
            answerCost: answerCost,
            kind: kind
        )
    }

    private func sealed(_ answer: Frame, _ metadata: [String: String]) -> Frame {
        var answer = answer
        AnswerSeal.seal(&answer, metadata: metadata, by: self.agreement, self.parts.rules.hello.compression)
        return answer
    }

    /// Notifies the observers that the request was refused, if it was and no middleware has seen it.
    private func notifyObservers(_ kind: CompletionQueue.Kind, _ status: Status) {
        switch kind {
        case .ordinary, .failed, .repeated: return
        case .late, .illegal, .waiting, .overload: break
        }
        let header = RequestHeader(
            type: self.request.type,
            serial: self.request.serial,
            length: self.request.body.readableBytes,
            isCompressed: self.isCompressed,
            fields: self.request.header,
            hasHandler: self.hasHandler,
            extras: self.context.extras
        )
        self.slot.rules.refused(header, with: status, in: self.context.session)
    }

    /// The body as the handler gets it, if it was compressed.
    private func inflatedBody() async throws(Refusal) -> ChargedInflation.Body? {
        if let deadline = self.context.deadline, deadline <= self.parts.books.time.now() {
            throw Refusal(status: .deadlineExceeded, kind: .late)
        }
        guard self.isCompressed else { return nil }
        let limit = min(self.parts.rules.limits.maximumPayloadLength, self.slot.rules.maximumBodyLength ?? .max)
        do throws(ChargedInflation.Failure) {
            return try await self.executor.elsewhere { () async throws(ChargedInflation.Failure) in
                try await ChargedInflation.inflate(self.request.body, limit: limit, chargedTo: self.load)
            }
        } catch {
            let kind: CompletionQueue.Kind =
                switch error {
                case .overload, .cancelled: .overload
                case .tooLong, .malformed: .illegal
                }
            throw Refusal(status: error.status, kind: kind)
        }
    }

    /// Returns the handler's answer, or the one that was kept for the key.
    ///
    /// - Parameter isRun: Whether this request's handler has run, rather than another request's.
    private func answer(
        _ request: ServerRequest,
        kind: inout CompletionQueue.Kind,
        isRun: inout Bool
    ) async -> KeptAnswer {
        // A handler that returns has done its work, even if its answer is no longer needed: run again, it would do the
        // work twice. A handler that throws after it was cancelled may not have done it.
        var hasReturned = false
        guard let key = self.context.idempotencyKey else {
            isRun = true
            return await self.handle(request, kind: &kind, hasReturned: &hasReturned)
        }
        let identity = self.context.session.identity
        let outcome = await self.parts.services.idempotentAnswers.answer(
            for: IdempotencyKey(identity: identity, key: key),
            request: RequestFingerprint(type: request.type, body: request.body),
            of: self.owner(identity),
            run: { await self.handle(request, kind: &kind, hasReturned: &hasReturned) },
            isKept: { $0.status.isKept && (hasReturned || !Task.isCancelled) }
        )
        if outcome.isTooLarge { self.counters.count(.idempotentAnswersTooLarge) }
        if outcome.forgotten > 0 { self.counters.count(.idempotentAnswersForgotten, by: outcome.forgotten) }
        switch outcome.source {
        case .handler: isRun = true
        case .repeat: kind = .repeated
        case .overload: kind = .waiting
        case .contradiction: kind = .illegal
        }
        return outcome.answer
    }

    /// The owner that is charged for the answer, if it is kept.
    private func owner(_ identity: String?) -> IdempotencyOwner {
        if let identity { return .identity(identity) }
        return ClientAddress(self.context.session.remoteAddress).map { .address($0) } ?? .local
    }

    private func handle(
        _ request: ServerRequest,
        kind: inout CompletionQueue.Kind,
        hasReturned: inout Bool
    ) async -> KeptAnswer {
        var status = Status.ok
        var body = ByteBuffer()
        do {
            body = try await self.handler(request, self.context)
            hasReturned = true
            if !self.parts.rules.takes(answerOf: body.readableBytes, type: request.type, self.context.session) {
                (status, body, kind) = (.illegalLength, ByteBuffer(), .failed)
            }
        } catch let error as StatusError {
            (status, body) = (error.status, error.body)
        } catch {
            // Transient: an unexpected failure, such as an unreachable database, may be over later.
            status = .unknown
            // An error that a cancelled handler throws is no failure, nor is the end of its stream, which it may see
            // first.
            if !Task.isCancelled, !(error is CancellationError && self.exchange?.isOver == true) {
                kind = .failed
                Self.log(error, request: request, context: self.context)
            }
        }
        return KeptAnswer(status: status, body: body, metadata: self.context.answerMetadata)
    }

    private func logDroppedBody(_ answer: KeptAnswer) {
        self.parts.books.peerLog.write(
            .warning,
            "the body of a stream's end was dropped",
            metadata: [
                "type": "\(self.request.type)",
                "status": "\(answer.status)",
                "bytes": "\(answer.body.readableBytes)",
            ],
            by: self.context.logger
        )
    }

    static func log(_ error: any Error, request: ServerRequest, context: ServerContext) {
        context.session.peerLog.write(
            .error,
            "a handler failed",
            metadata: ["type": "\(request.type)", "serial": "\(request.serial)", "error": "\(error)"],
            by: context.logger
        )
    }
}
