// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// State for the fast path of a synchronous request.
struct FastPath {
    /// Whether nothing but the machine has a say in whether a synchronous handler runs.
    private(set) var isOpen: Bool
    /// Whether that is so where no frame may be the last piece of a payload.
    private var isOpenWithoutPieces: Bool
    private var arePiecesAwaited = false
    /// A larger answer is not copied, is too large, or may be compressed.
    private(set) var largestAnswer: Int
    /// The object in which handlers may set metadata of their answers, for requests that bring none.
    var extras: ServerContext.Extras?

    init(core: ServerCore, listener: ListenerSettings) {
        // Requests are neither counted nor kept in order, in a format whose frames are made in one go.
        self.isOpen = Self.isOpen(core: core, listener: listener, isStranger: core.hasStrangers)
        self.isOpenWithoutPieces = self.isOpen
        self.largestAnswer = min(ServerConnection.largestCopiedBody, core.limits.maximumAnswerLength)
    }

    private static func isOpen(core: ServerCore, listener: ListenerSettings, isStranger: Bool) -> Bool {
        !isStranger && !core.answersInOrder && !core.hasRequestRates && listener.isStandard
    }

    /// The client has become known, or is a stranger again.
    mutating func standingChanged(isStranger: Bool, core: ServerCore, listener: ListenerSettings) {
        self.isOpenWithoutPieces = Self.isOpen(core: core, listener: listener, isStranger: isStranger)
        self.isOpen = self.isOpenWithoutPieces && !self.arePiecesAwaited
    }

    /// Pieces of payloads are awaited, or not any more: the last of them looks as a whole frame does.
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

/// Synchronous requests: the way that knows everything, and beside it the fast way, which nearly all of them go.
///
/// The invariant: the fast way may be taken only where it does exactly what the slow way does. It leaves out what
/// cannot matter for the requests it takes, and whoever gives the slow way something new to do has to find out whether
/// that can matter for them:
/// - A frame is taken only if it is whole and sound, of the type that was looked up last, whose handler is synchronous
///   and whose rules exclude no request (``RouteRules/isOpen``), and with a serial of requests: so it is no control
///   frame, brings no envelope, deadline or key, and is not refused. What else comes is left where it is.
/// - A payload of which pieces are awaited closes it (``FastPath/piecesChanged(areAwaited:)``): its last piece looks as
///   a whole frame does. So do streams whose handler has returned and whose answer waits behind their items; the others
///   are requests in flight (``ConnectionStreams/closesFastPath``).
/// - Requests in flight, draining and the end of the connection close it (``SessionMachine/serialsOnFastPath``), as
///   do a hello or an identity that is awaited, a rate, answers in order, and other formats (``FastPath/isOpen``).
/// - An answer is encoded at once only if it has no metadata, cannot be compressed, is not too large, and does not have
///   to wait behind others. Any other goes the slow way's end.
///
/// Handlers run here, inside the batch, while the connection and its link are in use. That is safe because nothing that
/// a handler can call does anything at once: a push or a close only submits, and what is submitted runs once the batch
/// is over. For the same reason nothing that the fast way asked before its first request changes before its last.
extension ServerConnection {
    /// Answers requests as long as they are what most are.
    func answerOnFastPath(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) {
        guard batch.mayHaveSoundHeader, self.hot.fastPath.isOpen,
            let handler = self.hot.cachedRoute.openHandler,
            let serials = self.hot.machine.serialsOnFastPath, let session = self.hot.serverContext?.session
        else { return }
        let (type, largestAnswer) = (self.hot.cachedRoute.type, self.hot.fastPath.largestAnswer)
        var context = ServerContext(session: session, extras: self.hot.fastPath.takeExtras())
        var count = 0
        while let header = batch.soundHeader(ofType: type, in: serials) {
            count += 1
            if count % Self.requestsBetweenLooks == 0 { self.endTurnInTime(&turn) }
            let request = ServerRequest(type: header.type, serial: header.serial, body: batch.takePayload(of: header))
            do {
                let body = try handler(request, context)
                self.answer(header, .ok, body, &context, largest: largestAnswer, in: &turn)
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

    /// The number of requests after which it is looked at how long the turn has lasted.
    static var requestsBetweenLooks: Int { 32 }

    /// Leaves what else has come for another turn if this one has lasted long enough.
    func endTurnInTime(_ turn: inout Turn) {
        if self.loop.turnIsOver(turn) { self.link.yield(in: &turn) }
    }

    private func answer(
        _ header: FrameHeader,
        _ status: Status,
        _ body: ByteBuffer,
        _ context: inout ServerContext,
        largest: Int,
        in turn: inout Turn
    ) {
        guard body.readableBytes <= largest, context.isAsNew() else {
            let answer = Frame(type: header.type, serial: header.serial, status: status, payload: body)
            self.finish(answer, context, run: nil, in: &turn)
            context = ServerContext(session: context.session, extras: self.extras(nil, now: turn.now))
            return
        }
        self.link.sendOnFastPath(type: header.type, serial: header.serial, status: status, body, in: &turn)
    }

    /// Answers a request, whatever came with it.
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
        if self.hot.slowRequests % Self.slowRequestsBetweenLooks == 0 { self.endTurnInTime(&turn) }
    }

    /// The number of requests on the way that knows everything after which it is looked at how long the turn has
    /// lasted.
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
