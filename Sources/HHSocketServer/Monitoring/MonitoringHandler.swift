// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore
import NIOHTTP1

/// Answers one request of a connection and closes it.
final class MonitoringHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let answers: MonitoringAnswers
    /// Nil once it is being answered. What follows it is ignored.
    private var head: HTTPRequestHead?
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

    /// Whether the request has come.
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
        if case .inputClosed? = event as? ChannelEvent, !self.hasAnswered { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch self.unwrapInboundIn(data) {
        case .head(let head):
            if !self.hasAnswered { self.head = head }
        case .body:
            break
        case .end:
            guard let head = self.head else { return }
            self.head = nil
            self.hasAnswered = true
            self.task = Self.respond(to: head, self.answers, on: context.channel)
        }
    }

    private static func respond(
        to head: HTTPRequestHead,
        _ answers: MonitoringAnswers,
        on channel: any Channel
    ) -> Task<Void, Never> {
        Task {
            let answer = await answers.answer(head.method, head.uri)
            Self.send(answer, to: head, on: channel)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    private static func send(_ answer: MonitoringAnswers.Answer, to request: HTTPRequestHead, on channel: any Channel) {
        var headers = HTTPHeaders([
            ("content-type", answer.contentType), ("content-length", "\(answer.body.utf8.count)"),
            ("connection", "close"),
        ])
        if let allow = answer.allow { headers.add(name: "allow", value: allow) }
        let head = HTTPResponseHead(version: request.version, status: answer.status, headers: headers)
        channel.write(HTTPServerResponsePart.head(head), promise: nil)
        if request.method != .HEAD {
            channel.write(HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(string: answer.body))), promise: nil)
        }
        channel.writeAndFlush(HTTPServerResponsePart.end(nil)).whenComplete { _ in channel.close(promise: nil) }
    }
}
