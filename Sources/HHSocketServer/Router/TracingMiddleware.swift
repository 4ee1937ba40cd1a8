import HHSocket
import NIOCore
public import Tracing

/// Begins a span for each request, as a part of the client's trace where its metadata tells of one.
public struct TracingMiddleware: ServerMiddleware {
    private let tracer: any Tracer

    /// - Parameter tracer: Where spans begin; nil, the default: what `InstrumentationSystem.bootstrap` was given.
    public init(tracer: (any Tracer)? = nil) {
        self.tracer = tracer ?? InstrumentationSystem.tracer
    }

    public func handle(
        _ request: ServerRequest,
        _ context: ServerContext,
        next: Router.Handler
    ) async throws -> ByteBuffer {
        var serviceContext = ServiceContext.topLevel
        self.tracer.extract(context.metadata, into: &serviceContext, using: MetadataExtractor())
        let span = self.tracer.startAnySpan("answer \(request.type)", context: serviceContext, ofKind: .server)
        span.attributes["rpc.system"] = "hhsocket"
        span.attributes["rpc.method"] = "\(request.type)"
        span.attributes["hhsocket.serial"] = Int64(request.serial)
        span.attributes["hhsocket.connection"] = Int64(clamping: context.connectionID)
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
