// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// State for the fast path of a synchronous request.
struct FastPath {
    /// Whether only the session machine decides whether a synchronous handler runs.
    private(set) var isOpen: Bool
    /// Whether that is so where no frame may be the last piece of a payload.
    private var isOpenWithoutPieces: Bool
    private var arePiecesAwaited = false
    /// A larger answer is not copied, is too large, or may be compressed.
    private(set) var largestAnswer: Int
    /// The object in which handlers may set metadata of their answers, for requests that bring none.
    var extras: ServerContext.Extras?

    init(core: ServerCore, listener: ListenerSettings) {
        // The fast path neither counts requests nor keeps them in order, and needs a format whose frames are built in
        // one go.
        self.isOpen = Self.isOpen(core: core, listener: listener, isStranger: core.hasStrangers)
        self.isOpenWithoutPieces = self.isOpen
        self.largestAnswer = min(ServerConnection.largestCopiedBody, core.limits.maximumAnswerLength)
    }

    private static func isOpen(core: ServerCore, listener: ListenerSettings, isStranger: Bool) -> Bool {
        !isStranger && !core.answersInOrder && !core.hasRequestRates && listener.isStandard
    }

    /// Updates the path when the client's identity has become known or was withdrawn.
    mutating func standingChanged(isStranger: Bool, core: ServerCore, listener: ListenerSettings) {
        self.isOpenWithoutPieces = Self.isOpen(core: core, listener: listener, isStranger: isStranger)
        self.isOpen = self.isOpenWithoutPieces && !self.arePiecesAwaited
    }

    /// Updates the path when pieces of payloads are awaited, or no longer: the last piece looks like a whole frame.
    mutating func piecesChanged(areAwaited: Bool) {
        self.arePiecesAwaited = areAwaited
        self.isOpen = self.isOpenWithoutPieces && !areAwaited
    }

    /// Hello has led to an agreement.
    mutating func agreed(_ agreement: Agreement, core: ServerCore) {
        if agreement.has(.compression), let compression = core.hello.compression {
            self.largestAnswer = min(self.largestAnswer, max(compression.minimumLength, 0) - 1)
        }
    }

    mutating func takeExtras() -> ServerContext.Extras? {
        var taken: ServerContext.Extras?
        swap(&taken, &self.extras)
        return taken
    }
}

/// Synchronous requests: the slow path, which handles every case, and the fast path, which nearly all requests take.
///
/// The invariant: the fast path may be taken only where it does exactly what the slow path does. It omits checks that
/// cannot matter for the requests it takes; anyone who adds a check to the slow path has to find out whether it can
/// matter for them:
///
/// - A frame is taken only if it is whole and sound, of the type that was looked up last, whose handler is synchronous
///   and whose rules exclude no request (``RouteRules/isOpen``), and with a serial of requests. Such a frame is no
///   control frame, has no envelope, deadline or key, and is not refused. Other frames are left for the slow path.
/// - A payload whose pieces are awaited closes the path (``FastPath/piecesChanged(areAwaited:)``), since its last piece
///   looks like a whole frame. So do streams whose handler has returned and whose answer waits behind their items;
///   other streams are requests in flight (``ConnectionStreams/closesFastPath``).
/// - Requests in flight, draining and the end of the connection close it (``SessionMachine/serialsOnFastPath``), as do
///   a hello or an identity that is awaited, a rate, answers in order, and other formats (``FastPath/isOpen``).
/// - An answer is encoded immediately only if it has no metadata, cannot be compressed, is not too large, and does not
///   have to wait behind others. Any other answer is sent on the slow path. A handler's direct form
///   (``Router/DirectHandler``) differs from the handler only in that a short answer has no buffer.
///
/// Handlers run here, inside the batch, while the connection and its link are in use. This is safe because nothing that
/// a handler can call acts immediately: a push or a close only submits, and submitted work runs once the batch is over.
/// For the same reason, nothing that the fast path checked before its first request changes before its last.
extension ServerConnection {
    /// Answers requests as long as they qualify for the fast path.
    func answerOnFastPath(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) {
        guard batch.mayHaveSoundHeader, self.hot.fastPath.isOpen,
            let (handler, direct) = self.hot.cachedRoute.openHandlers,
            let serials = self.hot.machine.serialsOnFastPath, let session = self.hot.serverContext?.session
        else { return }
        let (type, largestAnswer) = (self.hot.cachedRoute.type, self.hot.fastPath.largestAnswer)
        var context = ServerContext(session: session, extras: self.hot.fastPath.takeExtras())
        var count = 0
        while let header = batch.soundHeader(ofType: type, in: serials) {
            count += 1
            if count % Self.requestsBetweenLooks == 0 { self.link.endTurnInTime(&turn) }
            let request = ServerRequest(type: header.type, serial: header.serial, body: batch.takePayload(of: header))
            do {
                let body: ByteBuffer? =
                    if let direct {
                        try direct(request, &context) { body, context in
                            self.answer(header, body, &context, largest: largestAnswer, in: &turn)
                        }
                    } else {
                        try handler(request, context)
                    }
                if let body { self.answer(header, .ok, body, &context, largest: largestAnswer, in: &turn) }
            } catch {
                let (status, body) = self.verdict(of: error, request, context)
                self.answer(header, status, body, &context, largest: largestAnswer, in: &turn)
            }
        }
        self.hot.fastPath.extras = context.takeExtras()
        guard count > 0 else { return }
        self.hot.machine.receivedOnFastPath(count)
        self.hot.watching.hasFrames = true
    }

    /// The number of requests after which the duration of the turn is checked.
    static var requestsBetweenLooks: Int { 32 }

    private func answer(
        _ header: FrameHeader,
        _ status: Status,
        _ body: ByteBuffer,
        _ context: inout ServerContext,
        largest: Int,
        in turn: inout Turn
    ) {
        guard body.readableBytes <= largest, context.isAsNew() else {
            return self.answerOnSlowPath(header, status, body, &context, in: &turn)
        }
        body.withUnsafeReadableBytes {
            self.link.sendOnFastPath(type: header.type, serial: header.serial, status: status, $0, in: &turn)
        }
    }

    /// Answers with a body that is only lent.
    private func answer(
        _ header: FrameHeader,
        _ body: UnsafeRawBufferPointer,
        _ context: inout ServerContext,
        largest: Int,
        in turn: inout Turn
    ) {
        guard body.count <= largest, context.isAsNew() else {
            return self.answerOnSlowPath(header, .ok, ByteBuffer(bytes: body), &context, in: &turn)
        }
        self.link.sendOnFastPath(type: header.type, serial: header.serial, status: .ok, body, in: &turn)
    }

    private func answerOnSlowPath(
        _ header: FrameHeader,
        _ status: Status,
        _ body: ByteBuffer,
        _ context: inout ServerContext,
        in turn: inout Turn
    ) {
        let answer = Frame(type: header.type, serial: header.serial, status: status, payload: body)
        self.finish(answer, context, run: nil, in: &turn)
        context = ServerContext(session: context.session, extras: self.extras(nil, now: turn.now))
    }

    /// Answers a request, with or without data beside its body.
    func run(
        _ handler: Router.SynchronousHandler,
        _ frame: Frame,
        _ extras: ServerContext.Extras?,
        _ number: UInt64?,
        in turn: inout Turn
    ) {
        guard let session = self.hot.serverContext?.session else { return }
        let context = ServerContext(session: session, extras: extras)
        let request = self.request(frame, body: frame.payload)
        var answer = self.emptyAnswer(to: frame)
        do {
            answer.payload = try handler(request, context)
        } catch {
            (answer.status, answer.payload) = self.verdict(of: error, request, context)
        }
        self.finish(answer, context, run: number, in: &turn)
        self.hot.slowRequests &+= 1
        if self.hot.slowRequests % Self.slowRequestsBetweenLooks == 0 { self.link.endTurnInTime(&turn) }
    }

    /// The number of requests on the slow path after which the duration of the turn is checked.
    private static var slowRequestsBetweenLooks: UInt8 { 8 }

    /// The end of both ways.
    private func finish(_ answer: consuming Frame, _ context: ServerContext, run: UInt64?, in turn: inout Turn) {
        if !self.core.takes(answerOf: answer.payload.readableBytes, type: answer.type, context.session) {
            self.hot.machine.statistics.handlerErrors += 1
            (answer.status, answer.payload) = (.illegalLength, ByteBuffer())
        }
        if let agreement = self.greeting.agreement {
            let isCompressible = answer.payload.readableBytes <= Self.largestBodyCompressedOnLoop
            let compression = isCompressible ? self.core.hello.compression : nil
            Self.seal(&answer, context.answerMetadata, agreement, compression)
        }
        self.answer(answer, run, in: &turn)
    }
}
