// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Properties of every call that follow from a client's configuration.
struct CallTraits: Sendable {
    /// Whether a task stores the service context in which it was resumed.
    let needsContext: Bool
    /// Whether single calls are logged, measured or traced.
    let isObserved: Bool
    /// Whether calls go directly to the dispatch table, because there are no interceptors.
    let isDirect: Bool
    /// Whether a request without its own options can be sent on the fast path.
    let isPlain: Bool
    /// The largest body, in bytes, that is sent on the fast path. Larger ones are sent in slices, or may be compressed.
    let largestPlainBody: Int
    /// The bits of a type that are flags; 0 where the wire format has no room for them.
    let flagMask: UInt32
    /// Whether handlers run on the socket thread.
    let callsBackHere: Bool
    private let timeout: TimeAmount

    init(
        _ configuration: ClientConfiguration,
        sealer: RequestSealer,
        reporter: CallReporter,
        callbackQueue: CallbackQueue
    ) {
        self.needsContext = reporter.tracer != nil || !configuration.interceptors.isEmpty
        self.isObserved = reporter.observesCalls
        self.isDirect = configuration.interceptors.isEmpty
        self.callsBackHere = if case .socketThread = callbackQueue { true } else { false }
        self.isPlain =
            configuration.interceptors.isEmpty && reporter.tracer == nil && configuration.firstResponseTimeout == nil
            && sealer.addsNoFields
        let compressed = configuration.compression.map { max($0.minimumLength, 0) } ?? .max
        self.largestPlainBody = min(Frame.unslicedLength, compressed - 1)
        self.flagMask = configuration.socket.wireFormat.supportsHello ? FrameType.allFlags : 0
        self.timeout = TimeAmount(clamping: configuration.timeout)
    }

    /// The deadline of a call that starts now.
    @inline(__always)
    func deadline(of request: borrowing SocketRequest, now: NIODeadline) -> NIODeadline {
        let end = now.advanced(clamping: request.options.timeout.map { TimeAmount(clamping: $0) } ?? self.timeout)
        // A plain request, as most are, has no options to check.
        guard !request.options.isPlain, let deadline = request.options.deadline else { return end }
        return min(end, deadline)
    }
}
