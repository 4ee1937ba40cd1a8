// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The settings of a listener for opening WebSockets.
struct OpeningSettings: Sendable {
    /// The first whose path is the request's, or that has none, answers.
    var routes: [OpeningRoute]
    var sharesPort: Bool
    var timeout: Duration
}

/// The WebSockets at one path.
struct OpeningRoute: Sendable {
    var rules: OpeningRules
    var authenticate: (@Sendable (WebSocketListening.Request) async -> WebSocketListening.Admission)?
    /// The settings of the compression of frames.
    var compression: WebSocketCompression?
    /// Speaks in messages; nil: frames.
    var messages: WebSocketRoute?
}
