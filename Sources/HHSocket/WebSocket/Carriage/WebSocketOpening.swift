// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Follows TLS until the server has answered the request to open a WebSocket.
final class WebSocketOpening: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The answer of a server that did not refuse.
    enum Answer {
        /// The connection is a WebSocket. The completion must add the handlers for its frames before it returns: they
        /// receive the bytes after the answer.
        case accepted(OpeningAgreement)
        case redirect(to: WebSocketTarget)
    }

    /// The time that the rest of a refusal's body may take.
    private static let bodyTime = TimeAmount.seconds(1)

    private let request: OpeningRequest
    private let time: SocketTime
    private let isolated: NIOLoopBound<(Result<Answer, any Error>) -> Void>
    private let clock: () -> Int64
    private var reader: OpeningResponseReader
    private var hasBegun = false
    private var isDone = false
    /// The end of ``bodyTime``, once a refusal has come.
    private var endOfBodyTime: TimeAlarm?

    /// - Parameters:
    ///   - clock: The current time in seconds since 1970, for `Retry-After`.
    ///   - time: The clock by which the server is judged.
    ///   - completion: Called once, on the event loop.
    init(
        _ request: OpeningRequest,
        clock: @escaping () -> Int64,
        time: SocketTime = SocketTime(),
        eventLoop: any EventLoop,
        completion: @escaping (Result<Answer, any Error>) -> Void
    ) {
        self.request = request
        self.clock = clock
        self.time = time
        self.reader = OpeningResponseReader(for: request)
        self.isolated = NIOLoopBound(completion, eventLoop: eventLoop)
    }

    func handlerAdded(context: ChannelHandlerContext) {
        if context.channel.isActive { self.begin(context) }
    }

    func channelActive(context: ChannelHandlerContext) {
        self.begin(context)
        context.fireChannelActive()
    }

    private func begin(_ context: ChannelHandlerContext) {
        guard !self.hasBegun else { return }
        self.hasBegun = true
        context.writeAndFlush(self.wrapOutboundOut(self.request.encode()), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isDone else { return context.fireChannelRead(data) }
        self.reader.append(self.unwrapInboundIn(data))
        do throws(OpeningError) {
            if let result = try self.reader.next(now: self.clock()) {
                self.take(result, context)
            } else if self.reader.isReadingBody, self.endOfBodyTime == nil {
                self.endOfBodyTime = self.time.schedule(in: Self.bodyTime, on: context.eventLoop) { self.endBody() }
            }
        } catch {
            self.finish(.failure(error))
        }
    }

    private func take(_ result: OpeningResult, _ context: ChannelHandlerContext) {
        switch result {
        case .accepted(let agreement, let rest):
            self.finish(.success(.accepted(agreement)))
            if rest.readableBytes > 0 {
                context.fireChannelRead(NIOAny(rest))
                context.fireChannelReadComplete()
            }
            context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
        case .redirect(_, let location):
            self.finish(.success(.redirect(to: location)))
        case .refused(let refusal):
            self.finish(.failure(WebSocketRefusal(refusal)))
        }
    }

    private func finish(_ result: Result<Answer, any Error>) {
        guard !self.isDone else { return }
        self.isDone = true
        self.endOfBodyTime?.cancel()
        self.isolated.value(result)
    }

    /// Ends the wait for the rest of a refusal's body.
    ///
    /// - Returns: Whether the server has refused.
    @discardableResult
    func endBody() -> Bool {
        guard !self.isDone, self.reader.isReadingBody else { return false }
        self.end(OpeningError.closedEarly)
        return true
    }

    /// No more bytes are awaited: a refusal may have no length.
    private func end(_ error: any Error) {
        guard !self.isDone else { return }
        do throws(OpeningError) {
            if case .refused(let refusal)? = try self.reader.finish() {
                self.finish(.failure(WebSocketRefusal(refusal)))
            } else {
                self.finish(.failure(error))
            }
        } catch {
            self.finish(.failure(error))
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !self.isDone else { return context.fireErrorCaught(error) }
        self.end(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.end(OpeningError.closedEarly)
        context.fireChannelInactive()
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.end(OpeningError.closedEarly)
    }
}
