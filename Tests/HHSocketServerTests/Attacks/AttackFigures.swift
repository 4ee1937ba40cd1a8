// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import TestSupport

/// The figures of one attack. `Benchmarks/Scripts/attack-report` generates the tables of the documentation from them.
///
/// Times are in milliseconds and sizes in bytes, unless stated otherwise.
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
    /// The time that a client which connected during the attack waited for its first answer; nil if none arrived in
    /// time.
    var newcomer: Double?
    /// The faults of honest clients' answers, with their numbers.
    var faults: [String: Int] = [:]
    /// The greatest number of bytes that the server reported to hold.
    var held = 0
    /// The greatest growth of its process.
    var growth = 0
    /// The growth of its process at the end.
    var left = 0
    /// The number of bytes that the server reported to hold at the end.
    var stillHeld = 0
    // The connections and requests that it still had, including those of honest clients.
    var stillConnected = 0
    var stillInFlight = 0
    /// The seconds from the attackers' end until connections, requests and bytes were released; nil if they were not.
    var givenBack: Double?
    /// The number of connections that are idle after being busy, and the resident memory of each; nil if not measured.
    var idleConnections: Int?
    var idleConnection: Int?

    /// The growth that a process may have beyond twice the bytes that its server reports to hold, since samples are
    /// rare, and the amount changes faster than a debug build answers.
    static let slack = isReleaseBuild ? 64 << 20 : 96 << 20
    var allowedGrowth: Int { 2 * self.held + Self.slack }
    var isMemoryGivenBack: Bool { self.left <= 2 * self.stillHeld + Self.slack }

    var isIdleConnectionCheap: Bool {
        guard let count = self.idleConnections, let each = self.idleConnection else { return true }
        return each * count <= Self.idleConnectionBytes(self.variant) * count + Self.idleProcessBytes
    }

    /// Prints a line that `Benchmarks/Scripts/attack-report` finds.
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
    /// The longest time that an honest client may wait for an answer, on two idle cores. In debug builds, where
    /// attackers, server and clients share the cores with other tests, it is only a bound: a loop that is stuck for
    /// longer is detected, a shorter delay is printed.
    static let longestRoundTrip: Duration = isReleaseBuild ? .seconds(1) : .seconds(5) * AttackPlan.strength
    /// The longest round trip while all attacks run together, since the attackers' work takes the cores from the
    /// server.
    static let longestRoundTripOfAll: Duration = isReleaseBuild ? .seconds(3) : longestRoundTrip
    /// The time in which a newcomer is served, and everything is released.
    static let recovery: Duration = isReleaseBuild ? .seconds(10) : .seconds(20) * AttackPlan.strength
    /// The memory that an idle connection may take, and the remaining growth of the process.
    ///
    /// TLS has its own buffers, two for each direction.
    static func idleConnectionBytes(_ variant: String) -> Int { variant == "tls" ? 128 << 10 : 32 << 10 }
    static let idleProcessBytes = 8 << 20
}

extension Duration {
    var milliseconds: Double { self / .milliseconds(1) }
}
#endif
