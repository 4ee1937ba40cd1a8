// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC

/// A hint that the layout of frames may be wrong, for a server that accepts connections and requests but never answers.
struct SilenceHint {
    private let format: WireFormat
    private var sawSilence = false
    private var sawAnswer = false

    init(_ format: WireFormat) {
        self.format = format
    }

    /// Adds the outcome of a call.
    mutating func note(_ outcome: MeasuredOutcome) {
        switch outcome.result {
        case .success: self.sawAnswer = true
        case .failure(let error):
            if error.delivery == .answered { self.sawAnswer = true }
            self.note(error)
            if let cause = error.underlying as? SocketError { self.note(cause) }
        }
    }

    /// Adds an error of a call or a connection.
    mutating func note(_ error: SocketError) {
        switch error.code {
        case .timeout, .connectionLost: if error.delivery == .sentUnknown { self.sawSilence = true }
        // Here only hello is part of the handshake.
        case .handshakeTimeout: self.sawSilence = true
        default: break
        }
    }

    /// The hint. Nil if anything was answered, and for the standard format, which HHSocket's own servers use.
    var text: String? {
        guard self.sawSilence, !self.sawAnswer else { return nil }
        return Self.text(self.format, missing: "answer")
    }

    /// - Parameter missing: The kind of frame that did not arrive.
    static func text(_ format: WireFormat, missing: String) -> String? {
        guard format != .standard else { return nil }
        return """
            hint: the server accepted the connection, but no \(missing) arrived that the format \(format) recognizes. If the \
            server works, the layout may be wrong: record the bytes that are sent, and `hhsocket inspect --format` \
            shows the frames in them.
            """
    }
}
