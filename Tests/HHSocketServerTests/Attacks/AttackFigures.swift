// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import TestSupport

/// What was measured of one attack. `Scripts/attack-report` makes the tables of the documentation of them.
///
/// Times are in milliseconds and sizes in bytes, unless they say otherwise.
struct AttackFigures: Codable, Sendable {
    var variant: String
    var attack: String
    var type: UInt32
    var strength: Int
    /// Whether the server was built for release.
    var isRelease = isReleaseBuild
    /// The time from the beginning of the attack until the attackers had left, in seconds.
    var seconds = 0.0
    /// The number of answers to honest clients meanwhile.
    var answers = 0
    var calmP99 = 0.0
    var calmLongest = 0.0
    var p99 = 0.0
    var longest = 0.0
    /// How long one who came during the attack has waited for the first answer; nil if none arrived in time.
    var newcomer: Double?
    /// What was wrong with honest clients' answers, and how often.
    var faults: [String: Int] = [:]
    /// What the server said it held, at most.
    var held = 0
    /// What its process gained, at most.
    var growth = 0
    /// What its process had still gained at the end.
    var left = 0
    /// What the server said it held at the end.
    var stillHeld = 0
    // And the connections and requests that it still had, those of honest clients included.
    var stillConnected = 0
    var stillInFlight = 0
    /// The seconds until connections, requests and bytes were given back, from when the attackers left; nil if they
    /// were not.
    var givenBack: Double?
    /// The number of connections that were busy and have been quiet, and the resident memory of each of them; nil where
    /// this is not measured.
    var idleConnections: Int?
    var idleConnection: Int?

    /// What a process may gain beyond twice what its server says it holds. What it holds is asked for now and then, and
    /// changes faster than a debug build answers.
    static let slack = isReleaseBuild ? 64 << 20 : 96 << 20
    var allowedGrowth: Int { 2 * self.held + Self.slack }
    var isMemoryGivenBack: Bool { self.left <= 2 * self.stillHeld + Self.slack }

    var isIdleConnectionCheap: Bool {
        guard let count = self.idleConnections, let each = self.idleConnection else { return true }
        return each * count <= Self.idleConnectionBytes(self.variant) * count + Self.idleProcessBytes
    }

    /// Prints a line that `Scripts/attack-report` finds.
    func report() {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        guard let json = try? encoder.encode(self) else { return }
        print("attack-figures: \(String(decoding: json, as: UTF8.self))")
    }
}

#if DEBUG
private let isReleaseBuild = false
#else
private let isReleaseBuild = true
#endif

extension AttackFigures {
    /// How long an honest client may wait for an answer, on two idle cores. In debug builds, where attackers, server
    /// and clients share the cores with whatever else is tested, it is only a bound: a loop that is stuck for longer
    /// is found, a shorter delay is printed.
    static let longestRoundTrip: Duration = isReleaseBuild ? .seconds(1) : .seconds(5) * AttackPlan.strength
    /// The same while all attacks run together: what the attackers compute takes the cores from the server.
    static let longestRoundTripOfAll: Duration = isReleaseBuild ? .seconds(3) : longestRoundTrip
    /// The time in which a newcomer is served, and everything is given back.
    static let recovery: Duration = isReleaseBuild ? .seconds(10) : .seconds(20) * AttackPlan.strength
    /// What a connection may cost that has been quiet for a while, and what the process may have gained besides.
    ///
    /// TLS has buffers of its own, two for each direction.
    static func idleConnectionBytes(_ variant: String) -> Int { variant == "tls" ? 128 << 10 : 32 << 10 }
    static let idleProcessBytes = 8 << 20
}

extension Duration {
    var milliseconds: Double { self / .milliseconds(1) }
}
#endif
