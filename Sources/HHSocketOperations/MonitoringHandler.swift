// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketServer
import NIOCore

/// Answers one request of a connection and closes it.
final class MonitoringHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let answers: MonitoringAnswers
    private var reader = HTTPHeadReader<MonitoringRequest.Fault>(.request)
    private var hasAnswered = false
    private let channel: any Channel
    private let connections: MonitoringConnections
    private var timeout: TimeAlarm?
    /// Makes the answer.
    private var task: Task<Void, Never>?

    init(_ answers: MonitoringAnswers, channel: any Channel, connections: MonitoringConnections) {
        self.answers = answers
        self.channel = channel
        self.connections = connections
    }

    /// Whether the request has come. Bytes that follow it are ignored.
    var isAnswered: Bool { self.hasAnswered }

    func close() { self.channel.close(promise: nil) }

    func handlerAdded(context: ChannelHandlerContext) {
        let (channel, time) = (context.channel, self.answers.server.configuration.time)
        self.timeout = time.schedule(in: MonitoringEndpoint.connectionTimeout, on: context.eventLoop) {
            channel.close(promise: nil)
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.timeout?.cancel()
        self.task?.cancel()
        self.connections.remove(self)
    }

    /// A client that has sent its request waits for the answer.
    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent, !self.isAnswered { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !self.isAnswered else { return }
        self.reader.append(self.unwrapInboundIn(data))
        do throws(MonitoringRequest.Fault) {
            guard let head = try self.reader.next() else { return }
            let request = try MonitoringRequest(head)
            self.hasAnswered = true
            self.task = Self.respond(to: request, self.answers, on: self.channel)
        } catch {
            self.hasAnswered = true
            let answer = MonitoringAnswers.Answer(status: error.status, body: "this is no request of HTTP/1.1\n")
            Self.send(answer, to: nil, on: context.channel)
        }
    }

    private static func respond(
        to request: MonitoringRequest,
        _ answers: MonitoringAnswers,
        on channel: any Channel
    ) -> Task<Void, Never> {
        Task {
            let answer = await answers.answer(to: request)
            Self.send(answer, to: request, on: channel)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    private static func send(
        _ answer: MonitoringAnswers.Answer,
        to request: MonitoringRequest?,
        on channel: any Channel
    ) {
        // With bytes that were not read, a close would be a reset, which can overtake the answer.
        let mode: CloseMode = request.map(\.hasBody) ?? true ? .output : .all
        channel.writeAndFlush(answer.encoded(for: request))
            .whenComplete { _ in channel.close(mode: mode, promise: nil) }
    }
}
