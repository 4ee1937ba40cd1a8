// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore
public import Tracing

/// Begins a span for each request, as a part of the client's trace if its metadata has one and the client is trusted.
///
/// A client that chooses a trace can cause it to be sampled, add spans to the traces of others, and fill the tracing
/// backend. So by default only clients whose identity is known are trusted (``ServerSession/authenticate(as:)``); the
/// spans of others begin a new trace.
public struct TracingMiddleware: ServerMiddleware {
    private let tracer: any Tracer
    private let trusts: @Sendable (ServerContext) -> Bool

    /// - Parameters:
    ///   - tracer: The tracer that begins spans; nil, the default, for the one given to
    ///     `InstrumentationSystem.bootstrap`.
    ///   - trusts: Whether the trace in a request's metadata is continued. By default true for sessions with an
    ///     identity. `{ _ in true }` continues all, which is right behind a gateway that removes the trace context of
    ///     strangers; `{ $0.session.peerCertificate != nil }` continues those of clients with a certificate.
    public init(
        tracer: (any Tracer)? = nil,
        continuingTracesWhere trusts: @escaping @Sendable (ServerContext) -> Bool = { $0.session.identity != nil }
    ) {
        self.tracer = tracer ?? InstrumentationSystem.tracer
        self.trusts = trusts
    }

    public func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        var serviceContext = ServiceContext.topLevel
        if self.trusts(context) {
            self.tracer.extract(context.metadata, into: &serviceContext, using: MetadataExtractor())
        }
        let span = self.tracer.startAnySpan("answer \(request.type)", context: serviceContext, ofKind: .server)
        span.attributes["rpc.system"] = "hhsocket"
        span.attributes["rpc.method"] = "\(request.type)"
        span.attributes["hhsocket.serial"] = Int64(request.serial)
        span.attributes["hhsocket.connection"] = Int64(clamping: context.session.id)
        defer { span.end() }
        return try await ServiceContext.withValue(span.context) {
            do {
                return try await next(request, context)
            } catch {
                let status = Status(answering: error)
                span.attributes["hhsocket.status"] = Int64(status.rawValue)
                span.setStatus(SpanStatus(code: .error, message: "status \(status)"))
                throw error
            }
        }
    }
}

private struct MetadataExtractor: Extractor {
    func extract(key: String, from carrier: [String: String]) -> String? { carrier[key.lowercased()] }
}
