// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The reason for which the server closes a peer that breaks no rule of its language: it is too slow, or one too many,
/// or reaches a limit.
enum Eviction {
    case watch(SessionWatch.Verdict)
    case memory
    /// It does not read its pushes.
    case slowClient
    /// Connections run short, and it has been silent longest.
    case silence
    /// Too many of its units are of no use.
    case flood
    /// It has cancelled too many requests.
    case cancels
    /// Its identity has too many connections.
    case tooManySessions

    var closeReason: ServerCloseReason {
        switch self {
        case .watch(.idle), .watch(.noFirstFrame), .watch(.unknown), .silence: .timedOut
        case .watch(.stalledReading), .watch(.stalledWriting), .slowClient: .tooSlow
        case .memory, .cancels, .tooManySessions, .flood: .limit
        }
    }

    /// The number that counts it.
    var counter: ServerCounter {
        switch self {
        case .watch(.idle): .idleEvictions
        case .watch(.noFirstFrame): .firstFrameTimeouts
        case .watch(.unknown): .strangerTimeouts
        case .watch(.stalledReading): .readStalls
        case .watch(.stalledWriting): .writeStalls
        case .memory: .memoryEvictions
        case .slowClient: .slowClientsClosed
        case .silence: .silentEvictions
        case .flood: .frameFloods
        case .cancels: .cancelFloods
        case .tooManySessions: .sessionsDismissed
        }
    }

    /// The last words; nil for a peer that reads nothing, and is closed at once.
    ///
    /// - Parameter isWritable: Whether the system accepts bytes for the peer.
    func farewell(_ limits: ServerLimits, isWritable: Bool) -> Farewell? {
        let reason = self.reason(limits)
        switch self {
        case .watch(.stalledWriting), .slowClient: return nil
        case .memory: return isWritable ? Farewell(kind: .memory, reason: reason) : nil
        case .watch(.idle), .watch(.noFirstFrame): return Farewell(kind: .departure, reason: reason)
        case .watch(.stalledReading): return Farewell(kind: .violation, reason: reason)
        case .silence: return Farewell(kind: .departure, reason: reason, retryAfter: Farewell.randomAbsence)
        case .watch(.unknown), .flood, .cancels:
            return Farewell(kind: .violation, reason: reason, retryAfter: Farewell.randomAbsence)
        case .tooManySessions:
            // Otherwise it would reconnect immediately and displace the next one.
            let wait = Duration.milliseconds(Int64.random(in: 30_000...60_000))
            return Farewell(kind: .violation, reason: reason, retryAfter: wait)
        }
    }

    /// The reason as text for people.
    func reason(_ limits: ServerLimits) -> String {
        switch self {
        case .watch(.idle): "nothing has happened for \(limits.idleTimeout ?? .zero)"
        case .watch(.noFirstFrame): "no frame came within \(limits.firstFrameTimeout ?? .zero)"
        case .watch(.unknown):
            "it has not identified itself within \(limits.strangers.timeToBecomeKnown ?? .zero)"
        case .watch(.stalledReading):
            "what it sends has not got on for \(limits.readStallTimeout ?? .zero), or too slowly"
        case .watch(.stalledWriting):
            "less than \(StallWatch.minimumRate) bytes a second were read for \(limits.writeStallTimeout ?? .zero)"
        case .memory: "too many bytes are held"
        case .slowClient: "pushes are not read"
        case .silence: "connections are scarce, and this one has been silent longest"
        case .flood: "too many of its frames are unproductive"
        case .cancels: "too many requests were cancelled"
        case .tooManySessions: "there are too many connections of this identity"
        }
    }
}
