// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Tracing

/// The span of one call, with OpenTelemetry's names for RPCs where they exist.
enum CallSpan {
    static func start(_ request: SocketRequest, in context: ServiceContext, _ tracer: any Tracer) -> any Span {
        let span = tracer.startAnySpan("call \(request.type)", context: context, ofKind: .client)
        span.attributes["rpc.system"] = "hhsocket"
        span.attributes["rpc.method"] = "\(request.type)"
        return span
    }

    static func retried(_ span: any Span, after error: SocketError) {
        span.addEvent(SpanEvent(name: "retry", attributes: ["error.type": .string("\(error.code)")]))
    }

    static func isSentAgain(_ span: any Span, after error: SocketError) {
        span.addEvent(SpanEvent(name: "resend", attributes: ["error.type": .string("\(error.code)")]))
    }

    static func end(_ span: any Span, attempts: UInt32, at server: Endpoint?, with result: CallOutcome) {
        if let server {
            span.attributes["server.address"] = server.host
            span.attributes["server.port"] = server.port
        }
        span.attributes["hhsocket.attempts"] = Int64(attempts)
        switch result {
        case .success(let response):
            span.attributes["hhsocket.serial"] = Int64(response.serial)
        case .failure(let error):
            if let serial = error.serial { span.attributes["hhsocket.serial"] = Int64(serial) }
            span.attributes["error.type"] = "\(error.code)"
            span.setStatus(SpanStatus(code: .error, message: error.message))
        }
        span.end()
    }
}
