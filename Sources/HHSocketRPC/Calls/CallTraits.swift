// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Tracing

/// Properties of every call that follow from a client's configuration.
struct CallTraits: Sendable {
    let tracer: (any Tracer)?
    /// Whether a task stores the service context in which it was resumed.
    let needsContext: Bool
    /// Whether single calls are logged, measured or traced.
    let isObserved: Bool
    /// Whether calls go directly to the dispatch table, because there are no interceptors.
    let isDirect: Bool
    /// Whether a request without its own options can be sent on the fast path.
    let isPlain: Bool
    /// Whether a call that can be sent on the fast path needs no task, if nothing else refers to one.
    let isLight: Bool
    /// The largest body, in bytes, that is sent on the fast path. Larger ones are sent in slices, or may be compressed.
    let largestPlainBody: Int
    /// The bits of a type that are flags; 0 where the wire format has no room for them.
    let flagMask: UInt32
    /// Whether handlers run on the socket thread.
    let callsBackHere: Bool
    /// The custom fields of requests without their own.
    let customFields: Result<[UInt8]?, SocketError>
    let timeout: TimeAmount
    let isUnderThreadSanitizer = ThreadSanitizer.isRunning

    init(
        _ configuration: ClientConfiguration,
        _ rules: FrameRules,
        _ reporter: CallReporter,
        callbackQueue: CallbackQueue
    ) {
        self.tracer = reporter.tracer
        self.needsContext = self.tracer != nil || !configuration.interceptors.isEmpty
        self.isObserved = reporter.observesCalls
        self.isDirect = configuration.interceptors.isEmpty
        self.callsBackHere = if case .socketThread = callbackQueue.target { true } else { false }
        self.customFields = Result { () throws(SocketError) in try rules.customFields([:]) }
        let hasNoFields = if case .success(nil) = self.customFields { true } else { false }
        self.isPlain =
            configuration.interceptors.isEmpty && self.tracer == nil && configuration.firstResponseTimeout == nil
            && hasNoFields
        self.isLight = self.isPlain && !self.isObserved
        let compressed = configuration.compression.map { max($0.minimumLength, 0) } ?? .max
        self.largestPlainBody = min(Frame.unslicedLength, compressed - 1)
        self.flagMask = rules.format.supportsHello ? FrameType.allFlags : 0
        self.timeout = TimeAmount(clamping: configuration.timeout)
    }
}
