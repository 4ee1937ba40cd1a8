import HHSocket
import HHSocketHello
import NIOCore

/// One request on its way through a handler that is a task, from anywhere to the answer's frame.
struct HandlerRun: Sendable {
    let handler: Router.Handler
    let request: ServerRequest
    let context: ServerContext
    /// With the request's type and serial, and the header's custom fields.
    let emptyAnswer: Frame
    let number: UInt64
    let agreement: Agreement?
    let core: ServerCore

    /// Runs the handler, and says what is to be sent. In a task of its own, which is cancelled when nobody waits any more.
    func run() async -> CompletionQueue.Completion {
        let begun = self.core.limiter == nil ? nil : NIODeadline.now()
        var kind = CompletionQueue.Kind.ordinary
        let kept: KeptAnswer
        if let deadline = self.context.deadline, deadline <= .now() {
            kind = .late
            kept = KeptAnswer(status: .deadlineExceeded, body: ByteBuffer(), metadata: [:])
        } else if let key = self.context.idempotencyKey {
            // A handler that returns has done its work, though nobody waited for it any more: run again it would do it twice.
            // One that throws after it was cancelled may not have.
            var hasReturned = false
            let (answer, isRepeat) = await self.core.idempotentAnswers.answer(
                IdempotencyKey(identity: self.context.session.identity, type: self.request.type, key: key),
                { await self.answer(&kind, &hasReturned) },
                isKept: { !Self.isRepeatable($0.status) && (hasReturned || !Task.isCancelled) }
            )
            kept = answer
            if isRepeat { kind = .repeated }
        } else {
            var hasReturned = false
            kept = await self.answer(&kind, &hasReturned)
        }
        var answer = self.emptyAnswer
        answer.status = kept.status
        answer.payload = kept.body
        // Here, because compressing takes its time.
        SessionHandler.seal(&answer, kept.metadata, self.agreement, self.core.hello.compression)
        self.core.finished(begun: begun, wasCancelled: Task.isCancelled)
        return CompletionQueue.Completion(
            answer: answer,
            run: self.number,
            requestBytes: self.request.body.readableBytes,
            kind: kind
        )
    }

    private func answer(_ kind: inout CompletionQueue.Kind, _ hasReturned: inout Bool) async -> KeptAnswer {
        var status = Status.ok
        var body = ByteBuffer()
        do {
            body = try await self.handler(self.request, self.context)
            hasReturned = true
        } catch let error as StatusError {
            (status, body) = (error.status, error.body)
        } catch {
            status = .unknown
            // What a cancelled handler throws is no failure.
            if !Task.isCancelled {
                kind = .failed
                Self.log(error, self.request, self.context)
            }
        }
        return KeptAnswer(status: status, body: body, metadata: self.context.answerMetadata)
    }

    /// Whether the answer says that the request was not executed.
    private static func isRepeatable(_ status: Status) -> Bool {
        [.undefinedType, .overloaded, .draining].contains(status)
    }

    static func log(_ error: any Error, _ request: ServerRequest, _ context: ServerContext) {
        context.logger.error(
            "a handler failed",
            metadata: ["type": "\(request.type)", "serial": "\(request.serial)", "error": "\(error)"]
        )
    }
}
