import HHSocket
import HHSocketHello
import NIOCore

/// What client and server agree on, and the envelopes that follow from it.
extension SessionHandler {
    /// The client's hello has come.
    func receiveHello(_ frame: Frame) {
        guard !self.hasGreeted, let session = self.serverContext?.session else {
            self.machine.statistics.ignoredControlFrames += 1
            return
        }
        self.hasGreeted = true
        // It has come in time, however long we take to find out who it is.
        self.watch.firstFrameCame()
        let settings = self.core.hello
        let answer = HelloAnswer.answer(to: frame.payload, features: settings.features)
        guard answer.agreement != nil, let authenticate = settings.authenticate else { return self.greet(answer) }
        let token = [UInt8](answer.hello?.sessionToken ?? .init())
        let core = self.core
        // Bounded, as there is one for each connection, which it does not outlive.
        self.greeting = Task {
            var answer = answer
            var isOurFault = false
            do {
                session.authenticate(as: try await authenticate(token, session))
            } catch let error as StatusError {
                answer.refuse(error.status == .ok ? .unknown : error.status)
            } catch {
                isOurFault = true
                answer.refuse(.overloaded)
                if !Task.isCancelled {
                    core.peerLog.write(
                        .error,
                        "a client cannot be authenticated",
                        ["error": "\(error)"],
                        by: session.logger
                    )
                }
            }
            session.onLoop { [answer, isOurFault] handler in
                handler.greet(answer)
                handler.scheduleFlush()
                // Left connected it would be nobody for as long as the connection lasts.
                if isOurFault { handler.dismissUnauthenticated() }
            }
        }
    }

    /// Sends a client away of which we could not find out who it is. Not all come back at the same moment.
    private func dismissUnauthenticated() {
        let wait = Duration.milliseconds(Int64.random(in: 1_000...5_000))
        self.dismiss(GoAwayNotice(reason: "authentication is not available", retryAfter: wait))
    }

    private func greet(_ answer: HelloAnswer) {
        self.greeting = nil
        guard self.phase == .open else { return }
        self.machine.statistics.hellos += 1
        self.send(
            Frame(type: FrameType.hello, serial: FrameSerial.hello, status: answer.status, payload: answer.payload)
        )
        guard let agreement = answer.agreement else {
            // It may say hello again, and where it must, it is waited for as at the beginning.
            self.hasGreeted = false
            if self.core.hello.isRequired { self.watch.awaitFirstFrame(now: .now()) }
            return
        }
        self.agreement = agreement
        self.decoder.agreedFlags = agreement.flags
        self.serverContext?.session.agree(agreement)
        self.isPlain = self.answersAsTheyCome
        self.plainExtras = self.extras(nil)
        if agreement.has(.compression), let compression = self.core.hello.compression {
            self.largestPlainAnswer = min(Self.largestCopiedBody, max(compression.minimumLength, 0) - 1)
        }
    }

    /// What stands in a request's frame around its body, which stays compressed if it is.
    ///
    /// - Returns: Nil if that cannot be found out: the request has been answered.
    func open(_ frame: Frame) -> Envelope? {
        do throws(EnvelopeError) {
            return try Envelope.openCompressed(
                type: frame.type,
                payload: frame.payload,
                agreedFlags: self.agreement?.flags ?? 0
            )
        } catch {
            var opened = frame
            opened.type &= ~FrameType.allFlags
            self.order?.reserve()
            self.machine.receivedIllegal()
            self.answer(self.emptyAnswer(to: opened, .illegalFormat), self.machine.lastRun)
            return nil
        }
    }

    /// What a handler is told beside the request; nil where nothing was agreed on.
    func extras(_ metadata: WireMetadata?) -> ServerContext.Extras? {
        guard let agreement = self.agreement, agreement.has(.metadata) else { return nil }
        guard let metadata else { return ServerContext.Extras() }
        let key = metadata.idempotencyKey
        return ServerContext.Extras(
            metadata: metadata.values,
            deadline: metadata.hasDeadline
                ? NIODeadline.now().advanced(clamping: .milliseconds(Int64(clamping: metadata.deadline))) : nil,
            idempotencyKey: key.isEmpty || !agreement.has(.idempotency) ? nil : key
        )
    }

    /// Puts around an answer's body what was agreed on.
    static func seal(
        _ answer: inout Frame,
        _ metadata: [String: String],
        _ agreement: Agreement?,
        _ compression: CompressionPolicy?
    ) {
        guard let agreement else { return }
        let values = metadata.isEmpty || !agreement.has(.metadata) ? nil : WireMetadata(values: metadata)
        let policy = agreement.has(.compression) ? compression : nil
        guard values != nil || policy != nil else { return }
        // What is too much metadata is left out: the body matters more.
        let sealed =
            (try? Envelope.seal(answer, metadata: values, compression: policy))
            ?? (try? Envelope.seal(answer, metadata: nil, compression: policy))
        if let sealed { answer = sealed }
    }
}
